//! The conditions of a segment.
//!
//! Every one of them is evaluated on every request: a segment is one `ALL` rule, the traits of the request satisfy all
//! of its conditions but the last one, and the last one is of the kind that an evaluator which sorts by cost would ask
//! last, too. In segments that are made to match, the last one holds as well. Their kinds follow what environments have
//! most of: equality and lists first, comparisons next, patterns and percentages seldom.

/// Operator, property and value.
pub type Condition = (&'static str, &'static str, &'static str);

/// True for [`crate::request::TRAITS`], and no dearer than a list.
const TRUE: [Condition; 14] = [
    ("EQUAL", "plan", "scale-up"),
    ("IN", "country", "AT,BE,CH,DE,DK,ES,FR,IT,NL,NO,PL,PT,SE"),
    ("GREATER_THAN_INCLUSIVE", "age", "18"),
    ("EQUAL", "beta", "true"),
    ("NOT_EQUAL", "plan", "free"),
    ("LESS_THAN", "age", "65"),
    ("GREATER_THAN", "spend", "999.99"),
    ("IS_SET", "email", ""),
    ("GREATER_THAN_INCLUSIVE", "app_version", "3.9.0:semver"),
    ("NOT_EQUAL", "country", "US"),
    ("MODULO", "account", "7|4"),
    ("LESS_THAN_INCLUSIVE", "spend", "25000"),
    ("IN", "plan", "team,scale-up,enterprise"),
    ("IS_NOT_SET", "banned", ""),
];

/// What a segment ends with where it does not hold: a list, a substring or a pattern that is not the caller's.
const ALMOST: [Condition; 3] = [
    ("IN", "account", "11,4821,48214,148213,90001,73,5,482131"),
    ("CONTAINS", "email", "@competitor."),
    ("REGEX", "email", r"[a-z0-9._+-]+@(partners|staff)\.example$"),
];

/// What a segment ends with where it holds: a hash of segment and identity, which is below 100 for everybody.
const SURELY: Condition = ("PERCENTAGE_SPLIT", "", "100");

/// The conditions of one segment, the last one being its verdict.
pub fn of_segment(segment: usize, count: usize, holds: bool) -> impl Iterator<Item = Condition> {
    let last = if holds { SURELY } else { ALMOST.get(segment % ALMOST.len()).copied().unwrap_or(SURELY) };
    TRUE.iter().copied().cycle().skip(segment % TRUE.len()).take(count.saturating_sub(1)).chain([last])
}
