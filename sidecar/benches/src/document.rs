//! Writes a profile as the document that Flagsmith emits, with all of its members, including those that no answer
//! depends on.

use std::fmt::Write as _;

use crate::conditions::{self, Condition};
use crate::population;
use crate::profile::{CLIENT_KEY, Profile};
use crate::random::Random;

/// Writes the document of a profile.
#[must_use]
pub fn write(profile: &Profile) -> String {
    let mut writer = Writer { text: String::new(), random: Random::new(0x5eed), row: 0 };
    writer.environment(profile);
    writer.text
}

struct Writer {
    text: String,
    random: Random,
    /// Id of the last row. Rows of Flagsmith's database have ascending ids.
    row: usize,
}

impl Writer {
    /// Appends text. Writing to a string cannot fail.
    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = self.text.write_fmt(text);
    }

    fn list<T>(&mut self, items: impl IntoIterator<Item = T>, mut item: impl FnMut(&mut Self, T)) {
        self.text.push('[');
        for (number, each) in items.into_iter().enumerate() {
            if number > 0 {
                self.text.push(',');
            }
            item(self, each);
        }
        self.text.push(']');
    }

    fn uuid(&mut self) -> String {
        let (high, low) = (self.random.bits(), self.random.bits());
        format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xfff,
            low >> 48 & 0xfff,
            low & 0xffff_ffff_ffff
        )
    }

    /// Returns the value of a feature: null, a number, a word, or sometimes a small JSON document.
    fn value(&mut self, kind: usize, seed: usize) -> String {
        match kind % 5 {
            0 => "null".to_owned(),
            1 => format!("{}", 10 + seed % 90),
            2 => format!(r#""variant-{:04}-of-{kind}""#, seed % 10_000),
            3 => format!(r#""{{\"limit\":{},\"theme\":\"dark\",\"rollout\":\"{:08x}\"}}""#, seed % 1000, seed),
            _ => format!(r#""https://cdn.example.com/assets/{:06}/banner.svg""#, seed % 1_000_000),
        }
    }

    fn environment(&mut self, profile: &Profile) {
        self.put(format_args!(r#"{{"id":3,"api_key":"{CLIENT_KEY}","project":{{"id":2,"name":"Storefront","#));
        self.put(format_args!(
            r#""organisation":{{"id":2,"name":"Example","feature_analytics":false,"stop_serving_flags":false,"persist_trait_data":true}},"#
        ));
        self.put(format_args!(r#""hide_disabled_flags":false,"segments":"#));
        self.list(0..profile.segments, |writer, segment| writer.segment(profile, segment));
        self.put(format_args!(
            r#","enable_realtime_updates":false,"server_key_only_feature_ids":[]}},"feature_states":"#
        ));
        self.list(0..profile.features, |writer, feature| {
            let seed = writer.random.below(1 << 30);
            let value = writer.value(feature, seed);
            let split = feature >= profile.features - profile.split;
            writer.state(feature, feature % 3 != 0, &value, None, split);
        });
        self.put(format_args!(r#","identity_overrides":"#));
        self.list(0..profile.identities, |writer, identity| writer.identity(profile, identity));
        self.put(format_args!(
            r#","name":"Production","allow_client_traits":true,"updated_at":"2026-11-21T00:18:32.135012+00:00","hide_sensitive_data":false,"hide_disabled_flags":null,"use_identity_composite_key_for_hashing":true,"use_identity_overrides_in_local_eval":true}}"#
        ));
    }

    fn segment(&mut self, profile: &Profile, segment: usize) {
        self.put(format_args!(
            r#"{{"id":{},"name":"segment_{segment:02}","rules":[{{"type":"ALL","rules":[{{"type":"ALL","rules":[],"conditions":"#,
            segment + 4
        ));
        let conditions = if profile.population {
            population::conditions(segment, profile.conditions_of(segment))
        } else {
            conditions::of_segment(segment, profile.conditions_of(segment), profile.matches(segment))
        };
        self.list(conditions, |writer, Condition { operator, property, value }| {
            let value = value.replace('\\', "\\\\");
            writer.put(format_args!(r#"{{"operator":"{operator}","value":"{value}","property_":"{property}"}}"#));
        });
        self.put(format_args!(r#"}}],"conditions":[]}}],"feature_states":"#));
        let first = segment * profile.spread;
        self.list(0..profile.targets, |writer, target| {
            let feature = (first + target) % profile.features;
            let seed = writer.random.below(1 << 30);
            let value = writer.value(feature, seed);
            // For each feature, another segment has the highest priority.
            let priority = (segment + feature) % profile.segments;
            writer.state(feature, (segment + feature).is_multiple_of(2), &value, Some(priority), false);
        });
        self.text.push('}');
    }

    fn state(&mut self, feature: usize, enabled: bool, value: &str, priority: Option<usize>, split: bool) {
        self.row += 1;
        let (row, uuid) = (self.row, self.uuid());
        let kind = if split { "MULTIVARIATE" } else { "STANDARD" };
        let priority = priority.map_or("null".to_owned(), |priority| format!(r#"{{"priority":{priority}}}"#));
        self.put(format_args!(
            r#"{{"feature":{{"id":{},"name":"{}","type":"{kind}"}},"enabled":{enabled},"django_id":{row},"feature_segment":{priority},"featurestate_uuid":"{uuid}","feature_state_value":{value},"multivariate_feature_state_values":"#,
            feature + 26,
            Profile::feature(feature),
        ));
        let variants = if split { 2 } else { 0 };
        self.list(0..variants, |writer, variant| {
            let uuid = writer.uuid();
            writer.put(format_args!(
                r#"{{"multivariate_feature_option":{{"value":"variant_{variant}","id":{},"key":"key_{variant}"}},"percentage_allocation":30.0,"id":{},"mv_fs_value_uuid":"{uuid}"}}"#,
                row * 10 + variant,
                row * 10 + variant + 5,
            ));
        });
        self.text.push('}');
    }

    /// Most identities have a flag switched, or a value that others have too. Every tenth has a value of its own.
    fn identity(&mut self, profile: &Profile, identity: usize) {
        let identifier = Profile::identifier(identity);
        self.put(format_args!(
            r#"{{"identifier":"{identifier}","environment_api_key":"{CLIENT_KEY}","created_date":"2026-10-{:02}T08:{:02}:{:02}.784017+00:00","identity_features":"#,
            1 + identity % 28,
            identity / 60 % 60,
            identity % 60,
        ));
        let first = if profile.list { 0 } else { self.random.below(profile.features) };
        self.list(0..profile.flags_each, |writer, flag| {
            let feature = (first + flag * 17) % profile.features;
            let seed = match (profile.list, identity % 10) {
                (true, _) => 0,
                (false, 0) => identity,
                (false, _) => writer.random.below(4),
            };
            let value = writer.value(feature, seed);
            writer.state(feature, profile.list || seed % 2 == 0, &value, None, false);
        });
        let uuid = self.uuid();
        self.put(format_args!(
            r#","identity_traits":[],"identity_uuid":"{uuid}","django_id":{},"dashboard_alias":null,"composite_key":"{CLIENT_KEY}_{identifier}"}}"#,
            identity + 1
        ));
    }
}
