use super::*;

/// Compiles one pattern, as the first of a document.
fn compile(pattern: &str) -> Result<Pattern, PatternError> {
    Patterns::default().compile(pattern)
}
use remora_snapshot::model::{
    Condition, Context, Environment, Feature, Junction, Override, Property, Rule, Segment, Test,
};
use remora_snapshot::{RequestState, Role, Snapshot, TraitValue};

/// Returns true if the compiled pattern matches, evaluated through a snapshot.
fn matches(pattern: &str, text: &str) -> bool {
    let context = |enabled| Context { enabled, value: "null".to_owned(), split: None };
    let environment = Environment {
        features: vec![Feature {
            id: 1,
            name: "f".to_owned(),
            kind: "STANDARD".to_owned(),
            served: true,
            server_only: false,
            default: context(false),
        }],
        segments: vec![Segment {
            id: "1".to_owned(),
            name: "s".to_owned(),
            rules: vec![Rule {
                junction: Junction::All,
                conditions: vec![Condition {
                    property: 0,
                    test: Test::Matches(compile(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"))),
                }],
                rules: Vec::new(),
            }],
            overrides: vec![Override { feature: 0, priority: None, context: context(true) }],
            identity_free: false,
        }],
        properties: vec![Property {
            name: Some("t".to_owned()),
            derivation: remora_snapshot::model::Derivation::Plain,
        }],
        ..Environment::default()
    };
    let written = remora_snapshot::write(&environment, usize::MAX).unwrap();
    let snapshot = Snapshot::read(written.files.into_iter().next().unwrap().bytes).unwrap();
    let mut request = RequestState::default();
    snapshot.identify(&mut request, "x");
    snapshot.set_trait(&mut request, "t", TraitValue::String(text));
    let mut out = Vec::new();
    snapshot.write_flags(&mut request, Role::Server, &mut out);
    String::from_utf8(out).unwrap().contains("\"enabled\":true")
}

fn is_automaton(pattern: &str) -> bool {
    matches!(compile(pattern), Ok(Pattern::Automaton(_)))
}

#[test]
fn match_begins_at_start_and_ends_anywhere() {
    for (pattern, text, wanted) in [
        ("ab", "abc", true),
        ("b", "abc", false),
        ("", "x", true),
        ("a|b", "b", true),
        ("a.c", "a\nc", false),
        ("(?s)a.c", "a\nc", true),
        ("a$", "a\n", true),
        ("a$", "a\n\n", false),
        (r"a\Z", "a\n", false),
        ("(?m)a$.b", "a\nb", false),
        ("(?ms)a$.b", "a\nb", true),
        ("a$\n", "a\n", true),
        ("a{2,3}$", "aaaa", false),
        ("a{,2}b", "aab", true),
        ("a{x}", "a{x}", true),
        ("x*", "", true),
        ("[]a]+", "]a", true),
        ("[^]a]", "]", false),
        (r"\d+", "١٢", true),
        (r"(?a)\d", "١", false),
        (r"\w+$", "größe_1", true),
        (r"\s", "\u{1c}", true),
        (r"\x41\u0042\103", "ABC", true),
        ("(?i)straße", "STRAßE", true),
        ("(?i)i", "ı", true),
        ("(?i)i", "İ", true),
        ("(?i)s", "ſ", true),
        ("(?ai)k", "\u{212a}", false),
        ("(?i)k", "\u{212a}", true),
        ("(?i:a)b", "Ab", true),
        ("(?i:a)b", "AB", false),
        ("(?x) a b # c\n c", "abc", true),
        ("a(?#comment)b", "ab", true),
        ("[a-z&&b]", "&", true),
        ("(?i)[^k]", "K", false),
        ("(?i)[A-C]+$", "abc", true),
    ] {
        assert_eq!(matches(pattern, text), wanted, "{pattern:?} on {text:?}");
    }
}

// Python 3.11.7 compiles these patterns.
#[test]
fn comment_ends_at_unescaped_end_and_may_stand_before_flags() {
    for (pattern, text, wanted) in [
        (r"(?#a\)b)c", "c", true),
        ("(?x)a#c\\\nb", "a", true),
        ("(?#c)(?i)a", "A", true),
        ("(?i)(?#c)(?s)a.", "A\n", true),
        ("(?x) (?x) a", "a", true),
        ("(?x)#c\n(?i)a", "A", true),
        ("(?x) (?#c) (?i)a", "A", true),
        ("(?x)\u{b}(?i)a", "A", true),
        ("(?i)(?#)", "", true),
        ("(?ii)a", "A", true),
        ("(?aa:a)", "a", true),
        ("(?iu:a)", "A", true),
        ("(?mm-s:a)", "a", true),
        ("(?a)(?u:\\d)", "\u{661}", true),
    ] {
        assert_eq!(matches(pattern, text), wanted, "{pattern:?} on {text:?}");
    }
}

// Python 3.11.7 refuses these patterns.
#[test]
fn flags_that_contradict_and_late_flags_are_refused() {
    for (pattern, problem) in [
        ("(?i-i:a)", "on and off"),
        ("(?s-s:a)", "on and off"),
        ("(?i-:a)", "without a flag"),
        ("(?-:a)", "without a flag"),
        ("(?--i:a)", "unknown extension"),
        ("(?au:a)", "both flags a and u"),
        ("(?au)a", "both flags a and u"),
        ("(?a)(?u)a", "both flags a and u"),
        ("(?u)(?a)a", "both flags a and u"),
        (" (?x)a", "not at its start"),
        ("|(?i)a", "not at its start"),
        ("()(?i)a", "not at its start"),
        ("(?x)a#c\\", "ends in a backslash"),
        (r"(?#a\", "ends in a backslash"),
        ("(?#a", "not closed"),
    ] {
        let error = compile(pattern).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(problem), "{pattern:?}: {error}");
    }
}

#[test]
fn pattern_without_automaton_is_matched_by_backtracking() {
    for (pattern, text, wanted) in [
        (r"(a+)b\1$", "aabaa", true),
        (r"(a+)b\1$", "aaba", false),
        (r"(?P<q>['x]).*(?P=q)", "'a'", true),
        ("a(?=b)", "ab", true),
        ("a(?!b)", "ab", false),
        ("ab(?<=ab)c", "abc", true),
        ("ab(?<!ab)c", "abc", false),
        (r"\bfoo\b", "foo bar", true),
        (r"foo\B", "foo bar", false),
        (r"\B", "", false),
        ("(?>a+)a", "aaa", false),
        ("a++a", "aaa", false),
        ("(a)?b(?(1)c|d)", "abc", true),
        ("(a)?b(?(1)c|d)", "bd", true),
        ("(a)?b(?(1)c|d)", "abd", false),
        (r"(?i)(a)\1", "aA", true),
        (r"(?i)(é)\1$", "éÉ", true),
        (r"(?ai)(a)\1$", "aA", true),
        (r"(?ai)(é)\1$", "éÉ", false),
        (r"(?ai)(é)\1$", "éé", true),
        (r"(?ai)(k)\1$", "k\u{212a}", false),
        (r"(?:a|ab)(?:c|bcd)(d*)$\B|^(?=abcd)abcd", "abcd", true),
        (r"(a*)*\1b", "b", true),
        (r"(?:(a)|b)*\1$", "aba", true),
        // No further match follows an empty one, and a group that is entered again has not matched.
        (r"(?:(?(1)a|())){0,2}$", "a", false),
        (r"(?>(?:|a|aaa){0,2}(?<=aa))aa$", "aaaa", true),
        (r"(?:((?(1).|\b))){0,2}(?=(?:(\Z)|(b)))", "a", false),
        (r"(?:x(a(?(1)b|c)))+$", "xacxac", true),
        (r"(?:x(a(?(1)b|c)))+$", "xacxab", false),
        (r"(?:(?>|a|b){0,3}c){1,2}(?=$)", "aac", false),
        (r"(?:(?>|a|b){0,3}c){1,2}(?=$)", "cc", true),
        (r"(?:(?:|a){0,3}?b){2}(?=c)", "abaabc", true),
        (r"(?:(?:|a){0,3}b){2}+(?=c)", "abaabc", true),
        (r"(?:(?:a|)(?:|b){0,2}){0,3}(?=c)", "ababbc", true),
    ] {
        assert_eq!(matches(pattern, text), wanted, "{pattern:?} on {text:?}");
        assert!(!is_automaton(pattern) || pattern == r"\B", "{pattern}");
    }
}

#[test]
fn common_patterns_become_automata() {
    for pattern in [
        r"^[a-z0-9]+@example\.(com|org)$",
        r"^\+?[0-9 ]{5,20}$",
        "foo|bar",
        r"(?i)^beta-",
        r"^https?://[^/]+/",
        "(a+)+$",
        r".*@example\.com$",
        r"^\d{4}-\d{2}-\d{2}$",
        r"^[\w.]+@",
    ] {
        assert!(is_automaton(pattern), "{pattern}");
    }
}

#[test]
fn pattern_that_python_refuses_is_refused() {
    for pattern in [
        "(",
        ")",
        "a)",
        "[",
        "[b-a]",
        "*",
        "a**",
        "^*",
        "a{3,2}",
        r"\1",
        r"(\1)",
        r"\q",
        r"[\q]",
        "(?P<1>a)",
        "(?P=x)",
        "(?z)",
        "a(?i)b",
        r"(?<=a+)b",
        r"\",
        r"\x4",
        "(?(1)a|b)",
        "(?<n>a)",
        r"\400",
        "(?-a:b)",
    ] {
        assert!(compile(pattern).is_err(), "{pattern}");
    }
}

#[test]
fn pattern_beyond_size_limit_is_refused() {
    assert!(compile(&"(".repeat(100)).is_err());
    assert!(compile(&format!("{}{}", "(?:a".repeat(50), "){1000}".repeat(50))).is_err());
    assert!(compile(&"a".repeat(10_000)).is_err());
    assert!(compile("(?:a{1000}){1000}").is_err());
}

#[test]
fn nested_repetitions_of_empty_pattern_stay_small() {
    let nested = format!("(?=x){}{}", "(?:".repeat(5), "){9999}".repeat(5));
    assert!(matches(&nested, "x") && !matches(&nested, "y"));
    assert!(matches("(?=x)(?:a{0}){9999}x", "x"));
    // These parts emit no instructions and are not simplified, but their work is counted.
    let counted = format!("(?=x){}a{{0}}b{{0}}{}", "(?:".repeat(5), "){9999}".repeat(5));
    assert_eq!(compile(&counted).map(|_| ()), Err(PatternError::OutOfSteps));
}

#[test]
fn automaton_beyond_its_step_budget_becomes_program() {
    let mut patterns = Patterns::default();
    assert!(patterns.compile(".{0,1000}x").is_ok_and(|pattern| matches!(pattern, Pattern::Backtracking(_))));
    assert!(DOCUMENT_STEPS - patterns.budget.left() < 2 * AUTOMATON_STEPS, "{}", patterns.budget.left());
    let before = patterns.budget.left();
    assert!(patterns.compile(".{0,1000}x").is_ok());
    assert_eq!(patterns.budget.left(), before, "a pattern is compiled once");
    assert!(matches(".{0,1000}x", &format!("{}x", "a".repeat(1_000))));
    assert!(!matches(".{0,1000}x", &format!("{}x", "a".repeat(1_001))));
}

#[test]
fn steps_of_document_are_bounded_and_reported() {
    let mut patterns = Patterns::default();
    let pattern = |number: usize| format!("(?i)(?=a){}{number}", "[!-ſ]".repeat(1_300));
    let message = (0..1_000).find_map(|number| patterns.compile(&pattern(number)).err()).unwrap().to_string();
    assert!(message.contains("steps for all patterns of a document"), "{message}");
    assert!(patterns.compile("b").is_err() && patterns.budget.left() == 0);
}

#[test]
fn size_of_all_patterns_is_bounded_and_reported() {
    let mut patterns = Patterns::default();
    let compiled: Vec<_> = (0..400).map(|number| patterns.compile(&format!("{number}(?:a{{20}}){{20}}"))).collect();
    let count = |is: fn(&Result<Pattern, PatternError>) -> bool| compiled.iter().filter(|one| is(one)).count();
    assert!(count(|one| matches!(one, Ok(Pattern::Automaton(_)))) > 100);
    assert!(count(|one| matches!(one, Ok(Pattern::Backtracking(_)))) > 100, "automata have no room for all");
    assert!(patterns.automata_bytes <= AUTOMATA_BYTES && patterns.bytes <= PATTERNS_BYTES);
    let message = (0..1_000)
        .find_map(|number| patterns.compile(&format!("{number}(?=a)(?:b{{90}}){{80}}")).err())
        .unwrap()
        .to_string();
    assert!(message.contains("for all compiled patterns") || message.contains("steps"), "{message}");
    assert!(patterns.bytes <= PATTERNS_BYTES);
}

#[test]
fn steps_for_large_set_are_proportional_to_its_size() {
    let work = |count: u32| {
        let characters: String = (0..count).filter_map(|n| char::from_u32(0x4e00 + 2 * n)).collect();
        let mut budget = StepBudget::new(u64::MAX);
        parse::parse(&format!("(?i)[{characters}]"), &mut budget).unwrap();
        u64::MAX - budget.left()
    };
    assert!(work(2_000) < 5 * work(500), "{} and {}", work(500), work(2_000));
}

#[test]
fn automata_of_many_sizes_stay_within_their_bytes() {
    let mut patterns = Patterns::default();
    let large = (0..440).map(|number| format!("x{{60}}w{number:03}"));
    let small = (0..200).map(|number| format!("s{number:03}"));
    for pattern in large.chain(small) {
        assert!(patterns.compile(&pattern).is_ok(), "{pattern}");
        assert!(patterns.automata_bytes <= AUTOMATA_BYTES, "{pattern}: {}", patterns.automata_bytes);
    }
    assert!(patterns.automata_bytes > AUTOMATA_BYTES - 1_000, "{}", patterns.automata_bytes);
}
