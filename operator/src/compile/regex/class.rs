//! Sets of characters: `[...]`, `\d` and its like, `.`.

use std::sync::LazyLock;

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use super::parse::{Flags, Source};
use super::{case, escape};
use crate::compile::python;

fn of(ranges: &[(char, char)]) -> ClassUnicode {
    ClassUnicode::new(ranges.iter().map(|(low, high)| ClassUnicodeRange::new(*low, *high)))
}

/// Every character but a newline.
pub(super) fn any_but_newline() -> ClassUnicode {
    of(&[('\0', '\u{9}'), ('\u{b}', char::MAX)])
}

/// Every character.
pub(super) fn any() -> ClassUnicode {
    of(&[('\0', char::MAX)])
}

/// `\w`: letters, numbers and the underscore.
pub(super) fn word(ascii: bool) -> ClassUnicode {
    static WORD: LazyLock<ClassUnicode> = LazyLock::new(|| of(&python::ranges(r"[\p{L}\p{N}_]")));
    if ascii { of(&[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')]) } else { WORD.clone() }
}

/// `\s`, as `str.isspace`.
fn space(ascii: bool) -> ClassUnicode {
    static SPACE: LazyLock<ClassUnicode> = LazyLock::new(|| {
        ClassUnicode::new(('\0'..='\u{ffff}').filter(|c| python::is_space(*c)).map(|c| ClassUnicodeRange::new(c, c)))
    });
    if ascii { of(&[('\t', '\r'), (' ', ' ')]) } else { SPACE.clone() }
}

fn digit(ascii: bool) -> ClassUnicode {
    static DIGIT: LazyLock<ClassUnicode> = LazyLock::new(|| of(&python::ranges(r"\p{Nd}")));
    if ascii { of(&[('0', '9')]) } else { DIGIT.clone() }
}

/// The class of `\d`, `\D`, `\s`, `\S`, `\w` or `\W`.
pub(super) fn shorthand(letter: char, ascii: bool) -> Option<ClassUnicode> {
    let mut class = match letter.to_ascii_lowercase() {
        'd' => digit(ascii),
        's' => space(ascii),
        'w' => word(ascii),
        _ => return None,
    };
    if letter.is_ascii_uppercase() {
        class.negate();
    }
    Some(class)
}

/// A single written character.
pub(super) fn literal(c: char, flags: Flags) -> ClassUnicode {
    if flags.ignore_case { case::fold(&case::one(c), &ClassUnicode::empty(), flags.ascii) } else { case::one(c) }
}

/// Reads a set behind its opening bracket.
pub(super) fn read(source: &mut Source<'_>, flags: Flags) -> Result<ClassUnicode, String> {
    let unterminated = || "has a set [ that is not closed".to_owned();
    let negated = source.next_if(|c| c == '^').is_some();
    let (mut written, mut classes) = (ClassUnicode::empty(), ClassUnicode::empty());
    let mut is_first = true;
    loop {
        let low = match source.next().ok_or_else(unterminated)? {
            ']' if !is_first => break,
            '\\' => escape::inside(source, flags.ascii)?,
            c => Ok(c),
        };
        is_first = false;
        if source.next_if(|c| c == '-').is_none() {
            add(&mut written, &mut classes, low);
            continue;
        }
        let high = match source.next().ok_or_else(unterminated)? {
            ']' => {
                add(&mut written, &mut classes, low);
                add(&mut written, &mut classes, Ok('-'));
                break;
            }
            '\\' => escape::inside(source, flags.ascii)?,
            c => Ok(c),
        };
        match (low, high) {
            (Ok(low), Ok(high)) if low <= high => written.push(ClassUnicodeRange::new(low, high)),
            (Ok(_), Ok(_)) => return Err("has a range that runs backwards".to_owned()),
            _ => return Err("has a range from or to a class".to_owned()),
        }
    }
    let mut set = if flags.ignore_case && case::is_cased(&written) {
        case::fold(&written, &classes, flags.ascii)
    } else {
        written.union(&classes);
        written
    };
    if negated {
        set.negate();
    }
    Ok(set)
}

fn add(written: &mut ClassUnicode, classes: &mut ClassUnicode, item: Result<char, ClassUnicode>) {
    match item {
        Ok(c) => written.push(ClassUnicodeRange::new(c, c)),
        Err(class) => classes.union(&class),
    }
}
