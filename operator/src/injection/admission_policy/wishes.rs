//! CEL expressions that parse the annotations of a pod and of its namespace like
//! [`annotations`](super::super::annotations).

use super::{Variables, lift, lift::Mark, quoted, text, texts};
use crate::{
    api::names::{ENVIRONMENT_MAX, annotation, sidecar},
    injection::{
        annotations::{self as annotations, Invalid, LOG_LEVELS, MOST_ENVIRONMENTS, PORTS, VARIABLES, WHETHER},
        duration::{Await, LONGEST},
        quantity::{self, DIGITS, Grammar, THOUSANDTHS},
    },
};

pub(super) fn define(variables: &mut Variables) {
    let annotations = |of: &str| format!("has({of}.metadata.annotations) ? {of}.metadata.annotations : {{}}");
    variables.define("annotations", annotations("object"));
    variables.define("defaults", annotations("namespaceObject"));
    environments(variables);
    for (name, key) in [
        ("port", annotation::PORT),
        ("cpuRequest", annotation::CPU_REQUEST),
        ("cpuLimit", annotation::CPU_LIMIT),
        ("memoryRequest", annotation::MEMORY_REQUEST),
        ("memoryLimit", annotation::MEMORY_LIMIT),
        ("await", annotation::AWAIT),
        ("logLevel", annotation::LOG_LEVEL),
        ("env", annotation::ENV),
        ("socket", annotation::UNIX_SOCKET),
    ] {
        let said = format!("variables.annotations[?{key}].or(variables.defaults[?{key}])", key = text(key));
        variables.define(&format!("{name}Said"), said);
    }
    bounds(variables, "cpu", &quantity::CPU, [annotation::CPU_REQUEST, annotation::CPU_LIMIT]);
    bounds(variables, "memory", &quantity::MEMORY, [annotation::MEMORY_REQUEST, annotation::MEMORY_LIMIT]);
    variables.define(
        "awaitMillis",
        format!(
            "[variables.awaitSaid.orValue('{}')].map(said, said.endsWith('ms') ? int(said.substring(0, size(said) - 2))\n  \
             : int(said.substring(0, size(said) - 1)) * (said.endsWith('m') ? 60000 : 1000))[0]",
            Await::DEFAULT
        ),
    );
    let chosen = format!(
        "[variables.envSaid.orValue('{}')].map(said, said == 'none' ? []\n  : said.split(',').map(name, {}))[0]",
        VARIABLES.join(","),
        trimmed("name")
    );
    variables.define("chosen", chosen);
    variables.define("checks", checks());
    variables.define("invalid", format!("variables.checks.filter(check, !check.fine).map(check,\n  {})", invalid()));
    values(variables);
}

/// Defines the environments that the pod requests, and the errors in the list.
fn environments(variables: &mut Variables) {
    variables.define("inject", format!("variables.annotations[{}]", text(annotation::INJECT)));
    // Splits off one name more than allowed and the rest as one item, which bounds the work on a long list.
    let names = format!("variables.inject.split(',', {}).map(name, {})", MOST_ENVIRONMENTS + 2, trimmed("name"));
    variables.define("environments", names);
    let valid = format!("^[a-z0-9]([-a-z0-9]{{0,{}}}[a-z0-9])?$", ENVIRONMENT_MAX - 2);
    let misnamed = format!(
        "variables.environments.transformList(place, name, place <= {MOST_ENVIRONMENTS},\n  name.contains('/') ? {elsewhere} : name in {whether} ? {not_whether}\n  \
         : !name.matches({valid}) ? {inject}\n  \
         : variables.environments.indexOf(name) < place ? 'a list that names ' + name + ' once' : '').filter(must, must != '')\n  \
         + (size(variables.environments) > {MOST_ENVIRONMENTS} ? ['a list of at most {MOST_ENVIRONMENTS} environments'] : [])",
        elsewhere = text(annotations::OWN_NAMESPACE),
        whether = texts(WHETHER),
        not_whether = text(&format!("{}{}", annotations::INJECT, annotations::NOT_WHETHER)),
        inject = text(annotations::INJECT),
        valid = text(&valid),
    );
    variables.define("misnamed", misnamed);
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
        let fine = format!(
            "variables.{resource}{part}Said.optMap(said, said.matches({shape}) && quantity(said).compareTo(quantity('{least}')) >= 0\n  \
             && quantity(said).compareTo(quantity('{most}')) <= 0)",
            shape = text(&shape),
            least = grammar.least,
            most = grammar.most,
        );
        variables.define(&format!("{resource}{part}Fine"), fine);
    }
    variables.define(
        &format!("{resource}Crossed"),
        format!(
            "variables.{resource}RequestFine.orValue(false) && variables.{resource}LimitFine.orValue(false)\n  \
             && quantity(variables.{resource}RequestSaid.value()).isGreaterThan(quantity(variables.{resource}LimitSaid.value()))"
        ),
    );
    // The pod's own value takes precedence over the namespace's default.
    for (part, key) in [("Request", request), ("Limit", limit)] {
        variables.define(
            &format!("{resource}{part}Asked"),
            format!(
                "variables.{resource}Crossed && !({} in variables.annotations) ? optional.none() : variables.{resource}{part}Said",
                text(key)
            ),
        );
    }
}

/// Returns a list of checks, one or more per annotation. The first failed check gives the message.
fn checks() -> String {
    let check = |key: &str, value: &str, fine: String, must: String| {
        format!("  {{'key': dyn({}), 'value': dyn({value}), 'fine': dyn({fine}), 'must': dyn({must})}}", text(key))
    };
    let said = |key: &str, name: &str, fine: String, must: &str| {
        check(key, &format!("variables.{name}Said.orValue('')"), fine, text(must))
    };
    let one_of = |name: &str, all: &[&str]| {
        format!("variables.{name}Said.optMap(said, said in {}).orValue(true)", texts(all.iter().copied()))
    };
    let mut all = vec![check(
        annotation::INJECT,
        "variables.inject",
        "size(variables.misnamed) == 0".to_owned(),
        "size(variables.misnamed) > 0 ? variables.misnamed[0] : ''".to_owned(),
    )];
    let port = format!(
        "variables.portSaid.optMap(said, said.matches('^[0-9]{{4,5}}$') && int(said) >= {} && int(said) <= {}).orValue(true)",
        PORTS.start(),
        PORTS.end()
    );
    all.push(said(annotation::PORT, "port", port, annotations::PORT));
    for (resource, [request, limit], must) in [
        ("cpu", [annotation::CPU_REQUEST, annotation::CPU_LIMIT], annotations::CPU),
        ("memory", [annotation::MEMORY_REQUEST, annotation::MEMORY_LIMIT], annotations::MEMORY),
    ] {
        for (part, key) in [("Request", request), ("Limit", limit)] {
            let fine = format!("variables.{resource}{part}Fine.orValue(true)");
            all.push(said(key, &format!("{resource}{part}"), fine, must));
        }
        let one_author =
            format!("({} in variables.annotations) == ({} in variables.annotations)", text(request), text(limit));
        all.push(check(
            request,
            &format!("variables.{resource}RequestSaid.orValue('')"),
            format!("!(variables.{resource}Crossed && {one_author})"),
            format!(
                "'at most ' + variables.{resource}LimitSaid.orValue('') + {}",
                text(&format!(", which is its {limit}"))
            ),
        ));
    }
    let wait = format!(
        "variables.awaitSaid.optMap(said, said.matches('^[0-9]{{1,7}}(ms|s|m)$') && variables.awaitMillis <= {}).orValue(true)",
        LONGEST.as_millis()
    );
    all.push(said(annotation::AWAIT, "await", wait, annotations::AWAIT));
    all.push(said(annotation::LOG_LEVEL, "logLevel", one_of("logLevel", &LOG_LEVELS), annotations::LOG_LEVEL));
    let known = format!("variables.chosen.all(name, name in {})", texts(VARIABLES));
    all.push(said(annotation::ENV, "env", known, annotations::ENV));
    all.push(said(annotation::UNIX_SOCKET, "socket", one_of("socket", &["true", "false"]), annotations::UNIX_SOCKET));
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
    let marked = [
        Mark::Text("<key>", "check.key"),
        Mark::Text("<place>", "(check.key in variables.annotations ? '' : ' of namespace ' + request.namespace)"),
        Mark::Text("<value>", "<value>"),
        Mark::Text("<valid>", "check.must"),
    ];
    lift::string(&message.to_string(), &marked).replace("<value>", &quoted("check.value"))
}

/// Defines the options with their defaults. The values are meaningful only if all annotations are valid.
fn values(variables: &mut Variables) {
    variables.define("port", format!("int(variables.portSaid.orValue('{}'))", sidecar::DATA_PORT));
    variables.define("awaitSeconds", "(variables.awaitMillis + 999) / 1000");
    variables.define(
        "await",
        "variables.awaitMillis % 1000 == 0 ? string(variables.awaitSeconds) + 's' : string(variables.awaitMillis) + 'ms'",
    );
    variables.define("logLevel", "variables.logLevelSaid.orValue('info')");
    variables.define("socket", "variables.socketSaid.orValue('false') == 'true'");
}
