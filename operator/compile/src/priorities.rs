//! Ranks the segment overrides of each feature. Of two overrides with equal priorities, the one that was created last
//! wins, as in Flagsmith's API.

use std::collections::HashMap;

use super::document::Document;

/// Position of an override: index of its segment, and index of the override in the segment.
type Position = (usize, usize);

/// An override with a priority: the priority, Flagsmith's id of the override, and the position.
type Prioritized = (f64, Option<i64>, Position);

/// Returns the rank of each override that has a priority, from 0 for the strongest override of a feature.
///
/// Flagsmith's ids tell which override was created last. An override without an id counts as the older one, and two of
/// them keep the order of the document, as in Flagsmith's engine.
pub(super) fn ranks(document: &Document) -> HashMap<Position, f64> {
    let mut features: HashMap<&str, Vec<Prioritized>> = HashMap::new();
    for (number, segment) in document.project.segments.iter().enumerate() {
        for (row, state) in segment.feature_states.iter().enumerate() {
            if let Some(priority) = state.feature_segment.as_ref().and_then(|own| own.priority.as_ref()) {
                let own = (priority.value + 0.0, state.django_id, (number, row)); // -0.0 is 0.0
                features.entry(&state.feature.name).or_default().push(own);
            }
        }
    }
    let mut ranks = HashMap::new();
    for mut overrides in features.into_values() {
        overrides.sort_by(|(priority, id, _), (other, other_id, _)| {
            priority.total_cmp(other).then(other_id.cmp(id)) // stable: equal ids keep the document's order
        });
        ranks.extend(overrides.into_iter().enumerate().map(|(rank, (.., position))| (position, rank as f64)));
    }
    ranks
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::document::parse;

    /// Ranks of the overrides of one feature, in the order of the document.
    fn ranked(overrides: &[(Value, Value)]) -> Vec<Option<f64>> {
        let segments: Vec<Value> = overrides
            .iter()
            .enumerate()
            .map(|(id, (priority, django_id))| {
                json!({"id": id, "name": "s", "feature_states": [{"feature": {"id": 1, "name": "f"}, "enabled": true,
                    "django_id": django_id, "feature_segment": {"priority": priority}}]})
            })
            .collect();
        let document = json!({"api_key": "k", "project": {"segments": segments}, "feature_states": []}).to_string();
        let ranks = ranks(&parse(document.as_bytes()).unwrap());
        (0..overrides.len()).map(|number| ranks.get(&(number, 0)).copied()).collect()
    }

    #[test]
    fn equal_priorities_rank_the_override_created_last_first() {
        let overrides = [(json!(1), json!(7)), (json!(1), json!(9)), (json!(0), json!(3)), (json!(1), json!(8))];
        assert_eq!(ranked(&overrides), [Some(3.0), Some(1.0), Some(0.0), Some(2.0)]);
    }

    #[test]
    fn equal_priorities_without_ids_keep_the_order_of_the_document() {
        let overrides =
            [(json!(1), json!(null)), (json!(1.0), json!(null)), (json!(1), json!(5)), (json!(null), json!(9))];
        assert_eq!(ranked(&overrides), [Some(1.0), Some(2.0), Some(0.0), None]);
    }
}
