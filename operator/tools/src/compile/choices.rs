//! Names of the compiler's choices on the command line, with their help.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use remora_compile::{BooleanFlags, DisabledFlags, EnvironmentFlags, ObjectFlags};

/// A choice: its name, its help, and its value.
pub(super) type Choice<T> = (&'static str, &'static str, T);

/// Choices of `spec.serve.environmentFlags`.
pub(super) const ENVIRONMENT_FLAGS: [Choice<EnvironmentFlags>; 3] = [
    ("plain", "No segment overrides, like Flagsmith's API", EnvironmentFlags::Plain),
    ("identity-free", "Overrides of segments that need no identity", EnvironmentFlags::IdentityFree),
    ("all-segments", "Overrides of all segments, like Flagsmith's edge proxy", EnvironmentFlags::AllSegments),
];

/// Choices of `spec.serve.ofrep.booleanFlags`.
pub(super) const BOOLEAN_FLAGS: [Choice<BooleanFlags>; 2] = [
    ("value", "The flag's value", BooleanFlags::Value),
    ("enabled", "True if the flag is enabled, else false", BooleanFlags::Enabled),
];

/// Choices of `spec.serve.ofrep.disabledFlags`.
pub(super) const DISABLED_FLAGS: [Choice<DisabledFlags>; 2] = [
    ("code-default", "No value, so the application uses its own default", DisabledFlags::CodeDefault),
    ("value", "The flag's value, although the flag is disabled", DisabledFlags::Value),
];

/// Choices of `spec.serve.ofrep.objectFlags`.
pub(super) const OBJECT_FLAGS: [Choice<ObjectFlags>; 2] =
    [("text", "The string", ObjectFlags::Text), ("object", "The parsed object", ObjectFlags::Object)];

/// Returns a parser that takes the name of a choice.
pub(super) fn choice<T: Copy + Send + Sync>(choices: &'static [Choice<T>]) -> impl TypedValueParser<Value = T> {
    let names = choices.iter().map(|(name, help, _)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(names).try_map(|given| {
        choices.iter().find(|(name, ..)| *name == given).map(|(.., value)| *value).ok_or("there is no such choice")
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use remora_compile::{BooleanFlags, DisabledFlags, EnvironmentFlags, ObjectFlags};

    use crate::compile::Compile;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        compile: Compile,
    }

    fn parsed(options: &[&str]) -> Result<Compile, clap::Error> {
        let required = ["compile", "--document", "-", "--output", "x"];
        Line::try_parse_from(required.iter().chain(options)).map(|line| line.compile)
    }

    #[test]
    fn choices_default_to_those_of_the_spec() {
        let compile = parsed(&[]).unwrap();
        assert_eq!(compile.environment_flags, EnvironmentFlags::default());
        assert_eq!(compile.ofrep_boolean_flags, BooleanFlags::default());
        assert_eq!(compile.ofrep_disabled_flags, DisabledFlags::default());
        assert_eq!(compile.ofrep_object_flags, ObjectFlags::default());
    }

    #[test]
    fn choice_is_parsed_by_its_name_and_others_are_refused() {
        let compile = parsed(&["--environment-flags", "all-segments", "--ofrep-disabled-flags", "value"]).unwrap();
        assert_eq!(compile.environment_flags, EnvironmentFlags::AllSegments);
        assert_eq!(compile.ofrep_disabled_flags, DisabledFlags::Value);
        let refused = parsed(&["--ofrep-object-flags", "json"]).unwrap_err().to_string();
        assert!(refused.contains("[possible values: text, object]"), "{refused}");
    }
}
