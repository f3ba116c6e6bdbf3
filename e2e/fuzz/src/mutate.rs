//! A mutator for JSON. Most changes of single bytes give invalid JSON, which does not get past the parser.

use fastrand::Rng;
use serde_json::{Map, Value};

/// Largest number of changes in one mutation.
const MOST_CHANGES: usize = 4;

/// Changes the JSON in the first `size` bytes of `data`, and returns its new length. Returns `None` if these bytes are
/// not JSON, or if the result would be longer than `most`.
pub(crate) fn json(data: &mut [u8], size: usize, most: usize, seed: u32, dictionary: &[&str]) -> Option<usize> {
    let mut value: Value = serde_json::from_slice(data.get(..size)?).ok()?;
    let mut random = Rng::with_seed(u64::from(seed));
    for _ in 0..random.usize(1..=MOST_CHANGES) {
        let count = count(&value);
        let donor = nth(&mut value, random.usize(..count)).clone();
        let place = nth(&mut value, random.usize(..count));
        change(place, donor, dictionary, &mut random);
    }
    let text = serde_json::to_vec(&value).ok()?;
    let room = data.get_mut(..text.len()).filter(|room| room.len() <= most)?;
    room.copy_from_slice(&text);
    Some(text.len())
}

/// Counts a value and all values inside it.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        _ => 0,
    }
}

/// Returns the value with this number, in the order of [`count`]. Panics if there are fewer values.
fn nth(value: &mut Value, mut number: usize) -> &mut Value {
    if number == 0 {
        return value;
    }
    number -= 1;
    let children: Vec<&mut Value> = match value {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(members) => members.values_mut().collect(),
        _ => Vec::new(),
    };
    for child in children {
        let own = count(child);
        if number < own {
            return nth(child, number);
        }
        number -= own;
    }
    panic!("there are fewer values");
}

fn change(place: &mut Value, donor: Value, dictionary: &[&str], random: &mut Rng) {
    let word = |random: &mut Rng| random.choice(dictionary).copied().unwrap_or_default().to_owned();
    match (place, random.u8(..8)) {
        // A copy of another value, and a new scalar.
        (place, 0) => *place = donor,
        (place, 1) => *place = scalar(word(random), random),
        (Value::Array(items), 2 | 3) => items.push(donor),
        (Value::Array(items), 4 | 5) if !items.is_empty() => {
            let again = items[random.usize(..items.len())].clone();
            items.insert(random.usize(..items.len()), again);
        }
        (Value::Array(items), _) if !items.is_empty() => drop(items.remove(random.usize(..items.len()))),
        (Value::Object(members), 2 | 3) => drop(members.insert(word(random), donor)),
        (Value::Object(members), 4) => rename(members, word(random), random),
        (Value::Object(members), 5) => {
            if let Some(name) = any_key(members, random) {
                members.remove(&name);
            }
        }
        (Value::String(text), 2) => *text = word(random),
        (Value::String(text), 3) => text.push_str(&word(random)),
        (Value::String(text), kind) => {
            let characters: Vec<char> = text.chars().collect();
            let at = random.usize(..=characters.len());
            let behind = if kind < 6 { at } else { (at + 1).min(characters.len()) };
            let inserted = if kind == 7 { String::new() } else { character(random).to_string() };
            *text = characters[..at].iter().collect::<String>()
                + &inserted
                + &characters[behind..].iter().collect::<String>();
        }
        (place, _) => *place = scalar(word(random), random),
    }
}

fn rename(members: &mut Map<String, Value>, name: String, random: &mut Rng) {
    if let Some(value) = any_key(members, random).and_then(|old| members.remove(&old)) {
        members.insert(name, value);
    }
}

fn any_key(members: &Map<String, Value>, random: &mut Rng) -> Option<String> {
    random.choice(members.keys()).cloned()
}

fn scalar(word: String, random: &mut Rng) -> Value {
    match random.u8(..9) {
        0 => Value::Null,
        1 => Value::from(random.bool()),
        2 => Value::from(random.i64(-3..200)),
        3 => Value::from(random.i64(..)),
        4 => Value::from(random.f64() * 200.0),
        5 => Value::Array(Vec::new()),
        6 => Value::Object(Map::new()),
        _ => Value::from(word),
    }
}

fn character(random: &mut Rng) -> char {
    const SPECIAL: [char; 16] =
        ['\0', '\n', '"', '\\', ',', '.', '%', '\u{1c}', 'é', 'ſ', '\u{212a}', '日', '😀', '\u{feff}', '0', '-'];
    if random.bool() { SPECIAL[random.usize(..SPECIAL.len())] } else { random.char(' '..='~') }
}
