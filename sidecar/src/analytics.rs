//! What SDKs tell of the flags that their application used: counts by name, every few seconds.
//!
//! Names come from outside, so only those of the environment's own features are kept, and their number is never larger
//! than that of the features; all others are counted together.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use remora_snapshot::{Budget, Snapshot};

use crate::identities::{Complaint, Place, Refused};
use crate::json::{Reader, Value};

/// How often the flags of an environment were used.
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

    /// How often flags that there are none of were used.
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
                // Some belong to features that are gone: nobody will count them again.
                self.known.retain(|flag, _| snapshot.has_feature(flag, &Budget::default()));
            }
        } else {
            self.other = self.other.saturating_add(uses);
        }
    }
}

/// Reads a body, an object of counts by name, and adds it; one that is refused counts nothing.
pub(crate) fn read<B: AsRef<[u8]>>(body: &[u8], snapshot: &Snapshot<B>, uses: &Uses) -> Result<(), Refused> {
    // Twice: what is wrong at the end must be known before the beginning counts.
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
        // What is no count is passed over, as Flagsmith's API does with names that it does not know.
        if let Value::Integer(digits) = reader.value()?
            && let Ok(count) = digits.parse()
        {
            with(flag.decode(&mut scratch), count);
        }
    }
    reader.finish()?;
    Ok(())
}
