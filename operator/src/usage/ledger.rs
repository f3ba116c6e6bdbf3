//! Remembers what each sidecar has counted so far, and computes what is new. Pure, apart from the memory that it reserves.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::pending::COUNT_MAX;
use crate::memory::{OutOfMemory, Reserved, Share};
use crate::rollout::sidecar::Uses;

/// Estimated memory of a pod beside its counts, and of a name beside its text, in bytes.
const OVERHEAD: usize = 128;
/// Memory of a count in bytes.
const COUNT_BYTES: usize = size_of::<(Arc<str>, u64)>();
/// Largest number of counts of a pod, with those that its latest answer has left out.
const COUNTS_MAX: usize = 16 << 10;

/// The counts of all pods of an environment, as they were read last.
#[derive(Debug)]
pub(super) struct Ledger {
    memory: Arc<Share>,
    pods: HashMap<String, Counted>,
    names: HashMap<Arc<str>, Reserved>,
}

/// The counts of one process in a pod.
#[derive(Debug)]
struct Counted {
    process: String,
    /// Counts by name, sorted by name.
    counts: Vec<(Arc<str>, u64)>,
    memory: Reserved,
}

impl Ledger {
    /// Creates an empty ledger, which reserves its bytes in `memory`.
    pub(super) fn new(memory: Arc<Share>) -> Self {
        Self { memory, pods: HashMap::new(), names: HashMap::new() }
    }

    /// Takes the answer of a pod's sidecar, and calls `add` for each flag that was used since the answer before. With
    /// `is_young`, the process began after the collection did, so that an unknown process counts from zero; otherwise,
    /// its first answer is where it counts from.
    ///
    /// # Errors
    /// There is no memory to remember the answer. Then the answer before stays, and no use is lost.
    pub(super) fn take(
        &mut self,
        pod: &str,
        answer: Uses,
        is_young: bool,
        mut add: impl FnMut(&Arc<str>, u64),
    ) -> Result<(), OutOfMemory> {
        let before = self.pods.get(pod).filter(|before| before.process == answer.process);
        let before: &[(Arc<str>, u64)] = before.map(|before| before.counts.as_slice()).unwrap_or_default();
        let is_known = self.pods.get(pod).is_some_and(|before| before.process == answer.process);
        // Otherwise an answer without room would take the room of others until its names are forgotten.
        let unknown = answer.flags.iter().filter(|(name, _)| !self.names.contains_key(name.as_str()));
        let needed: usize = unknown.map(|(name, _)| OVERHEAD + name.len()).sum();
        let held = self.pods.get(pod).map_or(0, |before| before.memory.bytes());
        if !self.memory.has((needed + OVERHEAD + answer.flags.len() * COUNT_BYTES).saturating_sub(held)) {
            return Err(OutOfMemory);
        }
        let mut counts = Vec::with_capacity(before.len().max(answer.flags.len()));
        for (name, count) in answer.flags {
            counts.push((intern(&mut self.names, &self.memory, name)?, count));
        }
        counts.sort_unstable();
        counts.dedup_by(|next, kept| next.0 == kept.0);
        // The sidecar leaves out features that its snapshot does not have. If they come back, they count on from there.
        let find = |counts: &[(Arc<str>, u64)], name: &Arc<str>| {
            counts
                .binary_search_by(|(known, _)| known.cmp(name))
                .ok()
                .and_then(|place| counts.get(place))
                .map(|(_, count)| *count)
        };
        let missing = before.iter().filter(|(name, _)| find(&counts, name).is_none());
        // A pod may answer with other names each time.
        let missing: Vec<_> = missing.take(COUNTS_MAX.saturating_sub(counts.len())).cloned().collect();
        let bytes = OVERHEAD + (counts.len() + missing.len()) * COUNT_BYTES;
        let mut new = Vec::new();
        for (name, count) in &counts {
            let counted = find(before, name).unwrap_or_default();
            // A count below the one before has begun again at zero.
            let uses = if *count >= counted { count - counted } else { *count };
            if uses > 0 && (is_known || is_young) {
                // A pod may say anything, and sums of all pods must not overflow.
                new.push((Arc::clone(name), uses.min(COUNT_MAX)));
            }
        }
        counts.extend(missing);
        counts.sort_unstable();
        match self.pods.get_mut(pod) {
            Some(known) => {
                // The bytes of the answer before are part of those of the new one.
                known.memory.resize(bytes)?;
                (known.process, known.counts) = (answer.process, counts);
            }
            None => {
                let memory = self.memory.reserve(bytes)?;
                self.pods.insert(pod.to_owned(), Counted { process: answer.process, counts, memory });
            }
        }
        new.iter().for_each(|(name, uses)| add(name, *uses));
        Ok(())
    }

    /// Forgets the pods that are gone, and the names that nothing refers to any more.
    pub(super) fn retain(&mut self, pods: &HashSet<&str>) {
        self.pods.retain(|pod, _| pods.contains(pod.as_str()));
        self.names.retain(|name, _| Arc::strong_count(name) > 1);
    }
}

/// Returns the shared text of a name.
fn intern(names: &mut HashMap<Arc<str>, Reserved>, memory: &Arc<Share>, name: String) -> Result<Arc<str>, OutOfMemory> {
    if let Some((known, _)) = names.get_key_value(name.as_str()) {
        return Ok(Arc::clone(known));
    }
    let reserved = memory.reserve(OVERHEAD + name.len())?;
    let name: Arc<str> = name.into();
    names.insert(Arc::clone(&name), reserved);
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{memory::Memory, usage::BYTES_MAX};

    fn answer<const N: usize>(process: &str, flags: [(&str, u64); N]) -> Uses {
        let flags = flags.map(|(name, count)| (name.to_owned(), count)).into();
        Uses { process: process.to_owned(), age_ms: 0, flags }
    }

    fn ledger(bytes: usize) -> Ledger {
        Ledger::new(Memory::new(bytes).share("shop"))
    }

    fn take(ledger: &mut Ledger, answer: Uses, is_young: bool) -> Result<Vec<(String, u64)>, OutOfMemory> {
        let mut new = Vec::new();
        ledger.take("web-1", answer, is_young, |name, count| new.push((name.to_string(), count)))?;
        Ok(new)
    }

    fn new<const N: usize>(flags: [(&str, u64); N]) -> Result<Vec<(String, u64)>, OutOfMemory> {
        Ok(flags.map(|(name, count)| (name.to_owned(), count)).into())
    }

    #[test]
    fn difference_of_two_answers_is_new() {
        let mut ledger = ledger(BYTES_MAX);
        assert_eq!(take(&mut ledger, answer("a", [("x", 3)]), true), new([("x", 3)]));
        assert_eq!(take(&mut ledger, answer("a", [("x", 3)]), true), new([]));
        assert_eq!(take(&mut ledger, answer("a", [("y", 1), ("x", 5)]), false), new([("x", 2), ("y", 1)]));
    }

    #[test]
    fn old_process_counts_from_its_first_answer() {
        let mut ledger = ledger(BYTES_MAX);
        assert_eq!(take(&mut ledger, answer("a", [("x", 100)]), false), new([]));
        assert_eq!(take(&mut ledger, answer("a", [("x", 101), ("y", 7)]), false), new([("x", 1), ("y", 7)]));
    }

    #[test]
    fn uses_of_one_answer_are_bounded() {
        let mut ledger = ledger(BYTES_MAX);
        assert_eq!(take(&mut ledger, answer("a", [("x", u64::MAX)]), true), new([("x", COUNT_MAX)]));
        assert_eq!(take(&mut ledger, answer("b", [("x", u64::MAX - 1)]), true), new([("x", COUNT_MAX)]));
    }

    #[test]
    fn process_that_began_again_counts_from_zero() {
        let mut ledger = ledger(BYTES_MAX);
        take(&mut ledger, answer("a", [("x", 100)]), true).unwrap();
        assert_eq!(take(&mut ledger, answer("b", [("x", 120)]), true), new([("x", 120)]));
    }

    #[test]
    fn feature_that_comes_back_counts_on() {
        let mut ledger = ledger(BYTES_MAX);
        take(&mut ledger, answer("a", [("x", 100), ("y", 1)]), true).unwrap();
        assert_eq!(take(&mut ledger, answer("a", [("y", 1)]), true), new([]));
        assert_eq!(take(&mut ledger, answer("a", [("x", 103), ("y", 1)]), true), new([("x", 3)]));
        assert_eq!(take(&mut ledger, answer("a", [("x", 2)]), true), new([("x", 2)]), "a counter that began again");
    }

    #[test]
    fn answer_beyond_memory_is_refused_and_not_lost() {
        let mut ledger = ledger(700);
        assert_eq!(take(&mut ledger, answer("a", [("x", 1)]), true), new([("x", 1)]));
        let long = "n".repeat(400);
        assert_eq!(take(&mut ledger, answer("a", [("x", 2), (&long, 9)]), true), Err(OutOfMemory));
        assert_eq!(take(&mut ledger, answer("a", [("x", 3)]), true), new([("x", 2)]));
    }

    #[test]
    fn pod_that_answers_with_other_names_each_time_keeps_a_bounded_number() {
        let mut ledger = ledger(BYTES_MAX);
        let names = |round: usize| (0..COUNTS_MAX).map(|number| (format!("{round}-{number}"), 1)).collect();
        for round in 0..4 {
            let answer = Uses { process: "a".to_owned(), age_ms: 0, flags: names(round) };
            assert_eq!(take(&mut ledger, answer, true).unwrap().len(), COUNTS_MAX);
            ledger.retain(&HashSet::from(["web-1"]));
            assert_eq!((ledger.pods["web-1"].counts.len(), ledger.names.len()), (COUNTS_MAX, COUNTS_MAX));
        }
    }

    #[test]
    fn answer_takes_the_place_of_the_answer_before() {
        let flags: Vec<(String, u64)> = (0..100).map(|number| (format!("{number:03}"), 1)).collect();
        let answer = |count: u64| {
            let flags = flags.iter().map(|(name, _)| (name.clone(), count)).collect();
            Uses { process: "a".to_owned(), age_ms: 0, flags }
        };
        // The bytes of the names and of one answer.
        let mut ledger = ledger(100 * (OVERHEAD + 3) + OVERHEAD + 100 * COUNT_BYTES);
        for count in 1..4 {
            assert_eq!(take(&mut ledger, answer(count), true).unwrap().len(), 100);
        }
    }

    #[test]
    fn memory_of_pods_that_are_gone_returns() {
        let mut ledger = ledger(BYTES_MAX);
        take(&mut ledger, answer("a", [("x", 1)]), true).unwrap();
        assert!(!ledger.memory.has(BYTES_MAX));
        ledger.retain(&HashSet::from(["web-1"]));
        assert!(!ledger.memory.has(BYTES_MAX));
        ledger.retain(&HashSet::new());
        assert!(ledger.memory.has(BYTES_MAX));
    }
}
