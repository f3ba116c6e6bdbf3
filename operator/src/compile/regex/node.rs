//! A pattern as a tree.

use std::sync::Arc;

use regex_syntax::hir::ClassUnicode;

/// A part of a pattern.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    /// One character of the set.
    Set(Arc<ClassUnicode>),
    /// A place, nothing consumed.
    At(Place),
    /// One after another; none: the empty text.
    Concat(Vec<Node>),
    /// The first that leads to a match.
    Alternate(Vec<Node>),
    /// Again and again.
    Repeat { node: Box<Node>, min: u32, max: Option<u32>, mode: Mode },
    /// Keeps what it matches.
    Group { number: u32, node: Box<Node> },
    /// Matches from here, or up to here, or must not.
    Look { behind: bool, negated: bool, node: Box<Node> },
    /// Matches once, and is not tried again.
    Atomic(Box<Node>),
    /// What a group matched, and the width of that group.
    Backreference { group: u32, width: Option<(u64, u64)>, ignore_case: bool },
    /// One of two, by whether a group has matched.
    Conditional { group: u32, yes: Box<Node>, no: Box<Node> },
}

/// A place in the text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Place {
    Start,
    End,
    EndOrNewline,
    LineStart,
    LineEnd,
    /// Between a character of the set and one outside.
    Boundary(Arc<ClassUnicode>),
    NoBoundary(Arc<ClassUnicode>),
}

/// How a repetition goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Greedy,
    Lazy,
    Possessive,
}

impl Node {
    /// The least and the most characters that it consumes; `None`: no bound that can be told.
    pub(super) fn width(&self) -> Option<(u64, u64)> {
        match self {
            Self::Set(_) => Some((1, 1)),
            Self::At(_) | Self::Look { .. } => Some((0, 0)),
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

    /// Number of nodes, this one included.
    pub(super) fn size(&self) -> usize {
        1 + match self {
            Self::Set(_) | Self::At(_) | Self::Backreference { .. } => 0,
            Self::Concat(nodes) | Self::Alternate(nodes) => nodes.iter().map(Self::size).sum(),
            Self::Repeat { node, .. } | Self::Group { node, .. } | Self::Look { node, .. } | Self::Atomic(node) => {
                node.size()
            }
            Self::Conditional { yes, no, .. } => yes.size() + no.size(),
        }
    }

    /// Is it the empty text and nothing else?
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Concat(nodes) if nodes.is_empty())
    }

    /// Can it match without consuming anything?
    pub(super) fn can_be_empty(&self) -> bool {
        match self {
            Self::Set(_) => false,
            Self::At(_) | Self::Look { .. } | Self::Backreference { .. } => true,
            Self::Concat(nodes) => nodes.iter().all(Self::can_be_empty),
            Self::Alternate(nodes) => nodes.iter().any(Self::can_be_empty),
            Self::Repeat { node, min, .. } => *min == 0 || node.can_be_empty(),
            Self::Group { node, .. } | Self::Atomic(node) => node.can_be_empty(),
            Self::Conditional { yes, no, .. } => yes.can_be_empty() || no.can_be_empty(),
        }
    }
}
