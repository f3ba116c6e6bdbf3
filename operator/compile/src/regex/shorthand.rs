//! Character sets with a name of their own: shorthands such as `\d`, and `.`.

use std::sync::{Arc, LazyLock};

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use crate::python;

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
pub(super) fn named(letter: char, ascii: bool) -> Option<Arc<ClassUnicode>> {
    let shorthand = match letter.to_ascii_lowercase() {
        'd' => Shorthand::Digit,
        's' => Shorthand::Space,
        'w' => Shorthand::Word,
        _ => return None,
    };
    Some(shorthand.class(ascii, letter.is_ascii_uppercase()))
}
