//! JSON object that preserves the order of its members and the bytes of their values.
//!
//! A document passes through the stub as the server wrote it: numbers keep their notation and members their order. The
//! operator is thus tested with real input.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// JSON object with its members in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct OrderedObject(Vec<(String, Box<RawValue>)>);

impl OrderedObject {
    pub(super) fn get<'a, T: Deserialize<'a>>(&'a self, name: &str) -> Result<Option<T>, serde_json::Error> {
        match self.0.iter().find(|(member, _)| member == name) {
            Some((_, value)) => serde_json::from_str(value.get()).map(Some),
            None => Ok(None),
        }
    }

    /// Removes the member, if there is one.
    pub(super) fn remove(&mut self, name: &str) {
        self.0.retain(|(member, _)| member != name);
    }

    /// Replaces the value of the member in its place, or adds the member at the end.
    pub(super) fn set(&mut self, name: &str, value: &impl Serialize) -> Result<(), serde_json::Error> {
        let value = to_raw_value(value)?;
        match self.0.iter_mut().find(|(member, _)| member == name) {
            Some((_, held)) => *held = value,
            None => self.0.push((name.to_owned(), value)),
        }
        Ok(())
    }
}

impl Serialize for OrderedObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for OrderedObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = OrderedObject;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OrderedObject, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(OrderedObject(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_order_and_notation() {
        let text = r#"{"z":1.50,"a":{"y":1e2, "b":[ ]},"m":"\u00f6"}"#;
        let members: OrderedObject = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&members).unwrap(), text);
    }

    #[test]
    fn member_is_replaced_in_its_place() {
        let mut members: OrderedObject = serde_json::from_str(r#"{"a":1,"b":2}"#).unwrap();
        members.set("a", &true).unwrap();
        members.set("c", &"x").unwrap();
        assert_eq!(serde_json::to_string(&members).unwrap(), r#"{"a":true,"b":2,"c":"x"}"#);
    }
}
