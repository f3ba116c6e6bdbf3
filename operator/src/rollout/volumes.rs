//! The volumes of running pods, and the core that they have room for. Pure.

use remora_snapshot::files;

use crate::{
    api::names::FORMAT,
    rollout::pods::{Injected, named},
};

/// Volumes of the running pods of an environment. Each was fixed when its pod was admitted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Volumes(Vec<Injected>);

impl Volumes {
    /// Keeps the pods whose volumes name objects of the current format. Other pods do not read what is published.
    pub(super) fn of(pods: Vec<Injected>) -> Self {
        let is_current = |pod: &Injected| pod.volume.is_some_and(|volume| volume.format == FORMAT);
        Self(pods.into_iter().filter(is_current).collect())
    }

    /// Counts and names the pods whose volumes have room for fewer than `parts` parts of a core. `None` if all have room.
    pub(crate) fn without_room_for(&self, parts: usize) -> Option<String> {
        let few: Vec<&Injected> = self.0.iter().filter(|pod| room(pod) < parts).collect();
        (!few.is_empty()).then(|| named(&few))
    }

    /// Returns the size in bytes of the largest core that all volumes have room for, and the pods with the least room.
    /// `None` if no pod runs.
    pub(crate) fn capacity(&self) -> Option<(usize, String)> {
        let least = self.0.iter().map(room).min()?;
        let pods: Vec<&Injected> = self.0.iter().filter(|pod| room(pod) == least).collect();
        Some((files::MAX_FILE_BYTES.max(least * files::PART_BYTES), named(&pods)))
    }
}

#[cfg(test)]
impl Volumes {
    /// The volumes of pods with room for these numbers of parts.
    pub(crate) fn with_parts(parts: &[usize]) -> Self {
        let pods = parts.iter().enumerate().map(|(number, parts)| tests::pod(&number.to_string(), FORMAT, *parts));
        Self::of(pods.collect())
    }
}

/// Returns the number of parts of a core that the pod's volume has room for. 0: the core must be one object.
fn room(pod: &Injected) -> usize {
    pod.volume.map_or(0, |volume| volume.slots.core_parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{ObjectKind, names::Format},
        injection::Slots,
        rollout::pods::Mounted,
    };

    pub(super) fn pod(name: &str, format: Format, core_parts: usize) -> Injected {
        let slots = Slots { overrides: 8, core_parts };
        let volume = Some(Mounted { object_kind: ObjectKind::ConfigMap, format, slots });
        Injected { volume, ..Injected::named(name) }
    }

    #[test]
    fn pods_with_fewer_parts_are_without_room() {
        let earlier = FORMAT.earlier().next().unwrap();
        let volumes = Volumes::of(vec![pod("a", FORMAT, 4), pod("b", FORMAT, 2), pod("old", earlier, 0)]);
        assert_eq!(volumes.without_room_for(2), None);
        assert_eq!(volumes.without_room_for(3).as_deref(), Some("1 pod (b)"));
        assert_eq!(volumes.without_room_for(5).as_deref(), Some("2 pods (a, b)"));
        assert_eq!(volumes.capacity(), Some((2 * files::PART_BYTES, "1 pod (b)".to_owned())));
    }

    #[test]
    fn pod_without_parts_has_room_for_one_object() {
        let volumes = Volumes::of(vec![pod("a", FORMAT, 0), pod("b", FORMAT, 1)]);
        assert_eq!(volumes.capacity(), Some((files::MAX_FILE_BYTES, "1 pod (a)".to_owned())));
        assert_eq!(Volumes::default().capacity(), None);
        assert_eq!(Volumes::default().without_room_for(17), None);
    }
}
