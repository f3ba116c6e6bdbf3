//! What a key opens, of the key that came last: an application has one, and sends it with every request.

use std::sync::Mutex;

use remora_snapshot::Role;

/// Longer ones are looked up each time. Those of Flagsmith have 22 bytes, with `ser.` before them 26.
const MAX_KEY: usize = 64;

/// The key that came last to a snapshot, and what it opens there. It is a part of the snapshot's [`Loaded`], so that it goes
/// when other keys may come.
///
/// [`Loaded`]: crate::environment::Loaded
#[derive(Debug, Default)]
pub(crate) struct LastKey(Mutex<Option<Known>>);

#[derive(Debug)]
struct Known {
    bytes: [u8; MAX_KEY],
    length: usize,
    role: Option<Role>,
}

impl LastKey {
    /// What a key opens: as it is remembered, or else as `look` finds.
    pub(crate) fn role(&self, key: &[u8], look: impl FnOnce() -> Option<Role>) -> Option<Role> {
        // Nobody waits: who finds it locked looks for himself.
        let Ok(mut last) = self.0.try_lock() else { return look() };
        if let Some(known) = last.as_ref()
            && known.bytes.get(..known.length).is_some_and(|bytes| are_equal(bytes, key))
        {
            return known.role;
        }
        let role = look();
        let mut bytes = [0; MAX_KEY];
        if let Some(place) = bytes.get_mut(..key.len()) {
            place.copy_from_slice(key);
            *last = Some(Known { bytes, length: key.len(), role });
        }
        role
    }
}

/// In a time that does not tell how much of it is right.
fn are_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).fold(0, |difference, (one, other)| difference | (one ^ other)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_key_is_not_looked_up() {
        let last = LastKey::default();
        let long = [b'x'; MAX_KEY];
        let too_long = [b'x'; MAX_KEY + 1];
        let keys: [(&[u8], Option<Role>); 6] = [
            (b"client", Some(Role::Client)),
            (b"clienu", None),
            (b"", None),
            (b"ser.er", Some(Role::Server)),
            (&long, Some(Role::Client)),
            (&too_long, Some(Role::Server)),
        ];
        for (key, role) in keys {
            assert_eq!(last.role(key, || role), role);
            // What it is now is not asked again, unless it was too long to be kept.
            let again = last.role(key, || None);
            assert_eq!(again, if key.len() > MAX_KEY { None } else { role }, "{key:?}");
        }
        assert_eq!(last.role(b"client", || None), None, "another one came since");
    }
}
