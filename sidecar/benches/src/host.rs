//! Steal time: while the host of a virtual machine runs other guests, measurements here are invalid.

use anyhow::Context;

use crate::server::{OTHER_CORE, SERVER_CORE};

/// Time of the two measured cores since they started, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticks {
    all: u64,
    /// Ticks in which the host ran another guest although a core here had work.
    stolen: u64,
}

impl Ticks {
    /// Reads the current ticks.
    ///
    /// # Errors
    /// `/proc/stat` cannot be read, or lacks the fields of a core.
    pub fn now() -> anyhow::Result<Self> {
        let stat = std::fs::read_to_string("/proc/stat")?;
        Self::of(&stat)
            .context("/proc/stat lacks the times of core 0 or core 1: run the measurement on a machine with two cores")
    }

    /// Parses the cores' lines of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq and steal. The fields
    /// behind these are part of the first two (`proc_stat(5)`).
    fn of(stat: &str) -> Option<Self> {
        let (mut all, mut stolen) = (0, 0);
        for core in [SERVER_CORE, OTHER_CORE] {
            let line = stat.lines().find_map(|line| line.strip_prefix(&format!("cpu{core} ")))?;
            let fields: Vec<u64> = line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
            all += fields.iter().sum::<u64>();
            stolen += fields.get(7)?;
        }
        Some(Self { all, stolen })
    }

    /// Fraction of the time from `self` to `later` that the host took.
    #[must_use]
    pub fn stolen_until(self, later: Self) -> f64 {
        let (stolen, all) = (later.stolen.saturating_sub(self.stolen), later.all.saturating_sub(self.all));
        if all == 0 { 0.0 } else { stolen as f64 / all as f64 }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn stolen_time_is_fraction_of_time_of_both_cores() {
        let before = Ticks { all: 1500, stolen: 21 };
        let after = Ticks { all: 1600, stolen: 46 };
        let others = "cpu  1 2 3 4 5 6 7 8 0 0\ncpu10 1 2 3 4 5 6 7 8 0 0\n";
        let stat = |[one, two]: [&str; 2]| Ticks::of(&format!("{others}cpu0 {one}\ncpu1 {two}\nintr 1 2\n"));
        let core = "100 0 50 329 0 0 20 1 70 0";
        assert_eq!(stat(["100 0 50 800 10 0 20 20 70 0", core]), Some(before));
        assert_eq!(stat(["100 0 50 875 10 0 20 45 99 0", core]), Some(after));
        assert_eq!(before.stolen_until(after), 0.25);
        assert_eq!(before.stolen_until(before), 0.0);
        assert_eq!(stat(["1 2 3 4 5 6 7 8", "1 2 3 4 5 6 7"]), None);
        assert_eq!(Ticks::of(others), None);
    }

    #[test]
    fn ticks_of_this_machine_increase() -> anyhow::Result<()> {
        let before = Ticks::now()?;
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut after = before;
        while after.all == before.all && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
            after = Ticks::now()?;
        }
        assert!(after.all > before.all && after.stolen >= before.stolen, "{before:?} {after:?}");
        assert!((0.0..=1.0).contains(&before.stolen_until(after)), "{before:?} {after:?}");
        Ok(())
    }
}
