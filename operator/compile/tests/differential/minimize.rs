//! Reduction of a case with a difference to a minimal one that a person can understand.

use super::json::Json;

/// Removes as many parts as possible while `differs` returns true.
pub(crate) fn minimize(mut case: Json, mut differs: impl FnMut(&Json) -> bool) -> Json {
    let mut tries = 6000;
    loop {
        let mut smaller = false;
        let mut number = 0;
        // Parts are counted by number: after a removal, the next part has the removed part's number.
        while let Some(candidate) = without(&case, number) {
            if tries == 0 {
                return case;
            }
            tries -= 1;
            if differs(&candidate) {
                case = candidate;
                smaller = true;
            } else {
                number += 1;
            }
        }
        if !smaller {
            return case;
        }
    }
}

/// Returns the value without its part `number`: an item, a member, or a character of a text. Returns `None` if there is
/// no such part.
fn without(value: &Json, number: usize) -> Option<Json> {
    let mut left = number;
    let mut value = value.clone();
    remove(&mut value, &mut left).then_some(value)
}

fn remove(value: &mut Json, left: &mut usize) -> bool {
    match value {
        Json::Token(_) => false,
        Json::Text(text) => {
            let count = text.chars().count();
            if *left >= count {
                *left -= count;
                return false;
            }
            *text = text.chars().enumerate().filter(|(at, _)| at != left).map(|(_, c)| c).collect();
            true
        }
        Json::List(items) => {
            if *left < items.len() {
                items.remove(*left);
                return true;
            }
            *left -= items.len();
            items.iter_mut().any(|item| remove(item, left))
        }
        Json::Map(members) => {
            if *left < members.len() {
                members.remove(*left);
                return true;
            }
            *left -= members.len();
            members.iter_mut().any(|(_, value)| remove(value, left))
        }
    }
}
