//! Remembers on which day each flag was used last, and lists the flags that are idle. Pure.
//!
//! The list in the status is also the memory across restarts. So it has each flag without a use on its last day. For a
//! flag that is not in the list, a new process assumes a use on the day before.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{ToSpan, civil::Date};

use crate::api::{IdleFlag, IdleFlags};

/// Number of whole days without a use after which a flag is unused. A restart may have lost a use on the day after the
/// last known one.
const UNUSED_DAYS: i32 = 30;
/// Number of days within which any flag must have been used: otherwise, applications do not report uses.
const REPORTED_DAYS: i32 = 7;
/// Largest number of flags in the status, and largest number of bytes of their names.
const LISTED_MAX: usize = 200;
const LISTED_BYTES_MAX: usize = 16 << 10;

/// Days of the last uses of an environment's flags.
#[derive(Clone, Debug)]
pub struct LastUses {
    since: Date,
    /// Day of the last use of any flag.
    any: Option<Date>,
    /// Day of the last use by flag, or the first day on which the flag was known.
    flags: BTreeMap<String, Date>,
    /// Day of the restart, and number of idle flags that the list before it left out: on this day, `count` has them.
    left_out: Option<(Date, i64)>,
    /// Last day that did not count because pods were not read, or for which an earlier process decided about this.
    blind: Option<Date>,
}

impl LastUses {
    /// Continues with the list that an earlier process wrote, or begins today. Begins today as well if a day was not
    /// counted between.
    pub fn restore(written: Option<&IdleFlags>, flags: &BTreeSet<String>, today: Date) -> Self {
        let continued = written.and_then(|written| Self::read(written, flags, today));
        continued.unwrap_or_else(|| Self {
            since: today,
            any: None,
            flags: flags.iter().map(|flag| (flag.clone(), today)).collect(),
            left_out: None,
            blind: None,
        })
    }

    fn read(written: &IdleFlags, flags: &BTreeSet<String>, today: Date) -> Option<Self> {
        let day = |text: &str| text.parse::<Date>().ok().filter(|day| *day <= today);
        let (since, until) = (day(&written.since)?, day(&written.until)?);
        // An earlier process counted on the day after `until`, on which it wrote the list.
        if until.checked_add(2.days()).ok()? < today {
            return None;
        }
        let idle: BTreeMap<&str, Date> =
            written.flags.iter().filter_map(|idle| Some((idle.flag.as_str(), day(&idle.since)?))).collect();
        let yesterday = today.yesterday().ok()?.max(since);
        let known = flags.iter().map(|flag| (flag.clone(), idle.get(flag.as_str()).copied().unwrap_or(yesterday)));
        let left_out = written.count.saturating_sub(i64::try_from(written.flags.len()).unwrap_or(i64::MAX));
        Some(Self {
            since,
            any: written.last_use.as_deref().and_then(day),
            flags: known.collect(),
            left_out: Some((today, left_out.max(0))),
            blind: Some(until),
        })
    }

    /// Takes the flags that the environment has now. New ones count from today.
    pub fn set_flags(&mut self, flags: &BTreeSet<String>, today: Date) {
        self.flags.retain(|flag, _| flags.contains(flag));
        for flag in flags {
            self.flags.entry(flag.clone()).or_insert(today);
        }
    }

    /// Takes a use of a flag. Flags that the environment does not have are left out.
    pub fn used(&mut self, flag: &str, day: Date) {
        if let Some(last) = self.flags.get_mut(flag) {
            *last = day.max(*last);
            self.any = self.any.max(Some(day));
        }
    }

    /// Leaves the day before `today` out of the days without a use, because some pods were not read on it: the days of all
    /// idle flags move forward by one. Further calls on a day change nothing.
    pub fn skip_yesterday(&mut self, today: Date) {
        let Ok(yesterday) = today.yesterday() else { return };
        if self.blind.is_some_and(|blind| blind >= yesterday) {
            return;
        }
        self.blind = Some(yesterday);
        for last in self.flags.values_mut().filter(|last| **last < yesterday) {
            *last = last.tomorrow().unwrap_or(*last);
        }
    }

    /// Lists the flags without a use on the day before `today`. Changes once a day, and when a flag of the list is used.
    pub fn list(&self, today: Date) -> IdleFlags {
        let until = today.yesterday().unwrap_or(today);
        let unused = until.saturating_sub(UNUSED_DAYS.days());
        let is_reported = self.any.is_some_and(|any| any >= until.saturating_sub(REPORTED_DAYS.days()));
        let mut idle: Vec<(Date, &str)> =
            self.flags.iter().filter(|(_, last)| **last < until).map(|(flag, last)| (*last, flag.as_str())).collect();
        idle.sort_unstable();
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let left_out = self.left_out.filter(|(day, _)| *day == today).map_or(0, |(_, flags)| flags);
        let mut bytes = 0;
        let fits = |(_, flag): &&(Date, &str)| {
            bytes += flag.len();
            bytes <= LISTED_BYTES_MAX
        };
        let listed = idle.iter().take(LISTED_MAX).take_while(fits);
        IdleFlags {
            since: self.since.to_string(),
            until: until.to_string(),
            last_use: self.any.map(|any| any.min(until).to_string()),
            count: count(idle.len()).saturating_add(left_out),
            unused: count(idle.iter().filter(|(last, _)| is_reported && *last < unused).count()),
            flags: listed.map(|(last, flag)| IdleFlag { flag: (*flag).to_owned(), since: last.to_string() }).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    fn day(number: i32) -> Date {
        date(2026, 10, 1) + (number - 1).days()
    }

    fn flags(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn listed(list: &IdleFlags) -> Vec<(&str, Date)> {
        list.flags.iter().map(|idle| (idle.flag.as_str(), idle.since.parse().unwrap())).collect()
    }

    #[test]
    fn flag_without_use_on_a_whole_day_is_listed_until_it_is_used() {
        let mut uses = LastUses::restore(None, &flags(&["a", "b"]), day(1));
        for today in [1, 2] {
            assert_eq!(listed(&uses.list(day(today))), [], "day {today}");
        }
        uses.used("a", day(2));
        uses.used("another", day(2));
        let third = uses.list(day(3));
        assert_eq!((listed(&third), third.last_use.as_deref()), (vec![("b", day(1))], Some("2026-10-02")));
        uses.used("b", day(3));
        assert_eq!(listed(&uses.list(day(3))), []);
        uses.set_flags(&flags(&["b", "c"]), day(3));
        assert_eq!(listed(&uses.list(day(5))), [("b", day(3)), ("c", day(3))]);
        assert_eq!(uses.list(day(5)).until, "2026-10-04");
    }

    #[test]
    fn flag_is_unused_after_thirty_days() {
        let mut uses = LastUses::restore(None, &flags(&["a", "b", "c"]), day(1));
        for today in 2..=33 {
            uses.used("a", day(today));
            assert_eq!(uses.list(day(today)).unused, if today == 33 { 2 } else { 0 }, "day {today}");
        }
    }

    #[test]
    fn no_flag_is_unused_while_no_use_is_reported() {
        let mut uses = LastUses::restore(None, &flags(&["a", "b"]), day(1));
        assert_eq!((uses.list(day(99)).count, uses.list(day(99)).unused), (2, 0));
        uses.used("a", day(40));
        assert_eq!([41, 48, 49].map(|today| uses.list(day(today)).unused), [1, 1, 0]);
    }

    #[test]
    fn restart_on_each_day_loses_no_day() {
        let names = flags(&["a", "b", "c"]);
        let mut uses = LastUses::restore(None, &names, day(1));
        for today in 1..=40 {
            for restart in 0..3 {
                let written = uses.list(day(today));
                uses = LastUses::restore(Some(&written), &names, day(today));
                if restart == 1 {
                    uses.used("a", day(today));
                }
                if restart == 2 && today <= 5 {
                    uses.used("b", day(today));
                }
            }
        }
        let list = uses.list(day(40));
        assert_eq!(listed(&list), [("c", day(1)), ("b", day(5))]);
        assert_eq!((list.count, list.unused, list.since.as_str()), (2, 2, "2026-10-01"));
    }

    #[test]
    fn days_without_a_process_begin_the_count_anew() {
        let names = flags(&["a"]);
        let written = LastUses::restore(None, &names, day(1)).list(day(10));
        assert_eq!(listed(&written), [("a", day(1))]);
        let since = |today| LastUses::restore(Some(&written), &names, today).list(today).since;
        assert_eq!([since(day(10)), since(day(11))], ["2026-10-01", "2026-10-01"]);
        assert_eq!(since(day(12)), "2026-10-12");
        let odd = IdleFlags { until: "soon".to_owned(), ..written };
        assert_eq!(LastUses::restore(Some(&odd), &names, day(10)).list(day(10)).since, "2026-10-10");
    }

    #[test]
    fn day_on_which_pods_were_not_read_is_no_day_without_use() {
        let mut uses = LastUses::restore(None, &flags(&["a", "b"]), day(1));
        for today in 2..=60 {
            uses.used("a", day(today));
            if today <= 30 {
                uses.skip_yesterday(day(today));
                uses.skip_yesterday(day(today));
            }
            // The first 29 days do not count.
            assert_eq!(uses.list(day(today)).unused, 0, "day {today}");
        }
        assert_eq!(listed(&uses.list(day(60))), [("b", day(29))]);
        uses.used("a", day(61));
        assert_eq!(uses.list(day(61)).unused, 1);
    }

    #[test]
    fn day_on_which_pods_were_not_read_is_left_out_once_although_process_restarts() {
        let names = flags(&["a"]);
        let mut written = LastUses::restore(None, &names, day(1)).list(day(10));
        for today in [11, 12] {
            for _ in 0..3 {
                let mut uses = LastUses::restore(Some(&written), &names, day(today));
                uses.skip_yesterday(day(today));
                written = uses.list(day(today));
            }
        }
        assert_eq!(listed(&written), [("a", day(3))]);
    }

    #[test]
    fn count_of_idle_flags_survives_a_restart() {
        let many: BTreeSet<String> = (0..1000).map(|number| format!("flag-{number:04}")).collect();
        let written = LastUses::restore(None, &many, day(1)).list(day(9));
        for _ in 0..2 {
            let again = LastUses::restore(Some(&written), &many, day(9)).list(day(9));
            assert_eq!((again.count, again.flags.len()), (1000, LISTED_MAX));
        }
    }

    #[test]
    fn list_is_bounded_and_counts_all() {
        let many: BTreeSet<String> = (0..1000).map(|number| format!("flag-{number:04}")).collect();
        let list = LastUses::restore(None, &many, day(1)).list(day(9));
        assert_eq!((list.flags.len(), list.count), (LISTED_MAX, 1000));
        let long: BTreeSet<String> = (0..100).map(|number| format!("{number:02000}")).collect();
        assert_eq!(LastUses::restore(None, &long, day(1)).list(day(9)).flags.len(), LISTED_BYTES_MAX / 2000);
    }
}
