//! Pace of the fetches that edits cause. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// Least time between two fetches because of edits, of the spec or of an object that the source names, after the first
/// [`EDITS_AT_ONCE`].
pub(super) const EDIT_PACE: Duration = Duration::from_secs(5);
/// Number of fetches because of edits that follow each other at once. Each comes back after an [`EDIT_PACE`].
pub(super) const EDITS_AT_ONCE: u32 = 32;

/// Fetches because of edits. Without a pace, the server would get a request for each edit, whatever it answered to the last
/// one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EditPace {
    /// Planned time of the last fetch. An earlier fetch may have served the edit.
    planned: Option<Instant>,
    /// Time at which [`EDITS_AT_ONCE`] fetches are allowed again.
    free: Option<Instant>,
}

impl EditPace {
    /// Returns the time of the fetch because of an edit, and records it.
    pub(super) fn plan(&mut self, now: Instant) -> Instant {
        if let Some(planned) = self.planned.filter(|planned| *planned > now) {
            return planned;
        }
        let free = self.free.map_or(now, |free| free.max(now));
        let at = free.checked_sub(EDIT_PACE * (EDITS_AT_ONCE - 1)).map_or(now, |at| at.max(now));
        (self.free, self.planned) = (Some(free + EDIT_PACE), Some(at));
        at
    }

    /// True if a fetch is planned for later.
    pub(super) fn is_waiting(&self, now: Instant) -> bool {
        self.planned.is_some_and(|planned| planned > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_at_once_come_back_one_in_each_pace() {
        let (mut pace, began) = (EditPace::default(), Instant::now());
        for _ in 0..EDITS_AT_ONCE {
            assert_eq!(pace.plan(began), began);
        }
        assert_eq!(pace.plan(began), began + EDIT_PACE);
        assert!(pace.is_waiting(began));
        assert_eq!(pace.plan(began + EDIT_PACE / 2), began + EDIT_PACE, "one fetch serves both edits");
        assert!(!pace.is_waiting(began + EDIT_PACE));
        let later = began + EDIT_PACE * (EDITS_AT_ONCE + 1);
        assert_eq!([pace.plan(later), pace.plan(later)], [later, later]);
    }
}
