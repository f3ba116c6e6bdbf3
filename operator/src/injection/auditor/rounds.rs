//! Orders pods in rounds. Pure.

use std::{collections::BTreeMap, vec::IntoIter};

use super::candidates::Candidate;

/// Pods of one namespace, in the order of their turns.
pub(super) type Pods = IntoIter<Candidate>;

/// Divides pods by their namespaces.
pub(super) fn by_namespace(pods: impl IntoIterator<Item = Candidate>) -> BTreeMap<String, Vec<Candidate>> {
    let mut namespaces: BTreeMap<String, Vec<Candidate>> = BTreeMap::new();
    for pod in pods {
        namespaces.entry(pod.namespace.clone()).or_default().push(pod);
    }
    namespaces
}

/// Returns at most `most` of the pods: in each round one of each namespace, so that many pods of one namespace keep those of
/// no other waiting.
pub(super) fn in_rounds(mut namespaces: Vec<Pods>, most: usize) -> Vec<Candidate> {
    let mut ordered = Vec::new();
    while ordered.len() < most {
        let round: Vec<Candidate> = namespaces.iter_mut().filter_map(Iterator::next).collect();
        if round.is_empty() {
            break;
        }
        ordered.extend(round);
    }
    ordered.truncate(most);
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_pods_of_one_namespace_keep_those_of_no_other_waiting() {
        let noisy = (0..10_000).map(|number| Candidate::named("noisy", &format!("n{number}")));
        let quiet = (0..3).map(|number| Candidate::named("quiet", &format!("q{number}")));
        let namespaces = by_namespace(noisy.chain(quiet)).into_values().map(Vec::into_iter).collect();
        let ordered = in_rounds(namespaces, 8);
        let names: Vec<&str> = ordered.iter().map(|pod| pod.name.as_str()).collect();
        assert_eq!(names, ["n0", "q0", "n1", "q1", "n2", "q2", "n3", "n4"]);
    }
}
