//! Days on which the pods of an environment were read last. Pure.

use std::collections::HashMap;

use jiff::civil::Date;

/// Days of the last reads of the pods that run.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// Day of the last read by the UID of a pod. Before the first read, the day on which the pod was seen first.
    days: HashMap<String, Date>,
    has_started: bool,
}

impl Reads {
    /// Takes the pods that run now, with the days on which they were created. The pods of the first call were seen by an
    /// earlier process, which may have read none of them: each counts as seen first on the day of its creation.
    pub(super) fn start(&mut self, running: &[(&str, Option<Date>)], today: Date) {
        let mut before = std::mem::take(&mut self.days);
        let is_first = !std::mem::replace(&mut self.has_started, true);
        let seen = |created: Option<Date>| created.filter(|_| is_first).map_or(today, |created| created.min(today));
        let day = |&(pod, created): &(&str, _)| (pod.to_owned(), before.remove(pod).unwrap_or_else(|| seen(created)));
        self.days = running.iter().map(day).collect();
    }

    /// Takes a read of a pod.
    pub(super) fn read(&mut self, pod: &str, today: Date) {
        if let Some(day) = self.days.get_mut(pod) {
            *day = today;
        }
    }

    /// Number of pods that ran on the day before `today` and were not read since it began.
    pub(super) fn unread(&self, today: Date) -> usize {
        let yesterday = today.yesterday().unwrap_or(today);
        self.days.values().filter(|day| **day < yesterday).count()
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
        let running = [("silent", None), ("web", None)];
        for today in 1..=4 {
            reads.start(&running, day(today));
            reads.read("web", day(today));
            assert_eq!(reads.unread(day(today)), usize::from(today > 2), "day {today}");
        }
        reads.read("silent", day(4));
        assert_eq!((reads.unread(day(4)), reads.unread(day(6))), (0, 2));
        reads.start(&[("new", Some(day(2)))], day(6));
        reads.read("silent", day(6));
        assert_eq!((reads.unread(day(6)), reads.days.len()), (0, 1));
    }

    #[test]
    fn silent_pod_is_unread_although_process_restarts_each_day() {
        let day = |number| date(2026, 11, number);
        let running = [("silent", Some(day(1))), ("web", Some(day(1))), ("future", Some(day(30)))];
        for today in 1..=6 {
            let mut reads = Reads::default();
            for _ in 0..2 {
                reads.start(&running, day(today));
            }
            reads.read("web", day(today));
            assert_eq!(reads.unread(day(today)), usize::from(today > 2), "day {today}");
        }
    }
}
