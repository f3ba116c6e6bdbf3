//! Finds flags that depend on longer chains of flags than the evaluator follows.

use remora_snapshot::MAX_CHAIN;
use remora_snapshot::model::{Derivation, Environment, Rule};

/// Returns the message of the finding about such a feature.
pub(super) fn message() -> String {
    format!(
        "its segments depend on a chain of more than {MAX_CHAIN} flags, and flags beyond that count as not set; shorten the chain"
    )
}

/// Iterates over the names of the features whose chains can be longer than the evaluator follows.
///
/// The graph has one node per feature and one per segment. A feature leads to the segments that override it, a segment
/// to the features that its conditions read. Direct edges from each overridden feature to each feature read would be
/// as many as the product of the two.
pub(super) fn too_long(environment: &Environment) -> impl Iterator<Item = &str> {
    let depths = depths(&edges(environment), environment.features.len());
    let names = environment.features.iter().map(|feature| feature.name.as_str());
    names.zip(depths).filter(|(_, depth)| *depth > MAX_CHAIN).map(|(name, _)| name)
}

/// Returns the successors of each node, features first.
fn edges(environment: &Environment) -> Vec<Vec<usize>> {
    let features = environment.features.len();
    let mut edges = vec![Vec::new(); features + environment.segments.len()];
    for (number, segment) in environment.segments.iter().enumerate() {
        let mut read = Vec::new();
        collect(environment, &segment.rules, &mut read);
        read.sort_unstable();
        read.dedup();
        if read.is_empty() {
            continue;
        }
        for own in &segment.overrides {
            edges.get_mut(own.feature).into_iter().for_each(|to| to.push(features + number));
        }
        edges.get_mut(features + number).into_iter().for_each(|to| *to = std::mem::take(&mut read));
    }
    edges
}

fn collect(environment: &Environment, rules: &[Rule], read: &mut Vec<usize>) {
    for rule in rules {
        for condition in &rule.conditions {
            let property = environment.properties.get(condition.property);
            if let Some(Derivation::Flag { feature, .. }) = property.map(|property| &property.derivation) {
                read.push(*feature);
            }
        }
        collect(environment, &rule.rules, read);
    }
}

/// Returns for each node the maximum number of features in a chain from it. A chain may contain all features of a
/// cycle.
///
/// Tarjan's strongly connected components, without recursion: a component is complete after all components that it
/// leads to.
fn depths(edges: &[Vec<usize>], features: usize) -> Vec<usize> {
    const UNSEEN: usize = usize::MAX;
    let count = edges.len();
    let (mut order, mut low, mut depth) = (vec![UNSEEN; count], vec![0; count], vec![0; count]);
    let (mut open, mut is_open, mut seen) = (Vec::new(), vec![false; count], 0);
    for root in 0..count {
        if get(&order, root) != UNSEEN {
            continue;
        }
        // A node, and the number of its next edge.
        let mut path = vec![(root, 0)];
        while let Some((node, edge)) = path.last().copied() {
            if edge == 0 {
                set(&mut order, node, seen);
                set(&mut low, node, seen);
                seen += 1;
                open.push(node);
                set(&mut is_open, node, true);
            }
            if let Some(next) = edges.get(node).and_then(|to| to.get(edge)).copied() {
                if let Some((_, edge)) = path.last_mut() {
                    *edge += 1;
                }
                if get(&order, next) == UNSEEN {
                    path.push((next, 0));
                } else if get(&is_open, next) {
                    let lowest = get(&low, node).min(get(&order, next));
                    set(&mut low, node, lowest);
                }
                continue;
            }
            path.pop();
            if let Some((before, _)) = path.last() {
                let lowest = get(&low, *before).min(get(&low, node));
                set(&mut low, *before, lowest);
            }
            if get(&low, node) == get(&order, node) {
                let start = open.iter().rposition(|other| *other == node).unwrap_or(0);
                let component = open.split_off(start);
                component.iter().for_each(|node| set(&mut is_open, *node, false));
                let beyond = component.iter().filter_map(|node| edges.get(*node)).flatten();
                // The depths of the component itself are still 0.
                let beyond = beyond.map(|next| get(&depth, *next)).max().unwrap_or(0);
                let own = component.iter().filter(|node| **node < features).count();
                component.iter().for_each(|node| set(&mut depth, *node, beyond + own));
            }
        }
    }
    depth
}

fn get<T: Copy + Default>(list: &[T], at: usize) -> T {
    list.get(at).copied().unwrap_or_default()
}

fn set<T>(list: &mut [T], at: usize, value: T) {
    if let Some(place) = list.get_mut(at) {
        *place = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the depths of features. Feature `n` is overridden by one segment, which reads the features in
    /// `reads[n]`.
    fn of(reads: &[&[usize]]) -> Vec<usize> {
        let count = reads.len();
        let mut edges: Vec<Vec<usize>> = (0..count).map(|feature| vec![count + feature]).collect();
        edges.extend(reads.iter().map(|read| read.to_vec()));
        let mut depths = depths(&edges, count);
        depths.truncate(count);
        depths
    }

    #[test]
    fn depth_counts_features_of_longest_chain() {
        assert_eq!(of(&[&[], &[0], &[1, 0], &[]]), [1, 2, 3, 1]);
        assert_eq!(of(&[&[1], &[0], &[0], &[3]]), [2, 2, 3, 1]);
        assert_eq!(of(&[&[1], &[2], &[0, 3], &[]]), [4, 4, 4, 1]);
    }

    #[test]
    fn long_chain_does_not_overflow_stack() {
        let reads: Vec<Vec<usize>> = (0..200_000).map(|n| if n == 0 { Vec::new() } else { vec![n - 1] }).collect();
        let reads: Vec<&[usize]> = reads.iter().map(Vec::as_slice).collect();
        assert_eq!(of(&reads).last(), Some(&200_000));
    }
}
