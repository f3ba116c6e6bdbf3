//! A pattern as a deterministic automaton, where it is regular and the automaton is small.

use std::collections::{BTreeMap, HashMap};

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_automata::{Anchored, MatchKind};
use regex_syntax::hir::{Class, Hir, Look, Repetition};

use super::node::{Mode, Node, Place};

/// The largest automaton: several must fit into one object beside everything else.
const LARGEST: usize = 96 * 1024;

/// While it is built it may be larger; minimizing makes it small.
const LARGEST_WHILE_BUILT: usize = 4 << 20;

/// The automaton of a pattern; `None` where it takes more than an automaton can do, or a larger one.
pub(super) fn build(node: &Node) -> Option<Vec<u8>> {
    let hir = regular(node, true)?;
    let nfa = thompson::Compiler::new()
        .configure(thompson::Config::new().nfa_size_limit(Some(LARGEST_WHILE_BUILT)).shrink(false))
        .build_from_hir(&hir)
        .ok()?;
    let config = dense::Config::new()
        .start_kind(StartKind::Anchored)
        .match_kind(MatchKind::LeftmostFirst)
        .accelerate(false)
        .minimize(true)
        .dfa_size_limit(Some(LARGEST_WHILE_BUILT))
        .determinize_size_limit(Some(LARGEST_WHILE_BUILT));
    let dfa = dense::Builder::new().configure(config).build_from_nfa(&nfa).ok()?;
    export(&dfa)
}

/// The pattern as a regular one. `is_last`: nothing that consumes comes behind it.
fn regular(node: &Node, is_last: bool) -> Option<Hir> {
    Some(match node {
        Node::Set(class) => Hir::class(Class::Unicode(class.clone())),
        Node::At(Place::Start) => Hir::look(Look::Start),
        Node::At(Place::End) => Hir::look(Look::End),
        Node::At(Place::LineStart) => Hir::look(Look::StartLF),
        Node::At(Place::LineEnd) => Hir::look(Look::EndLF),
        // Looking ahead for a newline is consuming it, if nothing comes behind.
        Node::At(Place::EndOrNewline) if is_last => {
            Hir::alternation(vec![Hir::look(Look::End), Hir::concat(vec![Hir::literal(*b"\n"), Hir::look(Look::End)])])
        }
        Node::Concat(nodes) => {
            let last = nodes.len().saturating_sub(1);
            Hir::concat(
                nodes
                    .iter()
                    .enumerate()
                    .map(|(at, node)| regular(node, is_last && at == last))
                    .collect::<Option<_>>()?,
            )
        }
        Node::Alternate(nodes) => {
            Hir::alternation(nodes.iter().map(|node| regular(node, is_last)).collect::<Option<_>>()?)
        }
        Node::Repeat { node, min, max, mode: Mode::Greedy | Mode::Lazy } => {
            let sub = regular(node, is_last && max.is_some_and(|max| max <= 1))?;
            Hir::repetition(Repetition { min: *min, max: *max, greedy: true, sub: Box::new(sub) })
        }
        Node::Group { node, .. } => regular(node, is_last)?,
        _ => return None,
    })
}

/// Walks through the automaton from its start and writes what was seen in the snapshot's format.
fn export(dfa: &dense::DFA<Vec<u32>>) -> Option<Vec<u8>> {
    let start = dfa.start_state(&start::Config::new().anchored(Anchored::Yes)).ok()?;
    let mut numbers: HashMap<StateID, usize> = HashMap::from([(start, 1)]);
    let mut states = vec![start];
    // By state: the next state for each byte, then for the end of the text.
    let mut rows: Vec<Vec<Target>> = Vec::new();
    let mut at = 0;
    while let Some(state) = states.get(at).copied() {
        let mut row = Vec::with_capacity(257);
        for byte in 0..=u8::MAX {
            row.push(target(dfa, dfa.next_state(state, byte), &mut numbers, &mut states)?);
        }
        row.push(target(dfa, dfa.next_eoi_state(state), &mut numbers, &mut states)?);
        rows.push(row);
        at += 1;
        if rows.len() > LARGEST / 4 {
            return None;
        }
    }
    // State 0 is dead, the last one matches.
    let accepting = u16::try_from(rows.len() + 1).ok()?;
    let number = |target: &Target| match target {
        Target::Dead => Some(0),
        Target::Match => Some(accepting),
        Target::State(number) => u16::try_from(*number).ok(),
    };
    let mut classes = [0_u8; 256];
    let mut columns: BTreeMap<Vec<u16>, u8> = BTreeMap::new();
    let mut representatives = Vec::new();
    for (byte, class) in classes.iter_mut().enumerate() {
        let column: Vec<u16> = rows.iter().map(|row| row.get(byte).and_then(number)).collect::<Option<_>>()?;
        let next = columns.len();
        *class = *columns.entry(column).or_insert_with(|| {
            representatives.push(byte);
            next as u8 // there are at most 256 columns
        });
    }
    representatives.push(256);
    let width = representatives.len();
    if (rows.len() + 2) * width * 2 > LARGEST {
        return None;
    }
    let mut table = vec![vec![0; width]];
    for row in &rows {
        table.push(representatives.iter().map(|byte| row.get(*byte).and_then(number)).collect::<Option<_>>()?);
    }
    table.push(vec![accepting; width]);
    Some(remora_snapshot::automaton::write(&classes, 1, u32::from(accepting), &table))
}

enum Target {
    Dead,
    Match,
    State(usize),
}

fn target(
    dfa: &dense::DFA<Vec<u32>>,
    state: StateID,
    numbers: &mut HashMap<StateID, usize>,
    states: &mut Vec<StateID>,
) -> Option<Target> {
    if dfa.is_quit_state(state) {
        return None;
    }
    Some(if dfa.is_dead_state(state) {
        Target::Dead
    } else if dfa.is_match_state(state) {
        Target::Match
    } else {
        let next = states.len() + 1;
        Target::State(*numbers.entry(state).or_insert_with(|| {
            states.push(state);
            next
        }))
    })
}
