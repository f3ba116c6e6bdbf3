//! Plans: the faults of one run of a scenario. A plan is written as one word, which replays it.

use std::{fmt, str::FromStr};

/// Fate of a write of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The process ends before the write.
    Before,
    /// The process ends after the write.
    After,
    /// The process ends before the write, and the next one starts only after the next step of the script.
    BeforeAway,
    /// The process ends after the write, and the next one starts only after the next step of the script.
    AfterAway,
    /// The write happens, and the process gets an error in place of the answer.
    Lost,
    /// The write does not happen, and the process gets an error.
    Refused,
    /// The process loses its lease. Its write is on the way, and happens after this many writes of the next process, or
    /// when that process has nothing more to do after the next step of the script.
    Late(usize),
    /// The process is stopped between the check of its fence and the write, so that it loses its lease without noticing.
    /// After this many writes of the next process, or when that process rests, this write happens, and the process goes on.
    Overlap(usize),
    /// Like `Overlap`, but the process stops before the check of its fence.
    Paused(usize),
    /// Like `Paused`, but the next process ends in good order first, so that nobody holds the lease when this one goes on.
    Handback(usize),
    /// Like `Overlap`, but the clock of the fence stands still meanwhile, so that the fence is none: both processes write
    /// until the reconciliation ends.
    Unfenced(usize),
    /// The clock of the process jumps forward by an hour before the check of its fence.
    Jump,
    /// From this write on, all requests about the Lease fail, and each write takes seconds.
    Unrenewed,
    /// Before this write, all connections of the process to the API server break.
    Partitioned,
    /// Before this write, somebody deletes the Lease. A standby waits for it.
    Deleted,
}

/// Way in which a controller process sees changes of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// Events arrive one by one, each when the process has nothing more to do.
    Lags,
    /// The watches break before each reconciliation: the process lists again.
    Relists,
    /// The first lists of published objects, pods and environments are this many changes old. Events arrive when the
    /// process has nothing to do.
    Stale(usize),
    /// Only the last of several changes of an object arrives, when the process has nothing more to do.
    Skips,
    /// Like `Lags`, but changes of different objects arrive in another order.
    Swaps,
    /// Like `Lags`, but a third of the events is lost, until the watches break and the process lists again.
    Drops,
}

/// One fault of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The fate of the write with this number, from 1.
    Write(usize, Fate),
    /// The way in which the process with this number, from 1, sees changes.
    Process(usize, Sight),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) faults: Vec<Fault>,
    /// Seed of everything random: waits of the controller, and the kubelet that lags.
    pub(super) seed: u64,
}

impl Plan {
    pub(super) fn of(faults: impl IntoIterator<Item = Fault>) -> Self {
        Self { faults: faults.into_iter().collect(), seed: 0 }
    }

    pub(super) fn fate(&self, write: usize) -> Option<Fate> {
        self.faults.iter().find_map(|fault| match fault {
            Fault::Write(number, fate) if *number == write => Some(*fate),
            _ => None,
        })
    }

    pub(super) fn sight(&self, process: usize) -> Option<Sight> {
        self.faults.iter().find_map(|fault| match fault {
            Fault::Process(number, sight) if *number == process => Some(*sight),
            _ => None,
        })
    }

    /// True if several writes may fail for a process that goes on. A copy of an earlier revision is written twice, and no
    /// third time, because the next revision matters more.
    pub(super) fn fails_writes(&self) -> bool {
        let failures = |fault: &Fault| match fault {
            Fault::Write(_, Fate::Lost | Fate::Refused) => 1,
            // A write of each process may conflict with one of the other process.
            Fault::Write(_, Fate::Overlap(_) | Fate::Unfenced(_)) => 2,
            // The process goes on until it notices that its lease is lost.
            Fault::Write(_, Fate::Paused(_) | Fate::Handback(_) | Fate::Jump | Fate::Unrenewed | Fate::Partitioned) => {
                2
            }
            _ => 0,
        };
        self.faults.iter().map(failures).sum::<usize>() > 1
    }

    /// True if all faults concern what a process sees while it runs. No write may be repeated then.
    pub(super) fn only_disturbs_watches(&self) -> bool {
        self.faults.iter().all(|fault| matches!(fault, Fault::Process(_, sight) if !matches!(sight, Sight::Stale(_))))
    }

    /// True if a change of the environment may arrive after later changes of other objects.
    pub(super) fn delays_environment(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault, Fault::Process(_, Sight::Swaps | Sight::Drops)))
    }

    /// True if a process without a fence and a further fault come together.
    pub(super) fn is_unfenced_with_others(&self) -> bool {
        self.faults.len() > 1 && self.faults.iter().any(|fault| matches!(fault, Fault::Write(_, Fate::Unfenced(_))))
    }

    /// True if a standby waits for the lease from the start.
    pub(super) fn has_standby(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault, Fault::Write(_, Fate::Deleted)))
    }

    /// True if a step of the script may pass without a controller.
    pub(super) fn skips_steps(&self) -> bool {
        let is_away = |fault: &Fault| matches!(fault, Fault::Write(_, Fate::BeforeAway | Fate::AfterAway));
        self.faults.iter().any(is_away)
    }
}

impl Fault {
    /// Returns the name of the fault without its numbers.
    pub(super) fn kind(&self) -> String {
        let text = self.to_string();
        let (_, what) = text.split_once('=').unwrap_or_default();
        what.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(number, fate) => match fate {
                Fate::Before => write!(f, "w{number}=before"),
                Fate::After => write!(f, "w{number}=after"),
                Fate::BeforeAway => write!(f, "w{number}=before-away"),
                Fate::AfterAway => write!(f, "w{number}=after-away"),
                Fate::Lost => write!(f, "w{number}=lost"),
                Fate::Refused => write!(f, "w{number}=refused"),
                Fate::Late(writes) => write!(f, "w{number}=late{writes}"),
                Fate::Overlap(writes) => write!(f, "w{number}=overlap{writes}"),
                Fate::Paused(writes) => write!(f, "w{number}=paused{writes}"),
                Fate::Handback(writes) => write!(f, "w{number}=handback{writes}"),
                Fate::Unfenced(writes) => write!(f, "w{number}=unfenced{writes}"),
                Fate::Jump => write!(f, "w{number}=jump"),
                Fate::Unrenewed => write!(f, "w{number}=unrenewed"),
                Fate::Partitioned => write!(f, "w{number}=partitioned"),
                Fate::Deleted => write!(f, "w{number}=deleted"),
            },
            Self::Process(number, sight) => match sight {
                Sight::Lags => write!(f, "p{number}=lags"),
                Sight::Relists => write!(f, "p{number}=relists"),
                Sight::Stale(changes) => write!(f, "p{number}=stale{changes}"),
                Sight::Skips => write!(f, "p{number}=skips"),
                Sight::Swaps => write!(f, "p{number}=swaps"),
                Sight::Drops => write!(f, "p{number}=drops"),
            },
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no fault");
        let (subject, what) = text.split_once('=').ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<usize>().map_err(|_| wrong());
        if let Some(process) = subject.strip_prefix('p') {
            let sight = match what {
                "lags" => Sight::Lags,
                "relists" => Sight::Relists,
                "skips" => Sight::Skips,
                "swaps" => Sight::Swaps,
                "drops" => Sight::Drops,
                _ => Sight::Stale(number(what.strip_prefix("stale").ok_or_else(wrong)?)?),
            };
            return Ok(Self::Process(number(process)?, sight));
        }
        let write = number(subject.strip_prefix('w').ok_or_else(wrong)?)?;
        let fate = match what {
            "before" => Fate::Before,
            "after" => Fate::After,
            "before-away" => Fate::BeforeAway,
            "after-away" => Fate::AfterAway,
            "lost" => Fate::Lost,
            "refused" => Fate::Refused,
            "jump" => Fate::Jump,
            "unrenewed" => Fate::Unrenewed,
            "partitioned" => Fate::Partitioned,
            "deleted" => Fate::Deleted,
            _ => {
                let (what, writes) = what.split_at(what.find(|c: char| c.is_ascii_digit()).ok_or_else(wrong)?);
                match what {
                    "late" => Fate::Late(number(writes)?),
                    "overlap" => Fate::Overlap(number(writes)?),
                    "paused" => Fate::Paused(number(writes)?),
                    "handback" => Fate::Handback(number(writes)?),
                    "unfenced" => Fate::Unfenced(number(writes)?),
                    _ => return Err(wrong()),
                }
            }
        };
        Ok(Self::Write(write, fate))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<String> = self.faults.iter().map(Fault::to_string).collect();
        write!(f, "{}", faults.join(","))?;
        if self.seed > 0 { write!(f, "@{}", self.seed) } else { Ok(()) }
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (faults, seed) = text.split_once('@').unwrap_or((text, "0"));
        let faults = faults.split(',').filter(|fault| !fault.is_empty()).map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { faults, seed: seed.parse().map_err(|_| format!("{seed:?} is no seed"))? })
    }
}

#[test]
fn plan_is_read_from_its_own_text() {
    let fates = [
        Fate::Before,
        Fate::After,
        Fate::BeforeAway,
        Fate::AfterAway,
        Fate::Lost,
        Fate::Refused,
        Fate::Late(usize::MAX),
        Fate::Overlap(2),
        Fate::Paused(1),
        Fate::Handback(2),
        Fate::Unfenced(3),
        Fate::Jump,
        Fate::Unrenewed,
        Fate::Partitioned,
        Fate::Deleted,
    ];
    let sights = [Sight::Lags, Sight::Relists, Sight::Stale(7), Sight::Skips, Sight::Swaps, Sight::Drops];
    let faults = fates.into_iter().map(|fate| Fault::Write(3, fate));
    let plan = Plan { seed: 9, ..Plan::of(faults.chain(sights.into_iter().map(|sight| Fault::Process(2, sight)))) };
    assert_eq!(plan.to_string().parse(), Ok(plan));
    assert_eq!("".parse(), Ok(Plan::default()));
    assert!("w1=sometimes".parse::<Plan>().is_err());
}
