//! Parser of escape sequences.

use std::sync::Arc;

use regex_syntax::hir::ClassUnicode;

use super::shorthand;
use super::source::Source;

/// Escape sequence outside of a set.
pub(super) enum Escape {
    Character(char),
    Class(Arc<ClassUnicode>),
    Start,
    End,
    Boundary { negated: bool },
    Group(u32),
}

/// Member of a set.
pub(super) enum Member {
    Character(char),
    Class(Arc<ClassUnicode>),
}

/// Parses an escape sequence outside of a set, after its backslash.
///
/// # Errors
/// Python refuses the sequence, or it is a `\N{...}`, which is not supported.
pub(super) fn outside(source: &mut Source<'_>, ascii: bool) -> Result<Escape, String> {
    let c = source.next().ok_or("ends in a backslash")?;
    Ok(match c {
        'A' => Escape::Start,
        'Z' => Escape::End,
        'b' => Escape::Boundary { negated: false },
        'B' => Escape::Boundary { negated: true },
        '0' => {
            let digits = source.digits(8, 2);
            Escape::Character(code_point(&format!("0{digits}"), 8)?)
        }
        '1'..='9' => group_or_octal(source, c)?,
        _ => match shorthand::named(c, ascii) {
            Some(class) => Escape::Class(class),
            None => Escape::Character(character(source, c)?),
        },
    })
}

/// Parses an escape that begins with a digit from 1 to 9: one or two digits refer to a group, three octal digits are a
/// character.
fn group_or_octal(source: &mut Source<'_>, first: char) -> Result<Escape, String> {
    let mut digits = first.to_string();
    if let Some(second) = source.next_if(|c| c.is_ascii_digit()) {
        digits.push(second);
        let is_octal = |c: char| ('0'..='7').contains(&c);
        if is_octal(first)
            && is_octal(second)
            && let Some(third) = source.next_if(is_octal)
        {
            digits.push(third);
            return Ok(Escape::Character(octal(&digits)?));
        }
    }
    Ok(Escape::Group(digits.parse().map_err(|_| "has a malformed group reference".to_owned())?))
}

/// Parses an escape sequence in a set, after its backslash.
///
/// # Errors
/// Python refuses the sequence, or it is a `\N{...}`, which is not supported.
pub(super) fn inside(source: &mut Source<'_>, ascii: bool) -> Result<Member, String> {
    let c = source.next().ok_or("ends in a backslash")?;
    Ok(match c {
        'b' => Member::Character('\u{8}'),
        '0'..='7' => {
            let digits = format!("{c}{}", source.digits(8, 2));
            Member::Character(octal(&digits)?)
        }
        '8' | '9' => return Err(format!("has the bad escape \\{c}")),
        _ => match shorthand::named(c, ascii) {
            Some(class) => Member::Class(class),
            None => Member::Character(character(source, c)?),
        },
    })
}

fn octal(digits: &str) -> Result<char, String> {
    let c = code_point(digits, 8)?;
    if u32::from(c) > 0o377 { Err("has an octal escape that is more than \\377".to_owned()) } else { Ok(c) }
}

/// Parses an escape that stands for a character in and outside of sets.
fn character(source: &mut Source<'_>, c: char) -> Result<char, String> {
    Ok(match c {
        'a' => '\u{7}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        'x' => hexadecimal(source, c, 2)?,
        'u' => hexadecimal(source, c, 4)?,
        'U' => hexadecimal(source, c, 8)?,
        'N' => {
            return Err("names a character by \\N{...}, which is not supported; write the character itself".to_owned());
        }
        c if c.is_ascii_alphanumeric() => return Err(format!("has the bad escape \\{c}")),
        c => c,
    })
}

fn hexadecimal(source: &mut Source<'_>, kind: char, count: usize) -> Result<char, String> {
    let digits = source.digits(16, count);
    if digits.len() == count { code_point(&digits, 16) } else { Err(format!("has an incomplete escape \\{kind}")) }
}

fn code_point(digits: &str, radix: u32) -> Result<char, String> {
    let number = u32::from_str_radix(digits, radix).ok();
    number.and_then(char::from_u32).ok_or_else(|| "has the escape of a character that does not exist".to_owned())
}
