//! Days on which the pods of an environment were read last. Pure.

use std::collections::HashMap;

use jiff::civil::Date;

/// Day of the last read by the UID of a running pod, or the day on which the pod was seen first.
#[derive(Debug, Default)]
pub(super) struct Reads(HashMap<String, Date>);

impl Reads {
    /// Takes the pods that run now.
    pub(super) fn start(&mut self, running: &[&str], today: Date) {
        let mut before = std::mem::take(&mut self.0);
        let day = |pod: &&str| ((*pod).to_owned(), before.remove(*pod).unwrap_or(today));
        self.0 = running.iter().map(day).collect();
    }

    /// Takes a read of a pod.
    pub(super) fn read(&mut self, pod: &str, today: Date) {
        if let Some(day) = self.0.get_mut(pod) {
            *day = today;
        }
    }

    /// Number of pods that ran on the day before `today` and were not read since it began.
    pub(super) fn unread(&self, today: Date) -> usize {
        let yesterday = today.yesterday().unwrap_or(today);
        self.0.values().filter(|day| **day < yesterday).count()
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    #[test]
    fn pod_that_was_not_read_on_a_whole_day_is_unread_until_it_answers_or_ends() {
        let day = |number| date(2026, 11, number);
        let mut reads = Reads::default();
        reads.start(&["silent", "web"], day(1));
        for today in 1..=4 {
            reads.start(&["silent", "web"], day(today));
            reads.read("web", day(today));
            assert_eq!(reads.unread(day(today)), usize::from(today > 2), "day {today}");
        }
        reads.read("silent", day(4));
        assert_eq!((reads.unread(day(4)), reads.unread(day(6))), (0, 2));
        reads.start(&["new"], day(6));
        reads.read("silent", day(6));
        assert_eq!((reads.unread(day(6)), reads.0.len()), (0, 1));
    }
}
