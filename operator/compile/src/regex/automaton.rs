//! Compiles a pattern to a deterministic automaton, if the pattern is regular and the automaton is small.

use std::collections::HashMap;

use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_syntax::hir::{Class, Hir, Look, Repetition};

use super::determinize::{Table, determinize};
use super::minimize::minimize;
use super::node::{Assertion, Mode, Node};
use super::step_budget::StepBudget;

/// Maximum size of an automaton in bytes. Several must fit into one object beside other content.
const LARGEST: usize = 96 * 1024;

/// Maximum size in bytes of the nondeterministic automaton that precedes it.
const LARGEST_WHILE_BUILT: usize = 1 << 20;

/// Returns the automaton of a pattern, of at most `bytes_left` bytes. `None` if the pattern is not regular, its automaton is
/// larger, or the budget has too few steps.
pub(super) fn build(node: &Node, bytes_left: usize, budget: &mut StepBudget) -> Option<Vec<u8>> {
    let hir = regular(node, true, budget)?;
    let config = thompson::Config::new()
        .nfa_size_limit(Some(LARGEST_WHILE_BUILT))
        .which_captures(WhichCaptures::None)
        .shrink(false);
    // The size of the result bounds the work, so the steps for the maximum size are taken in advance.
    budget.take(LARGEST_WHILE_BUILT / 16).ok()?;
    let nfa = thompson::Compiler::new().configure(config).build_from_hir(&hir).ok()?;
    let table = minimize(&determinize(&nfa, budget)?, budget)?;
    write(&table, bytes_left.min(LARGEST), budget)
}

/// Translates the pattern to a regular one. `is_last` is true if no consuming node follows.
fn regular(node: &Node, is_last: bool, budget: &mut StepBudget) -> Option<Hir> {
    budget.take(1).ok()?;
    Some(match node {
        Node::Set(class) => {
            budget.take(class.ranges().len()).ok()?;
            Hir::class(Class::Unicode((**class).clone()))
        }
        Node::Assert(Assertion::Start) => Hir::look(Look::Start),
        Node::Assert(Assertion::End) => Hir::look(Look::End),
        Node::Assert(Assertion::LineStart) => Hir::look(Look::StartLF),
        Node::Assert(Assertion::LineEnd) => Hir::look(Look::EndLF),
        // Without a consuming node after it, consuming the newline is equivalent to looking ahead for it.
        Node::Assert(Assertion::EndOrNewline) if is_last => {
            Hir::alternation(vec![Hir::look(Look::End), Hir::concat(vec![Hir::literal(*b"\n"), Hir::look(Look::End)])])
        }
        Node::Concat(nodes) => {
            let last = nodes.len().saturating_sub(1);
            Hir::concat(
                nodes
                    .iter()
                    .enumerate()
                    .map(|(at, node)| regular(node, is_last && at == last, budget))
                    .collect::<Option<_>>()?,
            )
        }
        Node::Alternate(nodes) => {
            // A union of sets is made one set after the other.
            let mut united = 0;
            for node in nodes {
                if let Node::Set(class) = node {
                    united += class.ranges().len();
                    budget.take(united).ok()?;
                }
            }
            Hir::alternation(nodes.iter().map(|node| regular(node, is_last, budget)).collect::<Option<_>>()?)
        }
        Node::Repeat { node, min, max, mode: Mode::Greedy | Mode::Lazy } => {
            let sub = regular(node, is_last && max.is_some_and(|max| max <= 1), budget)?;
            Hir::repetition(Repetition { min: *min, max: *max, greedy: true, sub: Box::new(sub) })
        }
        Node::Group { node, .. } => regular(node, is_last, budget)?,
        _ => return None,
    })
}

/// Writes a table in the snapshot's format. Classes with equal columns are merged.
fn write(table: &Table, most: usize, budget: &mut StepBudget) -> Option<Vec<u8>> {
    budget.take(table.next.len()).ok()?;
    let states = table.states();
    let column = |class: usize| -> Option<Vec<u16>> {
        table.next.chunks_exact(table.width).map(|row| u16::try_from(*row.get(class)?).ok()).collect()
    };
    let (mut known, mut columns) = (HashMap::new(), Vec::new());
    let mut merged = Vec::with_capacity(table.width);
    let end = table.width.checked_sub(1)?;
    for class in 0..end {
        let column = column(class)?;
        merged.push(*known.entry(column.clone()).or_insert_with(|| {
            columns.push(column);
            columns.len() - 1
        }));
    }
    columns.push(column(end)?);
    if remora_snapshot::automaton::size(states, columns.len()) > most {
        return None;
    }
    let mut classes = [0; 256];
    for (class, of) in classes.iter_mut().zip(&table.classes) {
        *class = u8::try_from(*merged.get(usize::from(*of))?).ok()?;
    }
    let rows: Vec<Vec<u16>> = (0..states)
        .map(|state| columns.iter().map(|column| column.get(state).copied()).collect())
        .collect::<Option<_>>()?;
    let (start, accepting) = (table.start, u32::try_from(states - 1).ok()?);
    Some(remora_snapshot::automaton::write(&classes, start, accepting, &rows))
}
