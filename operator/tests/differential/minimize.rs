//! Making a case that differs as small as can be, so that people see what it is about.

use super::json::Json;

/// Takes away what can be taken away while `differs` still holds.
pub(crate) fn minimize(mut case: Json, mut differs: impl FnMut(&Json) -> bool) -> Json {
    let mut tries = 6000;
    loop {
        let mut smaller = false;
        let mut number = 0;
        // By number: what is behind a part that was taken away has its number then.
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

/// The value without its `number`th part: an item, a member, or a character of a text.
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
