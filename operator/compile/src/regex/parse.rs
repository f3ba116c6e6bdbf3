//! Parser of Python's syntax (the `re` module of 3.11).

use std::collections::HashMap;

use remora_snapshot::backtrack::Case;

use super::error::PatternError;
use super::node::{Assertion, Mode, Node};
use super::source::{Flags, Source, is_blank};
use super::step_budget::StepBudget;
use super::{class, escape, shorthand};

/// Maximum nesting depth of groups.
const DEEPEST: u32 = 60;

/// Syntax tree of a pattern, and its number of groups.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) node: Node,
    pub(super) groups: u32,
}

/// Parses a pattern.
///
/// # Errors
/// Python's `re.compile` would raise, the pattern uses an unsupported feature, or the budget has too few steps.
pub(super) fn parse(pattern: &str, budget: &mut StepBudget) -> Result<Parsed, PatternError> {
    budget.take(pattern.len())?;
    let mut parser = Parser {
        source: Source(pattern.chars()),
        budget,
        names: HashMap::new(),
        groups: 0,
        open: Vec::new(),
        widths: HashMap::new(),
        before_look_behind: None,
        highest_group: 0,
        depth: 0,
    };
    let mut flags = Flags::default();
    let mut all = String::new();
    loop {
        // Flags of the whole pattern are one or more groups at its start, with comments before and between them.
        let mut ahead = parser.source.clone();
        ahead.skip_comments(flags.verbose)?;
        if !ahead.take("(?") {
            break;
        }
        let letters: String = std::iter::from_fn(|| ahead.next_if(|c| c.is_ascii_alphabetic())).collect();
        if letters.is_empty() || letters.starts_with('P') || !ahead.take(")") {
            break;
        }
        parser.source = ahead;
        for letter in letters.chars() {
            set(&mut flags, letter, true)?;
        }
        all.push_str(&letters);
        check_flags(&all, "")?;
    }
    let node = parser.alternatives(flags)?;
    if parser.source.next().is_some() {
        return Err("has a ) without a (".into());
    }
    if parser.highest_group > parser.groups {
        return Err(format!("tests group {}, which does not exist", parser.highest_group).into());
    }
    Ok(Parsed { node, groups: parser.groups })
}

fn set(flags: &mut Flags, letter: char, on: bool) -> Result<(), PatternError> {
    match letter {
        'a' => flags.ascii = on,
        'i' => flags.ignore_case = on,
        'm' => flags.multi_line = on,
        's' => flags.dot_all = on,
        'u' => flags.ascii = !on,
        'x' => flags.verbose = on,
        unknown => return Err(format!("has the unknown flag {unknown}").into()),
    }
    Ok(())
}

struct Parser<'a, 'w> {
    source: Source<'a>,
    budget: &'w mut StepBudget,
    names: HashMap<String, u32>,
    groups: u32,
    /// Groups that are not closed yet.
    open: Vec<u32>,
    /// Minimum and maximum number of characters of each closed group.
    widths: HashMap<u32, Option<(u64, u64)>>,
    /// In a look-behind, the number of groups before it.
    before_look_behind: Option<u32>,
    /// Highest number of a group that a conditional names. The group may follow later.
    highest_group: u32,
    depth: u32,
}

impl Parser<'_, '_> {
    fn enter(&mut self) -> Result<(), PatternError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("nests groups more than {DEEPEST} deep").into());
        }
        Ok(())
    }

    fn alternatives(&mut self, flags: Flags) -> Result<Node, PatternError> {
        self.enter()?;
        let mut branches = vec![self.sequence(flags)?];
        while self.source.take("|") {
            branches.push(self.sequence(flags)?);
        }
        self.depth -= 1;
        Ok(if branches.len() == 1 { branches.remove(0) } else { Node::Alternate(branches) })
    }

    fn sequence(&mut self, flags: Flags) -> Result<Node, PatternError> {
        let mut nodes: Vec<Node> = Vec::new();
        while let Some(c) = self.source.peek().filter(|c| !matches!(c, '|' | ')')) {
            self.source.next();
            if flags.verbose && is_blank(c) {
                continue;
            }
            if flags.verbose && c == '#' {
                self.source.skip_past('\n')?;
                continue;
            }
            let node = match c {
                '*' | '+' | '?' => self.repeated(c, nodes.pop())?,
                '{' => match self.bounds()? {
                    Some(bounds) => self.repeat(bounds, nodes.pop())?,
                    None => Node::Set(class::literal('{', flags)),
                },
                _ => match self.atom(c, flags)? {
                    Some(node) => node,
                    None => continue,
                },
            };
            nodes.push(node);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::Concat(nodes) })
    }

    fn repeated(&mut self, operator: char, node: Option<Node>) -> Result<Node, PatternError> {
        let bounds = match operator {
            '*' => (0, None),
            '+' => (1, None),
            _ => (0, Some(1)),
        };
        self.repeat(bounds, node)
    }

    fn repeat(&mut self, (min, max): (u32, Option<u32>), node: Option<Node>) -> Result<Node, PatternError> {
        let node = match node {
            None | Some(Node::Assert(_)) => return Err("repeats nothing".into()),
            Some(Node::Repeat { .. }) => {
                return Err("has a repetition of a repetition; put the inner one into (?:...)".into());
            }
            Some(node) => node,
        };
        let mode = match self.source.peek() {
            Some('?') => Mode::Lazy,
            Some('+') => Mode::Possessive,
            _ => Mode::Greedy,
        };
        if mode != Mode::Greedy {
            self.source.next();
        }
        // Any repetition of an empty node, and zero repetitions of any node, match the empty text.
        if node.is_empty() || max == Some(0) {
            return Ok(Node::Repeat { node: Box::new(Node::Concat(Vec::new())), min: 0, max: Some(0), mode });
        }
        Ok(Node::Repeat { node: Box::new(node), min, max, mode })
    }

    /// Parses the bounds of `{m,n}`. Returns `None` if the brace is a literal character.
    fn bounds(&mut self) -> Result<Option<(u32, Option<u32>)>, PatternError> {
        let mut ahead = self.source.clone();
        if ahead.peek() == Some('}') {
            return Ok(None);
        }
        let low = ahead.digits(10, usize::MAX);
        let high = if ahead.take(",") { ahead.digits(10, usize::MAX) } else { low.clone() };
        if !ahead.take("}") {
            return Ok(None);
        }
        self.source = ahead;
        let number =
            |digits: &str| digits.parse::<u32>().map_err(|_| format!("repeats {digits} times, which is too often"));
        let min = if low.is_empty() { 0 } else { number(&low)? };
        let max = if high.is_empty() { None } else { Some(number(&high)?) };
        if max.is_some_and(|max| max < min) {
            return Err(format!("repeats at least {min} and at most {high} times").into());
        }
        Ok(Some((min, max)))
    }

    fn atom(&mut self, c: char, flags: Flags) -> Result<Option<Node>, PatternError> {
        Ok(Some(match c {
            '.' => Node::Set(if flags.dot_all { shorthand::any() } else { shorthand::any_but_newline() }),
            '^' => Node::Assert(if flags.multi_line { Assertion::LineStart } else { Assertion::Start }),
            '$' => Node::Assert(if flags.multi_line { Assertion::LineEnd } else { Assertion::EndOrNewline }),
            '[' => Node::Set(class::read(&mut self.source, flags, self.budget)?),
            '\\' => self.escape(flags)?,
            '(' => return self.group(flags),
            c => Node::Set(class::literal(c, flags)),
        }))
    }

    fn escape(&mut self, flags: Flags) -> Result<Node, PatternError> {
        Ok(match escape::outside(&mut self.source, flags.ascii)? {
            escape::Escape::Character(c) => Node::Set(class::literal(c, flags)),
            escape::Escape::Class(class) => Node::Set(class),
            escape::Escape::Start => Node::Assert(Assertion::Start),
            escape::Escape::End => Node::Assert(Assertion::End),
            escape::Escape::Boundary { negated: false } => {
                Node::Assert(Assertion::Boundary(shorthand::word(flags.ascii)))
            }
            escape::Escape::Boundary { negated: true } => {
                Node::Assert(Assertion::NoBoundary(shorthand::word(flags.ascii)))
            }
            escape::Escape::Group(group) => self.reference(group, flags)?,
        })
    }

    fn reference(&self, group: u32, flags: Flags) -> Result<Node, PatternError> {
        if group == 0 || group > self.groups {
            return Err(format!("refers to group {group}, which does not exist there").into());
        }
        if self.open.contains(&group) {
            return Err(format!("refers to group {group}, which is still open").into());
        }
        self.check_look_behind(group)?;
        let width = self.widths.get(&group).copied().flatten();
        let case = match (flags.ignore_case, flags.ascii) {
            (false, _) => Case::Exact,
            (true, false) => Case::Ignored,
            (true, true) => Case::IgnoredInAscii,
        };
        Ok(Node::Backreference { group, width, case })
    }

    /// Checks that a group precedes the look-behind that refers to it, if any.
    fn check_look_behind(&self, group: u32) -> Result<(), PatternError> {
        let before = self.before_look_behind.unwrap_or(u32::MAX);
        if group <= before && !(self.before_look_behind.is_some() && self.open.contains(&group)) {
            return Ok(());
        }
        Err(format!("refers inside a look-behind to group {group}, which is not closed before it").into())
    }

    /// Parses a group after its opening parenthesis. Returns `None` if it is a comment.
    fn group(&mut self, flags: Flags) -> Result<Option<Node>, PatternError> {
        if !self.source.take("?") {
            return self.capture(flags).map(Some);
        }
        let c = self.source.next().ok_or("ends in (?")?;
        let node = match c {
            'P' => return self.named(flags).map(Some),
            ':' => self.until_closed(flags)?,
            '#' => {
                self.source.skip_group_comment()?;
                return Ok(None);
            }
            '=' | '!' => Node::Look { behind: false, negated: c == '!', node: Box::new(self.until_closed(flags)?) },
            '<' => self.behind(flags)?,
            '>' => Node::Atomic(Box::new(self.until_closed(flags)?)),
            '(' => self.conditional(flags)?,
            c => self.flagged(c, flags)?,
        };
        // A repetition applies to a group without a number as a whole, even if its content is an assertion or a repetition.
        Ok(Some(match node {
            Node::Repeat { max: Some(0), .. } => Node::Concat(Vec::new()),
            Node::Assert(_) | Node::Repeat { .. } => Node::Concat(vec![node]),
            node => node,
        }))
    }

    fn capture(&mut self, flags: Flags) -> Result<Node, PatternError> {
        self.groups += 1;
        let number = self.groups;
        self.open.push(number);
        let node = Box::new(self.until_closed(flags)?);
        self.open.pop();
        // Computing the width visits nested groups once for each enclosing group.
        self.budget.take(node.size())?;
        self.widths.insert(number, node.width());
        Ok(Node::Group { number, node })
    }

    /// Parses the content of a group and its closing parenthesis.
    fn until_closed(&mut self, flags: Flags) -> Result<Node, PatternError> {
        let node = self.alternatives(flags)?;
        if self.source.take(")") { Ok(node) } else { Err("has a ( that is not closed".into()) }
    }

    fn named(&mut self, flags: Flags) -> Result<Node, PatternError> {
        if self.source.take("<") {
            let name = self.source.until('>')?;
            if !is_identifier(&name) {
                return Err("has a group with a bad name".into());
            }
            if self.names.insert(name, self.groups + 1).is_some() {
                return Err("has two groups with one name".into());
            }
            return self.capture(flags);
        }
        if self.source.take("=") {
            let name = self.source.until(')')?;
            let group = *self.names.get(&name).ok_or("refers to an unknown group")?;
            return self.reference(group, flags);
        }
        Err("has an unknown extension (?P".into())
    }

    fn behind(&mut self, flags: Flags) -> Result<Node, PatternError> {
        let negated = match self.source.next() {
            Some('=') => false,
            Some('!') => true,
            _ => return Err("has an unknown extension (?<; names are written (?P<name>...)".into()),
        };
        let outer = self.before_look_behind;
        self.before_look_behind = outer.or(Some(self.groups));
        let node = Box::new(self.until_closed(flags)?);
        self.before_look_behind = outer;
        if node.width().is_none_or(|(min, max)| min != max) {
            return Err("has a look-behind without a fixed width, which Python does not allow".into());
        }
        Ok(Node::Look { behind: true, negated, node })
    }

    fn conditional(&mut self, flags: Flags) -> Result<Node, PatternError> {
        let name = self.source.until(')')?;
        let group = match name.parse::<u32>() {
            Ok(number) if number > 0 => number,
            Ok(number) => return Err(format!("tests group {number}, which does not exist").into()),
            Err(_) => *self.names.get(&name).ok_or("tests an unknown group")?,
        };
        self.highest_group = self.highest_group.max(group);
        self.check_look_behind(group)?;
        self.enter()?;
        let yes = Box::new(self.sequence(flags)?);
        let no = Box::new(if self.source.take("|") { self.sequence(flags)? } else { Node::Concat(Vec::new()) });
        self.depth -= 1;
        match self.source.next() {
            Some(')') => Ok(Node::Conditional { group, yes, no }),
            Some(_) => Err("has a conditional group with more than two branches".into()),
            None => Err("has a ( that is not closed".into()),
        }
    }

    /// Parses a group with flags, as in `(?i-m:...)`.
    fn flagged(&mut self, first: char, outer: Flags) -> Result<Node, PatternError> {
        let mut flags = outer;
        let (mut on, mut off) = (String::new(), None::<String>);
        let mut letter = Some(first);
        while let Some(c) = letter {
            match (c, &mut off) {
                (':', Some(off)) if off.is_empty() => return Err("has a - without a flag to turn off".into()),
                (':', off) => {
                    check_flags(&on, off.as_deref().unwrap_or_default())?;
                    return self.until_closed(flags);
                }
                (')', _) => return Err("sets flags that are not at its start; write (?flags:...)".into()),
                ('-', off @ None) => *off = Some(String::new()),
                ('a' | 'u', Some(_)) => {
                    return Err("turns the flags a or u off, which Python does not allow".into());
                }
                (c, off) if c.is_ascii_alphabetic() => {
                    set(&mut flags, c, off.is_none())?;
                    off.as_mut().unwrap_or(&mut on).push(c);
                }
                (c, _) => return Err(format!("has the unknown extension (?{c}").into()),
            }
            letter = self.source.next();
        }
        Err("ends in the flags of a group".into())
    }
}

/// Checks that flags that are turned on and off together do not contradict each other.
fn check_flags(on: &str, off: &str) -> Result<(), PatternError> {
    if on.contains('a') && on.contains('u') {
        return Err("has both flags a and u, which Python does not allow".into());
    }
    match on.chars().find(|flag| off.contains(*flag)) {
        Some(flag) => Err(format!("turns the flag {flag} on and off, which Python does not allow").into()),
        None => Ok(()),
    }
}

fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && characters.all(|c| c.is_alphanumeric() || c == '_')
}
