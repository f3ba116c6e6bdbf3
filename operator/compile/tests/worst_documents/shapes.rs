//! Documents of a given size whose compilation costs the most: one function for each way to cause much work with few
//! bytes.

use std::fmt::Write;

/// Name of a shape, and the function that returns its document of about this many bytes.
pub(crate) type Shape = (&'static str, fn(usize) -> String);

/// All shapes.
pub(crate) const SHAPES: &[Shape] = &[
    ("property-of-one-constant", |size| {
        // White space between the names of a path makes it another property.
        let spelled = |n: usize| format!("$.environment{}{}.name", " ".repeat(n % 40), "\\n".repeat(n / 40 % 40));
        let conditions = numbered(size / 2, |n| format!(r#"{{"operator":"IS_SET","property_":"{}"}}"#, spelled(n)));
        let name = format!(r#""name":"{}","project""#, "n".repeat(size / 2));
        environment(&feature(0), &segment(1, &rule("ALL", &conditions), &feature(0)), "").replacen(
            r#""project""#,
            &name,
            1,
        )
    }),
    ("in-array", |size| in_value(&format!("[{}]", numbered(size, |n| format!(r#""m{n}""#))))),
    ("in-array-of-ones", |size| in_value(&format!("[{}]", times(size, "1,", "1")))),
    ("in-array-of-lists", |size| in_value(&format!("[[{}]]", times(size, "[],", "[]")))),
    ("in-object", |size| in_value(&format!("[{{{}}}]", numbered(size, |n| format!(r#""{n}":1"#))))),
    ("in-object-one-key", |size| in_value(&format!("[{{{}}}]", times(size, r#""":1,"#, r#""":1"#)))),
    ("in-objects-nested", |size| {
        in_value(&format!("[{}]", times(size, &format!("{}1{},", r#"{"a":1,"a":"#.repeat(60), "}".repeat(60)), "1")))
    }),
    ("in-text-array", |size| in_text(&format!("[{}]", numbered(size, |n| format!(r#"\"m{n}\""#))))),
    ("in-text-members", |size| in_text(&numbered(size, |n| format!("m{n}")))),
    ("in-text-short-members", |size| in_text(&numbered(size, base))),
    ("in-commas", |size| in_text(&",".repeat(size))),
    ("in-lists-of-64", |size| {
        conditions(size, |n| in_of(&(n * 64..n * 64 + 64).map(|m| m.to_string()).collect::<Vec<_>>().join(",")))
    }),
    ("in-lists-of-64-texts", |size| {
        conditions(size, |n| in_of(&(n * 64..n * 64 + 64).map(|m| format!("m{m}")).collect::<Vec<_>>().join(",")))
    }),
    ("flags-of-one-identity", |size| {
        environment(&plain_features(size / 2), "", &numbered(size / 2, |n| identity("one", n)))
    }),
    ("identities-of-one-flag", |size| environment(&feature(0), "", &numbered(size, |n| identity(&format!("i{n}"), 0)))),
    ("identities-without-flags", |size| {
        environment(&feature(0), "", &times(size, r#"{"identifier":""},"#, r#"{"identifier":""}"#))
    }),
    ("features", |size| environment(&plain_features(size), "", "")),
    ("features-of-one-name", |size| environment(&times(size, &format!("{},", feature(0)), &feature(0)), "", "")),
    ("feature-long-name", |size| environment(&state(1, &"n".repeat(size), ""), "", "")),
    ("feature-long-kind", |size| {
        let kind = format!(r#"{{"feature":{{"id":0,"name":"f0","type":"{}"}},"enabled":true}}"#, "k".repeat(size / 2));
        environment(&kind, &numbered(size / 2, |n| segment(n, "", &feature(0))), "")
    }),
    ("feature-many-variants", |size| {
        let variants = numbered(size, |n| {
            format!(r#"{{"multivariate_feature_option":{{"value":{n}}},"percentage_allocation":0.01,"id":{}}}"#, n + 1)
        });
        environment(
            &state(1, "f", &format!(r#","django_id":1,"multivariate_feature_state_values":[{variants}]"#)),
            "",
            "",
        )
    }),
    ("segments-one-override", |size| environment(&feature(0), &numbered(size, |n| segment(n, "", &feature(0))), "")),
    ("segments-many-overrides", |size| {
        environment(
            &(0..200).map(feature).collect::<Vec<_>>().join(","),
            &numbered(size, |n| {
                let mut own: Vec<usize> = (0..200).collect();
                own.rotate_left(n % 200);
                let own: Vec<String> = own.iter().map(|f| format!(r#"{{"feature":{{"id":{f},"name":"f{f}"}},"enabled":true,"feature_segment":{{"priority":{}}}}}"#, (f * 7919 + n * 104_729) % 1000)).collect();
                segment(n, "", &own.join(","))
            }),
            "",
        )
    }),
    ("segments-without-overrides", |size| environment(&feature(0), &numbered(size, |n| segment(n, "", "")), "")),
    ("segments-of-one-id", |size| {
        environment(
            &feature(0),
            &times(size, &format!("{},", segment(1, "", &feature(0))), &segment(1, "", &feature(0))),
            "",
        )
    }),
    ("overrides-and-reads", |size| {
        let reads = numbered(size / 3, |n| format!(r#"{{"operator":"IS_SET","property_":"$.flags.f{n}.enabled"}}"#));
        let own = plain_features(size / 3);
        environment(&own, &segment(1, &rule("ANY", &reads), &own), "")
    }),
    ("chains-of-flags", |size| {
        let count = size / 250;
        environment(
            &(0..count).map(feature).collect::<Vec<_>>().join(","),
            &(0..count)
                .map(|n| {
                    let reads =
                        format!(r#"{{"operator":"IS_SET","property_":"$.flags.f{}.enabled"}}"#, (n + 1) % count);
                    segment(n, &rule("ALL", &reads), &feature(n))
                })
                .collect::<Vec<_>>()
                .join(","),
            "",
        )
    }),
    ("layers-of-flags", |size| {
        let (width, depth) = (size / 16_000, 60);
        environment(
            &(0..width * depth).map(feature).collect::<Vec<_>>().join(","),
            &(0..depth)
                .map(|layer| {
                    let of =
                        |layer: usize| (layer * width..(layer + 1) * width).map(feature).collect::<Vec<_>>().join(",");
                    let reads = (0..width)
                        .map(|n| {
                            format!(
                                r#"{{"operator":"IS_SET","property_":"$.flags.f{}.enabled"}}"#,
                                (layer + 1) % depth * width + n
                            )
                        })
                        .collect::<Vec<_>>();
                    segment(layer, &rule("ANY", &reads.join(",")), &of(layer))
                })
                .collect::<Vec<_>>()
                .join(","),
            "",
        )
    }),
    ("rules-empty", |size| {
        environment(&feature(0), &segment(1, &times(size, r#"{"type":"ALL"},"#, r#"{"type":"ALL"}"#), &feature(0)), "")
    }),
    ("rules-unknown", |size| {
        environment(&feature(0), &segment(1, &times(size, r#"{"type":""},"#, r#"{"type":""}"#), &feature(0)), "")
    }),
    ("rules-nested", |size| {
        let one = format!(
            "{}{}",
            r#"{"type":"ANY","conditions":[{"operator":"EQUAL","property_":"$.flags.f0.x"}],"rules":["#.repeat(55),
            "]}".repeat(55)
        );
        environment(&feature(0), &segment(1, &times(size, &format!("{one},"), &one), &feature(0)), "")
    }),
    ("conditions-unknown", |size| {
        environment(
            &feature(0),
            &segment(1, &rule("ALL", &times(size, r#"{"operator":""},"#, r#"{"operator":""}"#)), &feature(0)),
            "",
        )
    }),
    ("conditions-wrong", |size| conditions(size, |n| format!(r#"{{"operator":"MODULO","property_":"p{n}"}}"#))),
    ("conditions-equal-any", |size| {
        environment(
            &feature(0),
            &segment(
                1,
                &rule("ANY", &numbered(size, |n| format!(r#"{{"operator":"EQUAL","value":"{n}","property_":"a"}}"#))),
                &feature(0),
            ),
            "",
        )
    }),
    ("conditions-equal-none", |size| {
        conditions_of("NONE", size, |n| format!(r#"{{"operator":"EQUAL","value":"v{n}","property_":"a"}}"#))
    }),
    ("conditions-greater", |size| {
        conditions(size, |n| format!(r#"{{"operator":"GREATER_THAN","value":"{n}.5","property_":"a"}}"#))
    }),
    ("conditions-semver", |size| {
        conditions(size, |n| format!(r#"{{"operator":"LESS_THAN","value":"1.{n}.0:semver","property_":"a"}}"#))
    }),
    ("conditions-contains", |size| {
        conditions(size, |n| format!(r#"{{"operator":"CONTAINS","value":"{n}","property_":"a"}}"#))
    }),
    ("conditions-contains-alike", |size| {
        conditions(size, |n| {
            format!(r#"{{"operator":"CONTAINS","value":"{}","property_":"a{}"}}"#, "a".repeat(10_000), n / 64)
        })
    }),
    ("conditions-properties", |size| conditions(size, |n| format!(r#"{{"operator":"IS_SET","property_":"p{n}"}}"#))),
    ("properties-of-features", |size| {
        let own = plain_features(size / 2);
        environment(
            &own,
            &segment(
                1,
                &rule(
                    "ALL",
                    &numbered(size / 2, |n| format!(r#"{{"operator":"IS_SET","property_":"$.features.f{n}.value"}}"#)),
                ),
                &feature(0),
            ),
            "",
        )
    }),
    ("properties-of-segments", |size| {
        let others = numbered(size / 2, |n| segment(n + 2, "", ""));
        let reads = numbered(size / 2, |n| format!(r#"{{"operator":"IS_SET","property_":"$.segments['{n}'].name"}}"#));
        environment(&feature(0), &format!("{others},{}", segment(1, &rule("ALL", &reads), &feature(0))), "")
    }),
    ("property-parentheses", |size| condition_on(&format!("$.a[?{}", "(".repeat(size.min(600))))),
    ("property-filters", |size| condition_on(&format!("$.a{}[?@.b", "[?@.b".repeat((size / 100_000).clamp(1, 14))))),
    ("property-long", |size| condition_on(&format!("$.{}", "a.".repeat(size / 2)))),
    ("number-long", |size| {
        conditions_of("ALL", size, |n| {
            format!(r#"{{"operator":"EQUAL","value":"{}","property_":"a{n}"}}"#, "9".repeat(100_000))
        })
    }),
    ("number-4300", |size| {
        conditions_of("ALL", size, |n| {
            format!(r#"{{"operator":"GREATER_THAN","value":"{n}{}","property_":"a"}}"#, "9".repeat(4_200))
        })
    }),
    ("value-number-long", |size| {
        environment(&state(1, "f", &format!(r#","feature_state_value":{}"#, "9".repeat(size))), "", "")
    }),
    ("value-escapes", |size| {
        environment(&state(1, "f", &format!(r#","feature_state_value":"{}""#, r"\n".repeat(size / 2))), "", "")
    }),
    ("semver-long", |size| {
        conditions(size, |n| {
            format!(r#"{{"operator":"LESS_THAN","value":"1.0.0-{}{n}:semver","property_":"a"}}"#, "a.".repeat(20_000))
        })
    }),
    ("regex-counted", |size| patterns(size, |n| format!(".{{0,1000}}x{n}"))),
    ("regex-counted-same", |size| patterns(size, |_| ".{0,1000}x".to_owned())),
    ("regex-exponential", |size| patterns(size, |n| format!(".*a.{{12}}b{n}"))),
    ("regex-exponential-ascii", |size| patterns(size, |n| format!("(?s)[ -~]*a[ -~]{{9}}b{n}"))),
    ("regex-joint", |size| patterns(size, |n| format!("[ -~]*{}[ -~]{{6}}b", (b'a' + (n % 20) as u8) as char))),
    ("regex-empty-loops", |_| patterns(1, |_| "(?=x)(?:(?:(?:(?:(?:){9999}){9999}){9999}){9999}){9999}".to_owned())),
    ("regex-conditionals", |size| patterns(size, |n| format!("(){}{}{n}", "(?(1)".repeat(1_360), ")".repeat(1_360)))),
    ("regex-class", |size| patterns(size, |_| format!("[{}]", chars(0x4e00, 2_700, 2)))),
    ("regex-class-of-classes", |size| patterns(size, |n| format!("[{}]{n}", r"\\w".repeat(4_000)))),
    ("regex-classes-united", |size| patterns(size, |n| format!("(?=a){}{n}", r"[\\w\\W]".repeat(1_357)))),
    ("regex-classes-as-alternatives", |size| patterns(size, |n| format!("{}{n}", r"\\w|\\s|".repeat(1_600)))),
    ("regex-classes", |size| patterns(size, |n| format!("{}{n}", r"\\w".repeat(4_000)))),
    ("regex-classes-negated", |size| patterns(size, |n| format!("{}{n}(?=)", r"\\W\\d".repeat(2_000)))),
    ("regex-ignoring-case", |size| patterns(size, |n| format!("(?i){}{n}", "k".repeat(8_000)))),
    ("regex-ignoring-case-sets", |size| patterns(size, |n| format!("(?i)(?=a){}{n}", "[!-ſ]".repeat(1_300)))),
    ("regex-ignoring-case-short", |size| patterns(size, |n| format!("(?i)foo{n}"))),
    ("regex-alternatives", |size| {
        patterns(size, |n| format!("(?:{}){n}", numbered(7_000, |m| format!("{m}")).replace(',', "|")))
    }),
    ("regex-repeated", |size| patterns(size, |n| format!("(?:a{{90}}){{90}}{n}"))),
    ("regex-repeated-program", |size| patterns(size, |n| format!("(?=a)(?:a{{90}}){{90}}{n}"))),
    ("regex-possessive", |size| patterns(size, |n| format!("{}a{}{n}", "(?:".repeat(25), "b)++".repeat(25)))),
    ("regex-sets-in-program", |size| {
        patterns(size, |n| {
            format!(
                "(?={n})(?:{}){{100}}",
                chars(0x4e00, 81, 1).chars().map(|c| format!("[^{c}a]")).collect::<String>()
            )
        })
    }),
    ("regex-groups", |size| patterns(size, |n| format!("{}{n}", "(a)".repeat(250)))),
    ("regex-nested", |size| patterns(size, |n| format!("{}a{}{n}", "(".repeat(55), ")*".repeat(55)))),
    ("names-long", |size| {
        environment(
            &feature(0),
            &format!(
                r#"{{"id":1,"name":"{}","rules":[{{"type":"X"}},{{"type":"X"}}],"feature_states":[{}]}}"#,
                "\\u0001".repeat(size / 6),
                feature(0)
            ),
            "",
        )
    }),
    ("server-only-ids", |size| {
        format!(
            r#"{{"api_key":"k","project":{{"server_key_only_feature_ids":[{}]}},"feature_states":[]}}"#,
            times(size, "1,", "1")
        )
    }),
    ("unknown-members", |size| {
        format!(r#"{{"api_key":"k","project":{{"x":[{}]}},"feature_states":[]}}"#, times(size, "[],", "[]"))
    }),
];

fn times(size: usize, one: &str, last: &str) -> String {
    let mut text = one.repeat(size / one.len());
    text.push_str(last);
    text
}

/// Returns this many bytes: the results of `each` for 0, 1, 2 and so on, separated by commas.
fn numbered(size: usize, each: impl Fn(usize) -> String) -> String {
    let mut text = each(0);
    for number in 1.. {
        if text.len() >= size {
            break;
        }
        text.push(',');
        text.push_str(&each(number));
    }
    text
}

/// Returns a number in the fewest characters that a JSON string may have without escapes and without a comma.
fn base(mut number: usize) -> String {
    let digits: Vec<char> = (' '..='~').filter(|c| !matches!(c, ',' | '"' | '\\')).collect();
    let mut text = String::new();
    loop {
        text.push(digits[number % digits.len()]);
        number /= digits.len();
        if number == 0 {
            return text;
        }
    }
}

/// Returns characters from a code point on, each `step` code points after the previous one.
fn chars(first: u32, count: u32, step: u32) -> String {
    (0..count).filter_map(|n| char::from_u32(first + n * step)).collect()
}

fn environment(features: &str, segments: &str, identities: &str) -> String {
    format!(
        r#"{{"api_key":"k","updated_at":"","project":{{"segments":[{segments}]}},"feature_states":[{features}],"identity_overrides":[{identities}]}}"#
    )
}

fn state(id: usize, name: &str, more: &str) -> String {
    format!(r#"{{"feature":{{"id":{id},"name":"{name}"}},"enabled":true{more}}}"#)
}

fn feature(number: usize) -> String {
    state(number, &format!("f{number}"), "")
}

fn plain_features(size: usize) -> String {
    numbered(size, feature)
}

fn identity(identifier: &str, flag: usize) -> String {
    format!(r#"{{"identifier":"{identifier}","identity_features":[{}]}}"#, feature(flag))
}

fn segment(id: usize, rules: &str, overrides: &str) -> String {
    format!(r#"{{"id":{id},"name":"s","rules":[{rules}],"feature_states":[{overrides}]}}"#)
}

fn rule(junction: &str, conditions: &str) -> String {
    format!(r#"{{"type":"{junction}","conditions":[{conditions}]}}"#)
}

/// Returns a document with one segment whose conditions must all hold.
fn conditions(size: usize, each: impl Fn(usize) -> String) -> String {
    conditions_of("ALL", size, each)
}

fn conditions_of(junction: &str, size: usize, each: impl Fn(usize) -> String) -> String {
    environment(&feature(0), &segment(1, &rule(junction, &numbered(size, each)), &feature(0)), "")
}

fn in_value(value: &str) -> String {
    conditions(1, |_| format!(r#"{{"operator":"IN","value":{value},"property_":"a"}}"#))
}

fn in_text(value: &str) -> String {
    in_value(&format!(r#""{value}""#))
}

fn in_of(value: &str) -> String {
    format!(r#"{{"operator":"IN","value":"{value}","property_":"a"}}"#)
}

fn condition_on(property: &str) -> String {
    conditions(1, |_| format!(r#"{{"operator":"IS_SET","property_":"{property}"}}"#))
}

/// Returns a document with conditions whose patterns `each` returns, in JSON notation.
fn patterns(size: usize, each: impl Fn(usize) -> String) -> String {
    conditions(size, |n| {
        let mut condition = String::new();
        let _ = write!(condition, r#"{{"operator":"REGEX","value":"{}","property_":"a{}"}}"#, each(n), n / 2);
        condition
    })
}
