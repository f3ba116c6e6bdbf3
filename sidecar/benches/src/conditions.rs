//! The conditions of a segment.
//!
//! Every request evaluates all of them: a segment is one `ALL` rule, the traits of the request satisfy all of its
//! conditions except the last one, and the last one is of a kind that an evaluator ordered by cost would also evaluate
//! last. In segments that are made to match, the last one matches as well. The kinds follow their frequency in real
//! environments: mostly equality and lists, then comparisons, seldom patterns and percentages. Each segment compares
//! with values of its own, so that the result of one seldom determines that of another.

/// A condition of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// One of Flagsmith's fourteen operators.
    pub operator: &'static str,
    /// Name of the trait.
    pub property: String,
    /// Value that the trait is compared with.
    pub value: String,
}

pub(crate) fn condition(operator: &'static str, property: &str, value: impl Into<String>) -> Condition {
    Condition { operator, property: property.to_owned(), value: value.into() }
}

/// Conditions that match [`crate::request::TRAITS`], none of which costs more than a list.
fn holds(segment: usize) -> Vec<Condition> {
    vec![
        condition("EQUAL", "plan", "scale-up"),
        condition("IN", "country", format!("AT,BE,CH,DE,DK,ES,FR,IT,NL,NO,PL,PT,Z{segment}")),
        condition("GREATER_THAN_INCLUSIVE", "age", (18 + segment % 15).to_string()),
        condition("EQUAL", "beta", "true"),
        condition("NOT_EQUAL", "plan", format!("free-{segment}")),
        condition("LESS_THAN", "age", (60 + segment).to_string()),
        condition("GREATER_THAN", "spend", format!("{}.99", 100 + 20 * segment)),
        condition("IS_SET", "email", ""),
        condition("GREATER_THAN_INCLUSIVE", "app_version", format!("3.{}.{segment}:semver", segment % 14)),
        condition("NOT_EQUAL", "country", format!("U{segment}")),
        condition("MODULO", "account", format!("{}|{}", 7 + segment, 48_213 % (7 + segment))),
        condition("LESS_THAN_INCLUSIVE", "spend", (25_000 + segment).to_string()),
        condition("IN", "plan", format!("team,scale-up,enterprise,pilot-{segment}")),
        condition("IS_NOT_SET", &format!("banned_{segment}"), ""),
    ]
}

/// Returns the last condition of a segment that does not match: a list, a substring or a pattern that differs from the
/// trait.
fn almost(segment: usize) -> Condition {
    match segment % 3 {
        0 => condition("IN", "account", format!("11,4821,48214,148213,90001,73,5,482131,{segment}")),
        1 => condition("CONTAINS", "email", format!("@competitor-{segment}.")),
        _ => condition("REGEX", "email", format!(r"[a-z0-9._+-]+@(partners|staff)-{segment}\.example$")),
    }
}

/// Returns the conditions of one segment, of which the last one decides. If the segment matches, that is a percentage
/// of 99.9, which nearly every identity passes; at 100, the hash would not have to be computed.
#[must_use]
pub fn of_segment(segment: usize, count: usize, matches: bool) -> Vec<Condition> {
    let last = if matches { condition("PERCENTAGE_SPLIT", "", "99.9") } else { almost(segment) };
    let holds = holds(segment);
    let start = segment % holds.len();
    holds.into_iter().cycle().skip(start).take(count.saturating_sub(1)).chain([last]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_end_with_what_decides_them() {
        for segment in 0..50 {
            assert_eq!(of_segment(segment, 15, true).last().map(|last| last.operator), Some("PERCENTAGE_SPLIT"));
            let almost = of_segment(segment, 10, false);
            assert_eq!(almost.len(), 10);
            assert!(almost.iter().rev().skip(1).all(|other| !["CONTAINS", "REGEX"].contains(&other.operator)));
        }
    }
}
