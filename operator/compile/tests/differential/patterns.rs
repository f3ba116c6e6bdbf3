//! Random regular expressions in Python's syntax, with texts that match or almost match.

use fastrand::Rng;

use super::values::{once_in, pick};

/// Part of a pattern.
enum Part {
    /// Item of one character: its notation, and characters that it may match.
    One(String, Vec<char>),
    /// Assertion that consumes nothing.
    Place(String),
    Sequence(Vec<Part>),
    Alternatives(Vec<Part>),
    Repeated(Box<Part>, String, usize, usize),
    /// Group with its opening; the number is set if the group captures.
    Group(String, Option<usize>, Box<Part>),
    Again(String, usize),
    If(String, Box<Part>, Box<Part>),
}

/// Pattern that sample texts can be generated for.
pub(crate) struct Pattern {
    pub(crate) text: String,
    root: Part,
    /// Maximum length of a text in characters. Longer texts could exceed the step budget of Remora's search.
    pub(crate) longest: usize,
}

struct Writer<'r> {
    random: &'r mut Rng,
    /// Names of closed groups, by number.
    groups: Vec<Option<String>>,
    closed: Vec<usize>,
    alphabet: Vec<char>,
    /// True if nested loops, and more than two loops, are allowed. They take many steps of Remora's bounded search.
    nests: bool,
    loops: usize,
    is_nested: bool,
}

const ALPHABETS: &[&str] = &[
    "ab",
    "abc1_ ",
    "aAbBkKsS",
    "a\n",
    "a-b.",
    "sſSßẞıiIİ",
    "éÉeE",
    "σςΣ",
    "\u{212a}kK",
    "٣31a_",
    "日本a",
    "aµμΜ",
    "ǅǆǄ",
    "ΐΐ",
    "ſtst",
    "\u{345}ιι",
];

impl Writer<'_> {
    fn character(&mut self) -> char {
        if once_in(self.random, 12) {
            return pick(self.random, &["\0", "\t", "é", "K", "\u{212a}", "\u{a0}", "😀", "\u{1c}", "0", "9", "z"])
                .chars()
                .next()
                .unwrap();
        }
        self.alphabet[self.random.usize(..self.alphabet.len())]
    }

    fn escaped(c: char) -> String {
        if c.is_ascii_punctuation() { format!("\\{c}") } else { c.to_string() }
    }

    fn one(&mut self) -> Part {
        let c = self.character();
        match self.random.u8(..24) {
            0 => Part::One(".".to_owned(), vec![c, '\n']),
            1 => Part::One(r"\d".to_owned(), vec!['1', '٣', c]),
            2 => Part::One(r"\w".to_owned(), vec![c, '_', '1', 'é']),
            3 => Part::One(r"\s".to_owned(), vec![' ', '\n', '\u{1c}', '\u{a0}', c]),
            4 => Part::One(pick(self.random, &[r"\D", r"\W", r"\S"]).to_owned(), vec![c, '-', ' ']),
            5 => Part::One(
                format!("\\x{:02x}", u32::from(c).min(255)),
                vec![char::from_u32(u32::from(c).min(255)).unwrap()],
            ),
            6 if u32::from(c) < 0x10000 => Part::One(format!("\\u{:04x}", u32::from(c)), vec![c]),
            7 => Part::One(format!("\\U{:08x}", u32::from(c)), vec![c]),
            8 => Part::One(
                pick(
                    self.random,
                    &[
                        r"\0", r"\07", r"\101", r"\n", r"\t", r"\a", r"\q", r"\400", r"\-", r"\.", r"\é", r"\ ", r"\#",
                        r"\x4", r"\8",
                    ],
                )
                .to_owned(),
                vec![c, 'A', '\n'],
            ),
            9..=12 => self.set(),
            13 => Part::One(
                pick(self.random, &["{", "}", "]", "-", "#", " ", "{a}", "{,", "{1"]).to_owned(),
                vec!['{', '}', c],
            ),
            _ => Part::One(Self::escaped(c), vec![c]),
        }
    }

    fn set(&mut self) -> Part {
        let mut text = String::from(if once_in(self.random, 3) { "[^" } else { "[" });
        let mut characters = vec!['z'];
        for number in 0..self.random.usize(1..4) {
            let c = self.character();
            characters.push(c);
            match self.random.u8(..12) {
                0 => text.push_str(pick(self.random, &[r"\d", r"\w", r"\s", r"\D", r"\W", r"\S"])),
                1 | 2 => {
                    let high = char::from_u32(u32::from(c) + self.random.u32(..6)).unwrap_or(c);
                    text.push_str(&format!("{}-{}", Self::escaped(c), Self::escaped(high)));
                }
                3 => text.push_str(pick(
                    self.random,
                    &[
                        "-",
                        "^",
                        "&&",
                        "[",
                        "--",
                        "||",
                        r"\b",
                        r"\]",
                        r"\0",
                        r"\101",
                        r"\x41",
                        "a-",
                        "-a",
                        r"\w-a",
                        r"\9",
                        r"\b-z",
                        "A-z",
                        "[:alpha:]",
                    ],
                )),
                4 if number == 0 => text.push(']'),
                _ => text.push_str(&if c == ']' || c == '\\' || c == '^' { Self::escaped(c) } else { c.to_string() }),
            }
        }
        text.push(']');
        Part::One(text, characters)
    }

    fn sequence(&mut self, depth: u8) -> Part {
        let count = self.random.usize(..4);
        Part::Sequence((0..count).map(|_| self.part(depth)).collect())
    }

    fn alternatives(&mut self, depth: u8) -> Part {
        if once_in(self.random, 3) {
            return Part::Alternatives((0..self.random.usize(2..4)).map(|_| self.sequence(depth)).collect());
        }
        self.sequence(depth)
    }

    fn group(&mut self, depth: u8) -> Part {
        let flags = || ["i", "s", "m", "a", "x", "-i", "i-s", "u", "im", "-m", "a-i"];
        let opening = match self.random.u8(..20) {
            0..=5 => return self.capture(depth),
            6..=8 => "(?:".to_owned(),
            9 => "(?>".to_owned(),
            10 | 11 => format!("(?{}:", flags()[self.random.usize(..11)]),
            12..=14 => pick(self.random, &["(?=", "(?!"]).to_owned(),
            15 | 16 => pick(self.random, &["(?<=", "(?<!"]).to_owned(),
            17 => return self.again(),
            18 => return self.conditional(depth),
            _ => return Part::Place(pick(self.random, &["(?#note)", "(?i)", "(?#)", "(?x)"]).to_owned()),
        };
        let content = if opening.starts_with("(?<") && !once_in(self.random, 6) {
            self.fixed(depth)
        } else {
            self.alternatives(depth)
        };
        Part::Group(opening, None, Box::new(content))
    }

    /// Returns a part of fixed width.
    fn fixed(&mut self, depth: u8) -> Part {
        match self.random.u8(..8) {
            0 => Part::Alternatives(vec![self.one(), self.one()]),
            1 if !self.closed.is_empty() => self.again(),
            2 => Part::Place(pick(self.random, &["^", "$", r"\b", r"\B", r"\A", r"\Z"]).to_owned()),
            3 if depth > 0 => self.capture(0),
            4 => Part::Repeated(Box::new(self.one()), "{2}".to_owned(), 2, 2),
            _ => Part::Sequence((0..self.random.usize(1..3)).map(|_| self.one()).collect()),
        }
    }

    fn capture(&mut self, depth: u8) -> Part {
        let number = self.groups.len() + 1;
        let name = once_in(self.random, 4)
            .then(|| pick(self.random, &["n", "größe", "n1", "_x"]).to_owned() + &number.to_string());
        let opening = name.as_ref().map_or_else(|| "(".to_owned(), |name| format!("(?P<{name}>"));
        self.groups.push(name);
        let content = self.alternatives(depth);
        self.closed.push(number);
        Part::Group(opening, Some(number), Box::new(content))
    }

    fn again(&mut self) -> Part {
        let number = if self.closed.is_empty() || once_in(self.random, 20) {
            self.random.usize(1..3)
        } else {
            self.closed[self.random.usize(..self.closed.len())]
        };
        let text = match self.groups.get(number - 1) {
            Some(Some(name)) if self.random.bool() => format!("(?P={name})"),
            // The empty group separates the number from digits that may follow.
            _ => format!("\\{number}(?:)"),
        };
        Part::Again(text, number)
    }

    fn conditional(&mut self, depth: u8) -> Part {
        let number = if once_in(self.random, 6) {
            self.random.usize(1..4)
        } else {
            self.random.usize(1..=self.groups.len().max(1))
        };
        let name = match self.groups.get(number - 1) {
            Some(Some(name)) if self.random.bool() => name.clone(),
            _ => number.to_string(),
        };
        let (yes, no) = (self.sequence(depth), self.sequence(depth));
        Part::If(name, Box::new(yes), Box::new(no))
    }

    fn part(&mut self, depth: u8) -> Part {
        let part = match self.random.u8(..10) {
            0 => return Part::Place(pick(self.random, &["^", "$", "$", r"\b", r"\b", r"\B", r"\A", r"\Z"]).to_owned()),
            1..=4 if depth > 0 => self.group(depth - 1),
            _ => self.one(),
        };
        if self.random.u8(..5) > 1 {
            return part;
        }
        let quantifiers = [
            ("?", 0, 1),
            ("{2}", 2, 2),
            ("{1,2}", 1, 2),
            ("{,2}", 0, 2),
            ("{0}", 0, 0),
            ("{0,3}", 0, 3),
            ("*", 0, 3),
            ("+", 1, 3),
            ("{1,}", 1, 3),
            ("{,}", 0, 2),
        ];
        let inner = part.loops();
        let may_loop = if self.nests { inner < 2 } else { inner == 0 && self.loops < 2 };
        let (text, least, most) = quantifiers[self.random.usize(..if may_loop { 10 } else { 6 })];
        if matches!(text, "*" | "+" | "{1,}" | "{,}") {
            self.loops += 1;
            self.is_nested |= inner > 0;
        }
        // Python's own possessive repetitions of capturing groups can fail (SystemError), so cases use only those that
        // do not.
        let modes = if part.captures() { &["", "", "", "", "?", "?"][..] } else { &["", "", "", "", "?", "?", "+"] };
        let mode = pick(self.random, modes);
        Part::Repeated(Box::new(part), format!("{text}{mode}"), least, most)
    }
}

impl Part {
    /// Returns the nesting depth of loops without an upper bound.
    fn loops(&self) -> usize {
        match self {
            Self::One(..) | Self::Place(_) | Self::Again(..) => 0,
            Self::Sequence(parts) | Self::Alternatives(parts) => parts.iter().map(Self::loops).max().unwrap_or(0),
            Self::Repeated(part, text, ..) => {
                part.loops()
                    + usize::from(text.starts_with(['*', '+']) || text.starts_with("{1,}") || text.starts_with("{,}"))
            }
            Self::Group(_, _, content) => content.loops(),
            Self::If(_, yes, no) => yes.loops().max(no.loops()),
        }
    }

    /// True if the part contains capturing groups.
    fn captures(&self) -> bool {
        match self {
            Self::One(..) | Self::Place(_) | Self::Again(..) => false,
            Self::Sequence(parts) | Self::Alternatives(parts) => parts.iter().any(Self::captures),
            Self::Repeated(part, ..) => part.captures(),
            Self::Group(_, number, content) => number.is_some() || content.captures(),
            Self::If(_, yes, no) => yes.captures() || no.captures(),
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::One(text, _) | Self::Place(text) | Self::Again(text, _) => out.push_str(text),
            Self::Sequence(parts) => parts.iter().for_each(|part| part.write(out)),
            Self::Alternatives(parts) => {
                for (number, part) in parts.iter().enumerate() {
                    if number > 0 {
                        out.push('|');
                    }
                    part.write(out);
                }
            }
            Self::Repeated(part, mode, ..) => {
                part.write(out);
                out.push_str(mode);
            }
            Self::Group(opening, _, content) => {
                out.push_str(opening);
                content.write(out);
                out.push(')');
            }
            Self::If(name, yes, no) => {
                out.push_str(&format!("(?({name})"));
                yes.write(out);
                out.push('|');
                no.write(out);
                out.push(')');
            }
        }
    }

    /// Appends a text that may match the part.
    fn sample(&self, random: &mut Rng, groups: &mut Vec<String>, out: &mut String) {
        match self {
            Self::One(_, characters) => {
                let c = characters[random.usize(..characters.len())];
                match random.u8(..16) {
                    0 => out.extend(c.to_uppercase()),
                    1 => out.extend(c.to_lowercase()),
                    _ => out.push(c),
                }
            }
            Self::Place(_) => {}
            Self::Sequence(parts) => parts.iter().for_each(|part| part.sample(random, groups, out)),
            Self::Alternatives(parts) => parts[random.usize(..parts.len())].sample(random, groups, out),
            Self::Repeated(part, _, least, most) => {
                (0..random.usize(*least..=*most)).for_each(|_| part.sample(random, groups, out));
            }
            Self::Group(opening, number, content) => {
                let start = out.len();
                content.sample(random, groups, out);
                if let Some(number) = number {
                    groups.resize(groups.len().max(*number), String::new());
                    groups[number - 1] = out[start..].to_owned();
                }
                // The text of a positive lookaround may stay or go; the text of a negative one is removed.
                if opening.contains('!') || (opening.contains('=') && random.bool()) {
                    out.truncate(start);
                }
            }
            Self::Again(_, number) => out.push_str(&groups.get(number - 1).cloned().unwrap_or_default()),
            Self::If(_, yes, no) => (if random.bool() { yes } else { no }).sample(random, groups, out),
        }
    }
}

impl Pattern {
    /// Returns a pattern. With `nests`, it may have nested loops and must only be matched against its own samples.
    pub(crate) fn new(random: &mut Rng, nests: bool) -> Self {
        let alphabet = pick(random, ALPHABETS).chars().collect();
        let flags = match random.u8(..8) {
            0 => "(?i)",
            1 => pick(random, &["(?s)", "(?m)", "(?a)", "(?ai)", "(?ms)", "(?i)(?m)", "(?x)", "(?u)", "(?mi)"]),
            _ => "",
        };
        let mut writer =
            Writer { random, groups: Vec::new(), closed: Vec::new(), alphabet, nests, loops: 0, is_nested: false };
        let depth = writer.random.u8(..4);
        let root = Part::Sequence(vec![writer.part(depth), writer.alternatives(depth)]);
        let longest = if writer.is_nested { 8 } else { 16 };
        let mut text = flags.to_owned();
        root.write(&mut text);
        Self { text, root, longest }
    }

    /// Returns a text that may match.
    pub(crate) fn sample(&self, random: &mut Rng) -> String {
        let mut text = String::new();
        self.root.sample(random, &mut Vec::new(), &mut text);
        for _ in 0..random.usize(..3) {
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let at = places[random.usize(..places.len())];
            match random.u8(..4) {
                0 if at < text.len() => drop(text.remove(at)),
                1 => text.insert(at, pick(random, &["\n", "a", "b", " ", "1", "é", "_", "K"]).chars().next().unwrap()),
                2 => text.push_str(pick(random, &["\n", "x", "a"])),
                _ => {}
            }
        }
        text.chars().take(self.longest).collect()
    }
}
