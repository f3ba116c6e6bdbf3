//! Translates variants, and chooses those of identity overrides: the identity is known, so no request has to hash it.

use remora_snapshot::model::{IdentityFlag, IdentityVariant, Split, Variant};
use remora_snapshot::percentage;

use super::Error;
use super::document::{IdentityFeature, VariantState};

/// Place of identity overrides in messages, without the identifier, which may be personal.
const IDENTITY_OVERRIDES: &str = "identity_overrides";

/// Returns the variants of a feature in the order in which they get percentages.
///
/// # Errors
/// The variants have no seed, or no order.
pub(super) fn split(seed: Option<String>, states: &[VariantState], feature: &str, place: &str) -> Result<Split, Error> {
    let place = || place.to_owned();
    let Some(seed) = seed else { return Err(Error::Seed { place: place(), feature: feature.to_owned() }) };
    let mut variants = Vec::with_capacity(states.len());
    for state in states {
        let order = state.order().ok_or_else(|| Error::Order { place: place(), feature: feature.to_owned() })?;
        let option = &state.multivariate_feature_option;
        let share = &state.percentage_allocation;
        let content = Variant {
            weight: share.value,
            weight_text: share.text.clone(),
            value: option.value.token().to_owned(),
            key: option.key.clone(),
        };
        variants.push((order, content));
    }
    variants.sort_by_key(|(order, _)| *order); // a stable sort: equal variants keep the document's order
    Ok(Split { seed, variants: variants.into_iter().map(|(_, variant)| variant).collect() })
}

/// The identity of an override, as percentages hash it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity<'a> {
    pub(super) client_key: &'a str,
    pub(super) identifier: &'a str,
}

/// Returns the override of an identity. With variants it has the value of the variant that Flagsmith's API gives to
/// this identity, by the same percentages as every other split.
///
/// # Errors
/// The variants have no seed, or no order.
pub(super) fn identity_flag(
    feature: i64,
    flag: &IdentityFeature,
    identity: Identity<'_>,
) -> Result<IdentityFlag, Error> {
    let value = flag.feature_state_value.token();
    let plain = IdentityFlag { feature, enabled: flag.enabled, value: value.to_owned(), variant: None };
    let Some(variants) = &flag.variants else { return Ok(plain) };
    let split = split(variants.seed.clone(), &variants.states, &flag.feature.name, IDENTITY_OVERRIDES)?;
    Ok(match chosen(split, identity) {
        None => IdentityFlag { variant: Some(Box::new(IdentityVariant::Control)), ..plain },
        Some(Variant { value, key, weight_text, .. }) => {
            IdentityFlag { value, variant: Some(Box::new(IdentityVariant::Variant { key, weight_text })), ..plain }
        }
    })
}

/// Returns the variant that a split gives to an identity. `None` stands for the control value.
fn chosen(split: Split, Identity { client_key, identifier }: Identity<'_>) -> Option<Variant> {
    let identity = [b",", client_key.as_bytes(), b"_", identifier.as_bytes()];
    let place = percentage(&[&[split.seed.as_bytes()], identity.as_slice()].concat());
    let mut start = 0.0;
    split.variants.into_iter().find(|variant| {
        let begin = start;
        start += variant.weight;
        begin <= place && place < start
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn flag(options: &[(i64, f64, &str, Option<&str>)]) -> IdentityFeature {
        let variants: Vec<_> = options
            .iter()
            .map(|(id, share, value, key)| {
                json!({"id": id, "percentage_allocation": share, "multivariate_feature_option": {"value": value, "key": key}})
            })
            .collect();
        let text =
            json!({"feature": {"id": 1, "name": "f"}, "enabled": true, "feature_state_value": "own", "django_id": 7,
            "featurestate_uuid": null, "multivariate_feature_state_values": variants})
            .to_string();
        serde_json::from_str(&text).unwrap()
    }

    fn told(options: &[(i64, f64, &str, Option<&str>)], identifier: &str) -> (String, Option<IdentityVariant>) {
        let identity = Identity { client_key: "key", identifier };
        let IdentityFlag { value, variant, .. } = identity_flag(1, &flag(options), identity).unwrap();
        (value, variant.map(|variant| *variant))
    }

    #[test]
    fn identity_override_with_one_option_at_100_percent_has_its_value() {
        let (value, variant) = told(&[(1, 100.0, "a", Some("A"))], "somebody");
        assert_eq!(value, "\"a\"");
        let expected = IdentityVariant::Variant { key: Some("A".to_owned()), weight_text: "100.0".to_owned() };
        assert_eq!(variant, Some(expected));
    }

    #[test]
    fn identity_override_without_percentages_has_its_own_value_as_control() {
        let expected = ("\"own\"".to_owned(), Some(IdentityVariant::Control));
        assert_eq!(told(&[(1, 0.0, "a", None), (2, 0.0, "b", None)], "somebody"), expected);
        assert_eq!(told(&[], "somebody"), ("\"own\"".to_owned(), None));
    }

    #[test]
    fn identity_override_with_several_options_is_chosen_by_the_hash_of_the_identity() {
        let options = [(9, 30.0, "late", None), (2, 30.0, "early", None)]; // the ids decide their order
        let mut seen = std::collections::HashSet::new();
        for number in 0..200 {
            let identifier = format!("user-{number}");
            let place = percentage(&[b"7,key_", identifier.as_bytes()]);
            let expected = match place {
                _ if place < 30.0 => "\"early\"",
                _ if place < 60.0 => "\"late\"",
                _ => "\"own\"",
            };
            assert_eq!(told(&options, &identifier).0, expected, "{identifier} at {place}");
            seen.insert(expected);
        }
        assert_eq!(seen.len(), 3);
    }

    #[test]
    fn identity_override_whose_variants_have_no_seed_is_refused() {
        let mut flag = flag(&[(1, 50.0, "a", None)]);
        flag.variants.as_mut().unwrap().seed = None;
        let identity = Identity { client_key: "key", identifier: "somebody" };
        assert!(matches!(identity_flag(1, &flag, identity), Err(Error::Seed { .. })));
    }
}
