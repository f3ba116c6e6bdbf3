//! The members of a set, in one text: lists of a million short members occur, and a string each would take sixty bytes.

use std::fmt;
use std::sync::Arc;

/// The members of a set, each once, in the order of their bytes. Copies share the text.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Members(Arc<Joined>);

#[derive(Clone, PartialEq, Eq, Default)]
struct Joined {
    text: String,
    /// Where each member ends; it begins where the one before ends.
    ends: Vec<u32>,
}

/// Members with more than 2³² bytes in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the members of a set have more than 4 GiB")]
pub struct TooLong;

/// Collects members: their text, then [`MembersBuilder::end_member`].
#[derive(Default)]
pub struct MembersBuilder {
    /// The text of the members so far, and of the one that is being written.
    pub text: String,
    ends: Vec<u32>,
}

impl MembersBuilder {
    /// Where the member begins that is being written.
    #[must_use]
    pub fn start(&self) -> usize {
        self.ends.last().map_or(0, |end| *end as usize)
    }

    /// Ends the member that is being written.
    ///
    /// # Errors
    /// [`TooLong`] if the text has more than 2³² bytes.
    pub fn end_member(&mut self) -> Result<(), TooLong> {
        self.ends.push(u32::try_from(self.text.len()).map_err(|_| TooLong)?);
        Ok(())
    }

    /// Sorts the members and leaves out those that are there twice.
    #[must_use]
    pub fn finish(self) -> Members {
        let all = Joined { text: self.text, ends: self.ends };
        if all.iter().is_sorted_by(|a, b| a < b) {
            return Members(Arc::new(all));
        }
        let mut order: Vec<u32> = (0..all.ends.len() as u32).collect(); // at most as many as bytes and one, see `end_member`
        order.sort_unstable_by_key(|number| all.get(*number));
        order.dedup_by_key(|number| all.get(*number));
        let mut sorted = Joined { text: String::new(), ends: Vec::with_capacity(order.len()) };
        for number in order {
            sorted.text.push_str(all.get(number));
            sorted.ends.push(sorted.text.len() as u32); // not longer than `all`
        }
        Members(Arc::new(sorted))
    }
}

impl Joined {
    fn get(&self, number: u32) -> &str {
        let number = number as usize;
        let start = number.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |end| *end as usize);
        let end = self.ends.get(number).map_or(start, |end| *end as usize);
        self.text.get(start..end).unwrap_or_default()
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|end| *end as usize));
        starts.zip(&self.ends).map(|(start, end)| self.text.get(start..*end as usize).unwrap_or_default())
    }
}

impl Members {
    /// The set of these members.
    ///
    /// # Errors
    /// [`TooLong`] if they have more than 2³² bytes in all.
    pub fn of<S: AsRef<str>>(members: impl IntoIterator<Item = S>) -> Result<Self, TooLong> {
        let mut builder = MembersBuilder::default();
        for member in members {
            builder.text.push_str(member.as_ref());
            builder.end_member()?;
        }
        Ok(builder.finish())
    }

    /// Number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.ends.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.ends.is_empty()
    }

    /// The members in the order of their bytes.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter()
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_sorted_and_there_once() {
        let of = |members: &[&str]| Members::of(members).unwrap().iter().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(of(&["b", "", "a", "b", "", "ab"]), ["", "a", "ab", "b"]);
        assert_eq!(of(&["a", "b"]), ["a", "b"]);
        assert!(Members::of([""; 0]).unwrap().is_empty());
    }
}
