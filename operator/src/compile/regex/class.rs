//! Character sets: `[...]`, shorthands such as `\d`, and `.`.

use std::sync::{Arc, LazyLock};

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use super::source::{Flags, Source};
use super::work::Work;
use super::{case, escape};
use crate::compile::python;

fn of(ranges: &[(char, char)]) -> ClassUnicode {
    ClassUnicode::new(ranges.iter().map(|(low, high)| ClassUnicodeRange::new(*low, *high)))
}

/// A class that many patterns share, built once.
type Shared = LazyLock<Arc<ClassUnicode>>;

/// Returns the class of all characters except the newline.
pub(super) fn any_but_newline() -> Arc<ClassUnicode> {
    static CLASS: Shared = LazyLock::new(|| Arc::new(of(&[('\0', '\u{9}'), ('\u{b}', char::MAX)])));
    CLASS.clone()
}

/// Returns the class of all characters.
pub(super) fn any() -> Arc<ClassUnicode> {
    static CLASS: Shared = LazyLock::new(|| Arc::new(of(&[('\0', char::MAX)])));
    CLASS.clone()
}

/// Returns the class of `\w`: letters, numbers and the underscore.
pub(super) fn word(ascii: bool) -> Arc<ClassUnicode> {
    Shorthand::Word.class(ascii, false)
}

/// Class that a backslash and a letter stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shorthand {
    /// `\d`: decimal digits of any script.
    Digit,
    /// `\s`: characters for which `str.isspace` is true.
    Space,
    /// `\w`: letters, numbers and the underscore.
    Word,
}

impl Shorthand {
    const ALL: [Self; 3] = [Self::Digit, Self::Space, Self::Word];

    /// Returns the class, or its complement if `negated`.
    fn class(self, ascii: bool, negated: bool) -> Arc<ClassUnicode> {
        // Indexed by shorthand, then by ASCII, then by negation.
        static CLASSES: LazyLock<Vec<Arc<ClassUnicode>>> = LazyLock::new(|| {
            let mut classes = Vec::new();
            for shorthand in Shorthand::ALL {
                for ascii in [false, true] {
                    let class = shorthand.make(ascii);
                    let mut negated = class.clone();
                    negated.negate();
                    classes.extend([Arc::new(class), Arc::new(negated)]);
                }
            }
            classes
        });
        let at = self as usize * 4 + usize::from(ascii) * 2 + usize::from(negated);
        CLASSES.get(at).cloned().unwrap_or_else(|| Arc::new(ClassUnicode::empty()))
    }

    fn make(self, ascii: bool) -> ClassUnicode {
        match (self, ascii) {
            (Self::Digit, true) => of(&[('0', '9')]),
            (Self::Digit, false) => of(&python::ranges(r"\p{Nd}")),
            (Self::Space, true) => of(&[('\t', '\r'), (' ', ' ')]),
            (Self::Space, false) => {
                let spaces = ('\0'..='\u{ffff}').filter(|c| python::is_space(*c));
                ClassUnicode::new(spaces.map(|c| ClassUnicodeRange::new(c, c)))
            }
            (Self::Word, true) => of(&[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')]),
            (Self::Word, false) => of(&python::ranges(r"[\p{L}\p{N}_]")),
        }
    }
}

/// Returns the class of `\d`, `\D`, `\s`, `\S`, `\w` or `\W`. `None` for other letters.
pub(super) fn shorthand(letter: char, ascii: bool) -> Option<Arc<ClassUnicode>> {
    let shorthand = match letter.to_ascii_lowercase() {
        'd' => Shorthand::Digit,
        's' => Shorthand::Space,
        'w' => Shorthand::Word,
        _ => return None,
    };
    Some(shorthand.class(ascii, letter.is_ascii_uppercase()))
}

/// Returns the class that a single written character matches.
pub(super) fn literal(c: char, flags: Flags) -> Arc<ClassUnicode> {
    Arc::new(if flags.ignore_case { case::fold_one(c, flags.ascii) } else { case::one(c) })
}

/// Parses a set after its opening bracket.
///
/// # Errors
/// Python refuses the set, it contains an unsupported escape, or the budget has too few steps.
pub(super) fn read(source: &mut Source<'_>, flags: Flags, work: &mut Work) -> Result<Arc<ClassUnicode>, String> {
    let unterminated = || "has a set [ that is not closed".to_owned();
    let negated = source.next_if(|c| c == '^').is_some();
    let mut content = Content::default();
    let mut is_first = true;
    loop {
        let low = match source.next().ok_or_else(unterminated)? {
            ']' if !is_first => break,
            '\\' => escape::inside(source, flags.ascii)?,
            c => Ok(c),
        };
        is_first = false;
        if source.next_if(|c| c == '-').is_none() {
            content.add(low);
            continue;
        }
        let high = match source.next().ok_or_else(unterminated)? {
            ']' => {
                content.add(low);
                content.add(Ok('-'));
                break;
            }
            '\\' => escape::inside(source, flags.ascii)?,
            c => Ok(c),
        };
        match (low, high) {
            (Ok(low), Ok(high)) if low <= high => content.written.push(ClassUnicodeRange::new(low, high)),
            (Ok(_), Ok(_)) => return Err("has a range that runs backwards".to_owned()),
            _ => return Err("has a range from or to a class".to_owned()),
        }
    }
    let mut classes = ClassUnicode::empty();
    for class in &content.classes {
        classes.union(class);
    }
    let mut set = ClassUnicode::new(content.written);
    work.take(set.ranges().len() + classes.ranges().len())?;
    let folded = if flags.ignore_case { case::fold(&set, &classes, flags.ascii, work)? } else { None };
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
    fn add(&mut self, item: Result<char, Arc<ClassUnicode>>) {
        match item {
            Ok(c) => self.written.push(ClassUnicodeRange::new(c, c)),
            Err(class) if self.classes.iter().any(|known| Arc::ptr_eq(known, &class)) => {}
            Err(class) => self.classes.push(class),
        }
    }
}
