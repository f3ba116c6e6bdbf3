//! CEL expressions that parse the annotations of a pod and of its namespace like
//! [`annotations`](super::super::annotations).

use remora_snapshot::duration::PATTERN;

use super::{Variables, quoted, text, texts, to_cel, to_cel::Placeholder};
use crate::{
    api::names::{ENVIRONMENT_MAX, annotation, sidecar},
    injection::{
        annotations::{self as annotations, Invalid, LOG_LEVELS, MOST_ENVIRONMENTS, NOT_NAMES, PORTS, VARIABLES},
        quantity::{self, DIGITS, Grammar, THOUSANDTHS},
        startup_timeout::{self, LONGEST},
    },
};

/// Options that annotations set, by the name of their variable.
const OPTIONS: [(&str, &str); 12] = [
    ("port", annotation::PORT),
    ("cpuRequest", annotation::CPU_REQUEST),
    ("cpuLimit", annotation::CPU_LIMIT),
    ("memoryRequest", annotation::MEMORY_REQUEST),
    ("memoryLimit", annotation::MEMORY_LIMIT),
    ("await", annotation::AWAIT),
    ("logLevel", annotation::LOG_LEVEL),
    ("logJson", annotation::LOG_JSON),
    ("env", annotation::ENV),
    ("socket", annotation::UNIX_SOCKET),
    ("overrides", annotation::OVERRIDES),
    ("overrideKey", annotation::OVERRIDE_KEY),
];

pub(super) fn define(variables: &mut Variables) {
    let annotations = |of: &str| format!("has({of}.metadata.annotations) ? {of}.metadata.annotations : {{}}");
    variables.define("annotations", annotations("object"));
    variables.define("defaults", annotations("namespaceObject"));
    environments(variables);
    let keys = texts(OPTIONS.map(|(_, key)| key));
    variables
        .define("hasOptions", format!("{keys}.exists(key, key in variables.annotations || key in variables.defaults)"));
    for (name, key) in OPTIONS {
        let expression = format!("variables.annotations[?{key}].or(variables.defaults[?{key}])", key = text(key));
        variables.define(&format!("{name}Option"), expression);
    }
    bounds(variables, "cpu", &quantity::CPU, [annotation::CPU_REQUEST, annotation::CPU_LIMIT]);
    bounds(variables, "memory", &quantity::MEMORY, [annotation::MEMORY_REQUEST, annotation::MEMORY_LIMIT]);
    variables.define(
        "awaitMillis",
        // `u` stands for `ms`, so that each unit is one character.
        "variables.awaitOption.orValue(variables.chartAwait).replace('ms', 'u').findAll('[0-9]+[hmsu]')\n  \
         .map(part, int(part.substring(0, size(part) - 1)) * {'h': 3600000, 'm': 60000, 's': 1000, 'u': 1}[part.substring(size(part) - 1)]).sum()",
    );
    let chosen = format!(
        "[variables.envOption.orValue('{}')].map(text, text == 'none' ? []\n  : text.split(',').map(name, {}))[0]",
        VARIABLES.join(","),
        trimmed("name")
    );
    variables.define("chosenVariables", chosen);
    variables.define("checks", checks());
    // Most pods have no options, and nothing to check but the names.
    let invalid = format!(
        "!variables.hasOptions && size(variables.environmentErrors) == 0 ? []\n  \
         : variables.checks.filter(check, !check.valid).map(check,\n  {})",
        invalid()
    );
    variables.define("invalid", invalid);
    values(variables);
}

/// Defines the environments that the pod requests, and the errors in the list.
fn environments(variables: &mut Variables) {
    variables.define("inject", format!("variables.annotations[{}]", text(annotation::INJECT)));
    variables.define("environments", names("variables.inject"));
    let valid = format!("^[a-z0-9]([-a-z0-9]{{0,{}}}[a-z0-9])?$", ENVIRONMENT_MAX - 2);
    let environment_errors = format!(
        "variables.environments.transformList(place, name, place <= {MOST_ENVIRONMENTS},\n  name.contains('/') ? {elsewhere} : name in {whether} ? {inject} + '; ' + name + {not_a_name}\n  \
         : !name.matches({valid}) ? {inject}\n  \
         : variables.environments.indexOf(name) < place ? 'a list that names ' + name + ' once' : '').filter(error, error != '')\n  \
         + (size(variables.environments) > {MOST_ENVIRONMENTS} ? ['a list of at most {MOST_ENVIRONMENTS} environments'] : [])",
        elsewhere = text(annotations::OWN_NAMESPACE),
        whether = texts(NOT_NAMES),
        not_a_name = text(annotations::NOT_A_NAME),
        inject = text(annotations::INJECT),
        valid = text(&valid),
    );
    variables.define("environmentErrors", environment_errors);
}

/// Returns an expression of the names in the value of the inject annotation.
pub(super) fn names(inject: &str) -> String {
    // Splits off one name more than allowed and the rest as one item, which bounds the work on a long list.
    format!("{inject}.split(',', {}).map(name, {})", MOST_ENVIRONMENTS + 2, trimmed("name"))
}

/// Returns an expression without leading and trailing spaces. Other white space stays.
fn trimmed(name: &str) -> String {
    format!("{name}.find('(?s)[^ ](.*[^ ])?')")
}

/// Defines if request and limit of one resource are valid, if the request exceeds the limit, and which of them apply.
fn bounds(variables: &mut Variables, resource: &str, grammar: &Grammar, [request, limit]: [&str; 2]) {
    let fractional: Vec<_> = grammar.suffixes.iter().copied().filter(|suffix| *suffix != THOUSANDTHS).collect();
    let whole = if grammar.suffixes.contains(&THOUSANDTHS) { format!("|{THOUSANDTHS}") } else { String::new() };
    let shape = format!("^[0-9]{{1,{}}}(([.][0-9]{{1,{}}})?({}){whole})$", DIGITS.0, DIGITS.1, fractional.join("|"));
    for part in ["Request", "Limit"] {
        let valid = format!(
            "variables.{resource}{part}Option.optMap(text, text.matches({shape}) && quantity(text).compareTo(quantity('{least}')) >= 0\n  \
             && quantity(text).compareTo(quantity('{most}')) <= 0)",
            shape = text(&shape),
            least = grammar.least,
            most = grammar.most,
        );
        variables.define(&format!("{resource}{part}Valid"), valid);
    }
    variables.define(
        &format!("{resource}RequestExceedsLimit"),
        format!(
            "variables.{resource}RequestValid.orValue(false) && variables.{resource}LimitValid.orValue(false)\n  \
             && quantity(variables.{resource}RequestOption.value()).isGreaterThan(quantity(variables.{resource}LimitOption.value()))"
        ),
    );
    // The pod's own value takes precedence over the namespace's default.
    for (part, key) in [("Request", request), ("Limit", limit)] {
        variables.define(
            &format!("{resource}{part}Chosen"),
            format!(
                "variables.{resource}RequestExceedsLimit && !({} in variables.annotations) ? optional.none() : variables.{resource}{part}Option",
                text(key)
            ),
        );
    }
}

/// Returns a list of checks, one or more per annotation. The first failed check gives the message.
fn checks() -> String {
    let check = |key: &str, value: &str, valid: String, expected: String| {
        format!(
            "  {{'key': dyn({}), 'value': dyn({value}), 'valid': dyn({valid}), 'expected': dyn({expected})}}",
            text(key)
        )
    };
    let option = |key: &str, name: &str, valid: String, expected: &str| {
        check(key, &format!("variables.{name}Option.orValue('')"), valid, text(expected))
    };
    let one_of = |name: &str, all: &[&str]| {
        format!("variables.{name}Option.optMap(text, text in {}).orValue(true)", texts(all.iter().copied()))
    };
    let mut all = vec![check(
        annotation::INJECT,
        "variables.inject",
        "size(variables.environmentErrors) == 0".to_owned(),
        "size(variables.environmentErrors) > 0 ? variables.environmentErrors[0] : ''".to_owned(),
    )];
    let port = format!(
        "variables.portOption.optMap(text, text.matches('^[0-9]{{4,5}}$') && int(text) >= {} && int(text) <= {}).orValue(true)",
        PORTS.start(),
        PORTS.end()
    );
    all.push(option(annotation::PORT, "port", port, annotations::PORT));
    for (resource, [request, limit], expected) in [
        ("cpu", [annotation::CPU_REQUEST, annotation::CPU_LIMIT], annotations::CPU),
        ("memory", [annotation::MEMORY_REQUEST, annotation::MEMORY_LIMIT], annotations::MEMORY),
    ] {
        for (part, key) in [("Request", request), ("Limit", limit)] {
            let valid = format!("variables.{resource}{part}Valid.orValue(true)");
            all.push(option(key, &format!("{resource}{part}"), valid, expected));
        }
        let one_author =
            format!("({} in variables.annotations) == ({} in variables.annotations)", text(request), text(limit));
        all.push(check(
            request,
            &format!("variables.{resource}RequestOption.orValue('')"),
            format!("!(variables.{resource}RequestExceedsLimit && {one_author})"),
            format!(
                "'at most ' + variables.{resource}LimitOption.orValue('') + {}",
                text(&format!(", which is its {limit}"))
            ),
        ));
    }
    let wait = format!(
        "variables.awaitOption.optMap(text, text != '' && text.matches('{}') && variables.awaitMillis <= {}).orValue(true)",
        PATTERN.replace('+', &format!("{{1,{}}}", startup_timeout::DIGITS)),
        LONGEST.as_millis()
    );
    all.push(option(annotation::AWAIT, "await", wait, annotations::AWAIT));
    all.push(option(annotation::LOG_LEVEL, "logLevel", one_of("logLevel", &LOG_LEVELS), annotations::LOG_LEVEL));
    let log_json = one_of("logJson", &["true", "false"]);
    all.push(option(annotation::LOG_JSON, "logJson", log_json, annotations::LOG_JSON));
    let known = format!("variables.chosenVariables.all(name, name in {})", texts(VARIABLES));
    all.push(option(annotation::ENV, "env", known, annotations::ENV));
    all.push(option(annotation::UNIX_SOCKET, "socket", one_of("socket", &["true", "false"]), annotations::UNIX_SOCKET));
    // CEL reads no JSON.
    for (key, name, expected) in [
        (annotation::OVERRIDES, "overrides", annotations::NO_OVERRIDES),
        (annotation::OVERRIDE_KEY, "overrideKey", annotations::NO_OVERRIDE_KEY),
    ] {
        all.push(option(key, name, format!("!variables.{name}Option.hasValue()"), expected));
    }
    format!("[\n{}\n]", all.join(",\n"))
}

/// Returns the expression of the message about one failed check.
fn invalid() -> String {
    let message = Invalid {
        key: "<key>".to_owned(),
        place: "<place>".to_owned(),
        value: "<value>".to_owned(),
        valid: "<valid>".to_owned(),
    };
    let placeholders = [
        Placeholder::Text("<key>", "check.key"),
        Placeholder::Text(
            "<place>",
            "(check.key in variables.annotations ? '' : ' of namespace ' + request.namespace)",
        ),
        Placeholder::Text("<value>", "<value>"),
        Placeholder::Text("<valid>", "check.expected"),
    ];
    to_cel::string(&message.to_string(), &placeholders).replace("<value>", &quoted("check.value"))
}

/// Defines the options with their defaults. The values are meaningful only if all annotations are valid.
fn values(variables: &mut Variables) {
    variables.define("port", format!("int(variables.portOption.orValue('{}'))", sidecar::DATA_PORT));
    variables.define("awaitSeconds", "(variables.awaitMillis + 999) / 1000");
    variables.define(
        "await",
        "variables.awaitMillis % 1000 == 0 ? string(variables.awaitSeconds) + 's' : string(variables.awaitMillis) + 'ms'",
    );
    variables.define("logLevel", "variables.logLevelOption.orValue(variables.chartLogLevel)");
    variables.define("logJson", "variables.logJsonOption.orValue(variables.chartLogJson) == 'true'");
    variables.define("socket", "variables.socketOption.orValue('false') == 'true'");
}
