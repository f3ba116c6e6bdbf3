//! Reads the body of `analytics/flags/`: an object of counts by the flag's name.

use super::validation::{InvalidBody, Location, Problem};
use crate::json::{Reader, Value};

/// Reads a body, an object of counts by name, and calls `with` for each count. A body that is refused counts nothing.
pub(crate) fn read(body: &[u8], with: impl FnMut(&str, u64)) -> Result<(), InvalidBody> {
    // Flagsmith's API reads an empty body as an empty object.
    if body.is_empty() {
        return Ok(());
    }
    // Two passes, because an error at the end of the body must be found before its beginning is counted.
    pass(body, |_, _| {})?;
    pass(body, with)
}

fn pass(body: &[u8], mut with: impl FnMut(&str, u64)) -> Result<(), InvalidBody> {
    let mut reader = Reader::new(body)?;
    let mut scratch = String::new();
    let Some(mut members) = reader.enter_object() else {
        reader.value()?;
        return Err(InvalidBody::Invalid(Location::Body, Problem::NotAnObject));
    };
    while let Some(flag) = reader.next_member(&mut members)? {
        // A value that is not a count is skipped, as Flagsmith's API skips unknown names.
        if let Value::Integer(digits) = reader.value()?
            && let Ok(count) = digits.parse()
        {
            with(flag.decode(&mut scratch), count);
        }
    }
    reader.finish()?;
    Ok(())
}
