//! The complete answers that do not depend on the request.

use crate::format::{
    layout::{END, state},
    model::{Context, Environment, Feature},
};
use crate::values::json;

use super::experiments;

/// `[item,item,...]`, and the offset of each feature's item. The last bound is the closing bracket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PreparedAnswer {
    pub(super) body: Vec<u8>,
    pub(super) bounds: Vec<usize>,
    /// Sum of the digests of its features.
    pub(super) digest: u64,
}

/// The answers for both kinds of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answers {
    pub(super) client: PreparedAnswer,
    pub(super) server: PreparedAnswer,
}

/// Joins one item per feature (empty if omitted) and its digest to an array. The range of an item includes the comma
/// after it.
pub(super) fn join(items: Vec<(Vec<u8>, u64)>) -> PreparedAnswer {
    let mut body = vec![b'['];
    let mut bounds = Vec::with_capacity(items.len() + 1);
    let mut sum = 0_u64;
    for (item, digest) in items {
        bounds.push(body.len());
        sum = sum.wrapping_add(digest);
        if !item.is_empty() {
            body.extend_from_slice(&item);
            body.push(b',');
        }
    }
    if body.last() == Some(&b',') {
        body.pop();
    }
    for bound in &mut bounds {
        *bound = (*bound).min(body.len());
    }
    bounds.push(body.len());
    body.push(b']');
    PreparedAnswer { body, bounds, digest: sum }
}

/// Builds the answers in which every feature has its default.
pub(super) fn plain(environment: &Environment) -> Answers {
    let answer = |server: bool| {
        join(
            environment
                .features
                .iter()
                .enumerate()
                .map(|(number, feature)| {
                    let hidden = !feature.served
                        || (feature.server_only && !server)
                        || (environment.hide_disabled && !feature.default.enabled);
                    match hidden {
                        true => (Vec::new(), 0),
                        false => item(feature, &feature.default, experiments::of_default(environment, number)),
                    }
                })
                .collect(),
        )
    };
    Answers { client: answer(false), server: answer(true) }
}

/// Returns a flag without the members of an experiment, which only identities get, and the digest with them.
fn item(feature: &Feature, context: &Context, metadata: experiments::Metadata<'_>) -> (Vec<u8>, u64) {
    let mut item = flagsmith_head(feature);
    item.extend_from_slice(&flagsmith_tail(context));
    item.pop(); // the comma
    (item, experiments::digest(feature, context, None, metadata))
}

/// Returns the rest of a flag object of Flagsmith's dialect from its state on, with a comma.
pub(super) fn flagsmith_tail(context: &Context) -> Vec<u8> {
    [state(context.enabled), context.value.as_bytes(), END].concat()
}

/// Returns the flag object of Flagsmith's dialect up to its state.
pub(super) fn flagsmith_head(feature: &Feature) -> Vec<u8> {
    let mut head = format!("{{\"feature\":{{\"id\":{},\"name\":", feature.id);
    json::write_string(&feature.name, &mut head);
    head.push_str(",\"type\":");
    json::write_string(&feature.kind, &mut head);
    head.push_str("},\"enabled\":");
    head.into_bytes()
}

/// Returns the flag object of OFREP up to its value.
pub(super) fn ofrep_head(feature: &Feature) -> Vec<u8> {
    let mut head = String::from("{\"key\":");
    json::write_string(&feature.name, &mut head);
    head.into_bytes()
}

/// Returns the flag object of OFREP from its metadata on, up to its state.
pub(super) fn ofrep_tail(feature: &Feature) -> Vec<u8> {
    format!(",\"metadata\":{{\"featureId\":{},\"enabled\":", feature.id).into_bytes()
}
