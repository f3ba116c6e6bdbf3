//! Flag uses that SDKs report: counts by the flag's name, every few seconds.
//!
//! The names come from clients. So the sidecar keeps only names of the environment's own features, never more of them
//! than it has features, and counts all others together.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use remora_snapshot::{Budget, Snapshot};

use crate::identities::{Complaint, Place, Refused};
use crate::json::{Reader, Value};

/// Counts of the uses of an environment's flags.
#[derive(Debug, Default)]
pub(crate) struct Uses(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    known: BTreeMap<String, u64>,
    other: u64,
}

impl Uses {
    /// Calls `with` for every flag that was used.
    pub(crate) fn each(&self, mut with: impl FnMut(&str, u64)) {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.known.iter().for_each(|(flag, count)| with(flag, *count));
    }

    /// Number of uses of flags that do not exist.
    pub(crate) fn other(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).other
    }
}

impl Counts {
    fn add<B: AsRef<[u8]>>(&mut self, flag: &str, uses: u64, snapshot: &Snapshot<B>, budget: &Budget) {
        if let Some(count) = self.known.get_mut(flag) {
            *count = count.saturating_add(uses);
        } else if snapshot.has_feature(flag, budget) {
            self.known.insert(flag.to_owned(), uses);
            if self.known.len() > snapshot.features() {
                // Some names belong to features that were removed and are not counted any more.
                self.known.retain(|flag, _| snapshot.has_feature(flag, &Budget::default()));
            }
        } else {
            self.other = self.other.saturating_add(uses);
        }
    }
}

/// Reads a body, an object of counts by name, and adds the counts. A body that is refused adds nothing.
pub(crate) fn read<B: AsRef<[u8]>>(body: &[u8], snapshot: &Snapshot<B>, uses: &Uses) -> Result<(), Refused> {
    // Two passes, because an error at the end of the body must be found before its beginning is counted.
    pass(body, |_, _| {})?;
    let mut counts = uses.0.lock().unwrap_or_else(PoisonError::into_inner);
    let budget = Budget::default();
    pass(body, |flag, count| counts.add(flag, count, snapshot, &budget))
}

fn pass(body: &[u8], mut with: impl FnMut(&str, u64)) -> Result<(), Refused> {
    let mut reader = Reader::new(body)?;
    let mut scratch = String::new();
    let Some(mut members) = reader.enter_object() else {
        reader.value()?;
        return Err(Refused::Invalid(Place::Body, Complaint::NotAnObject));
    };
    while let Some(flag) = reader.next_member(&mut members)? {
        // A value that is not a count is skipped, as Flagsmith's API skips unknown names.
        if let Value::Integer(digits) = reader.value()?
            && let Ok(count) = digits.parse()
        {
            with(flag.decode(&mut scratch), count);
        }
    }
    reader.finish()?;
    Ok(())
}
