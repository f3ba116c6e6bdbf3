//! Character sets that a pattern spells out: single characters, and `[...]`.

use std::sync::Arc;

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use super::case;
use super::error::PatternError;
use super::escape::{self, Member};
use super::source::{Flags, Source};
use super::step_budget::StepBudget;

/// Returns the class that a single written character matches.
pub(super) fn literal(c: char, flags: Flags) -> Arc<ClassUnicode> {
    Arc::new(if flags.ignore_case { case::fold_one(c, flags.ascii) } else { case::one(c) })
}

/// Parses a set after its opening bracket.
///
/// # Errors
/// Python refuses the set, it contains an unsupported escape, or the budget has too few steps.
pub(super) fn read(
    source: &mut Source<'_>,
    flags: Flags,
    budget: &mut StepBudget,
) -> Result<Arc<ClassUnicode>, PatternError> {
    let unterminated = || "has a set [ that is not closed".to_owned();
    let negated = source.next_if(|c| c == '^').is_some();
    let mut content = Content::default();
    let mut is_first = true;
    loop {
        let low = match source.next().ok_or_else(unterminated)? {
            ']' if !is_first => break,
            '\\' => escape::inside(source, flags.ascii)?,
            c => Member::Character(c),
        };
        is_first = false;
        if source.next_if(|c| c == '-').is_none() {
            content.add(low);
            continue;
        }
        let high = match source.next().ok_or_else(unterminated)? {
            ']' => {
                content.add(low);
                content.add(Member::Character('-'));
                break;
            }
            '\\' => escape::inside(source, flags.ascii)?,
            c => Member::Character(c),
        };
        match (low, high) {
            (Member::Character(low), Member::Character(high)) if low <= high => {
                content.written.push(ClassUnicodeRange::new(low, high));
            }
            (Member::Character(_), Member::Character(_)) => return Err("has a range that runs backwards".into()),
            _ => return Err("has a range from or to a class".into()),
        }
    }
    let mut classes = ClassUnicode::empty();
    for class in &content.classes {
        // The union may be smaller than what it is made of.
        budget.take(classes.ranges().len() + class.ranges().len())?;
        classes.union(class);
    }
    let mut set = ClassUnicode::new(content.written);
    budget.take(set.ranges().len() + classes.ranges().len())?;
    let folded = if flags.ignore_case { case::fold(&set, &classes, flags.ascii, budget)? } else { None };
    match folded {
        Some(folded) => set = folded,
        None => set.union(&classes),
    }
    if negated {
        set.negate();
    }
    Ok(Arc::new(set))
}

/// Content between the brackets.
#[derive(Default)]
struct Content {
    written: Vec<ClassUnicodeRange>,
    /// Distinct classes.
    classes: Vec<Arc<ClassUnicode>>,
}

impl Content {
    fn add(&mut self, member: Member) {
        match member {
            Member::Character(c) => self.written.push(ClassUnicodeRange::new(c, c)),
            Member::Class(class) if self.classes.iter().any(|known| Arc::ptr_eq(known, &class)) => {}
            Member::Class(class) => self.classes.push(class),
        }
    }
}
