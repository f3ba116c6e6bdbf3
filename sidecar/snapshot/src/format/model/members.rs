//! The members of a set, in one text: sets of a million short members occur, and a string per member takes sixty bytes.

use std::fmt;
use std::sync::Arc;

/// The distinct members of a set, in the order of their bytes. Clones share the text.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Members(Arc<Combined>);

#[derive(Clone, PartialEq, Eq, Default)]
struct Combined {
    text: String,
    /// End of each member. A member begins where the previous one ends.
    ends: Vec<u32>,
}

/// Error: the members have more than 2³² bytes in total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the members of a set have more than 4 GiB")]
pub struct TooLong;

/// Builds [`Members`]: append the text of a member, then call [`MembersBuilder::end_member`].
#[derive(Default)]
pub struct MembersBuilder {
    /// Text of the finished members and of the current one.
    pub text: String,
    ends: Vec<u32>,
}

impl MembersBuilder {
    /// Returns the start of the current member in the text.
    #[must_use]
    pub fn start(&self) -> usize {
        self.ends.last().map_or(0, |end| *end as usize)
    }

    /// Ends the current member.
    ///
    /// # Errors
    /// [`TooLong`] if the text has more than 2³² bytes.
    pub fn end_member(&mut self) -> Result<(), TooLong> {
        self.ends.push(u32::try_from(self.text.len()).map_err(|_| TooLong)?);
        Ok(())
    }

    /// Sorts the members and removes duplicates.
    #[must_use]
    pub fn finish(self) -> Members {
        let all = Combined { text: self.text, ends: self.ends };
        if all.iter().is_sorted_by(|a, b| a < b) {
            return Members(Arc::new(all));
        }
        let mut order: Vec<u32> = (0..all.ends.len() as u32).collect(); // count is at most bytes + 1, see `end_member`
        order.sort_unstable_by_key(|number| all.get(*number));
        order.dedup_by_key(|number| all.get(*number));
        let mut sorted = Combined { text: String::new(), ends: Vec::with_capacity(order.len()) };
        for number in order {
            sorted.text.push_str(all.get(number));
            sorted.ends.push(sorted.text.len() as u32); // not longer than `all`
        }
        Members(Arc::new(sorted))
    }
}

impl Combined {
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
    /// Creates the set of these members.
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

    /// True if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.ends.is_empty()
    }

    /// Iterates over the members in the order of their bytes.
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
    fn members_given_twice_are_sorted_and_stored_once() {
        let of = |members: &[&str]| Members::of(members).unwrap().iter().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(of(&["b", "", "a", "b", "", "ab"]), ["", "a", "ab", "b"]);
        assert_eq!(of(&["a", "b"]), ["a", "b"]);
        assert!(Members::of([""; 0]).unwrap().is_empty());
    }
}
