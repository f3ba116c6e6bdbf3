//! Syntax tree of a pattern.

use std::sync::Arc;

use regex_syntax::hir::ClassUnicode;
use remora_snapshot::backtrack::Case;

/// Part of a pattern.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    /// Matches one character of the set.
    Set(Arc<ClassUnicode>),
    /// Asserts a place and consumes nothing.
    Assert(Assertion),
    /// Matches the nodes one after another. Without nodes, it matches the empty text.
    Concat(Vec<Node>),
    /// Matches the first alternative that leads to a match.
    Alternate(Vec<Node>),
    /// Matches a node repeatedly.
    Repeat { node: Box<Node>, min: u32, max: Option<u32>, mode: Mode },
    /// Captures the match of its node.
    Group { number: u32, node: Box<Node> },
    /// Looks ahead or behind, possibly negated, and consumes nothing.
    Look { behind: bool, negated: bool, node: Box<Node> },
    /// Atomic group: matches its node once, without backtracking into it.
    Atomic(Box<Node>),
    /// Matches the text that a group captured. `width` is that group's width.
    Backreference { group: u32, width: Option<(u64, u64)>, case: Case },
    /// Matches one of two nodes, depending on whether a group has matched.
    Conditional { group: u32, yes: Box<Node>, no: Box<Node> },
}

/// Assertion in the text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Assertion {
    Start,
    End,
    EndOrNewline,
    LineStart,
    LineEnd,
    /// Assertion between a character of the set and one outside of it.
    Boundary(Arc<ClassUnicode>),
    NoBoundary(Arc<ClassUnicode>),
}

/// Order in which a repetition tries its counts, and whether it backtracks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Greedy,
    Lazy,
    Possessive,
}

impl Node {
    /// Returns the minimum and maximum number of characters that the node consumes. `None` if no bound is known.
    pub(super) fn width(&self) -> Option<(u64, u64)> {
        match self {
            Self::Set(_) => Some((1, 1)),
            Self::Assert(_) | Self::Look { .. } => Some((0, 0)),
            Self::Concat(nodes) => nodes.iter().try_fold((0_u64, 0_u64), |(min, max), node| {
                let (least, most) = node.width()?;
                Some((min.checked_add(least)?, max.checked_add(most)?))
            }),
            Self::Alternate(nodes) => {
                let widths: Option<Vec<_>> = nodes.iter().map(Self::width).collect();
                let widths = widths?;
                Some((widths.iter().map(|(min, _)| *min).min()?, widths.iter().map(|(_, max)| *max).max()?))
            }
            Self::Repeat { node, min, max, .. } => {
                let (least, most) = node.width()?;
                let most = if most == 0 { 0 } else { most.checked_mul(u64::from((*max)?))? };
                Some((least.checked_mul(u64::from(*min))?, most))
            }
            Self::Group { node, .. } | Self::Atomic(node) => node.width(),
            Self::Backreference { width, .. } => *width,
            Self::Conditional { yes, no, .. } => {
                let ((a, b), (c, d)) = (yes.width()?, no.width()?);
                Some((a.min(c), b.max(d)))
            }
        }
    }

    /// Returns the number of nodes, including this one.
    pub(super) fn size(&self) -> usize {
        1 + match self {
            Self::Set(_) | Self::Assert(_) | Self::Backreference { .. } => 0,
            Self::Concat(nodes) | Self::Alternate(nodes) => nodes.iter().map(Self::size).sum(),
            Self::Repeat { node, .. } | Self::Group { node, .. } | Self::Look { node, .. } | Self::Atomic(node) => {
                node.size()
            }
            Self::Conditional { yes, no, .. } => yes.size() + no.size(),
        }
    }

    /// Returns true if the node matches the empty text only.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Concat(nodes) if nodes.is_empty())
    }

    /// Returns true if the node can match without consuming a character.
    pub(super) fn can_be_empty(&self) -> bool {
        match self {
            Self::Set(_) => false,
            Self::Assert(_) | Self::Look { .. } | Self::Backreference { .. } => true,
            Self::Concat(nodes) => nodes.iter().all(Self::can_be_empty),
            Self::Alternate(nodes) => nodes.iter().any(Self::can_be_empty),
            Self::Repeat { node, min, .. } => *min == 0 || node.can_be_empty(),
            Self::Group { node, .. } | Self::Atomic(node) => node.can_be_empty(),
            Self::Conditional { yes, no, .. } => yes.can_be_empty() || no.can_be_empty(),
        }
    }
}
