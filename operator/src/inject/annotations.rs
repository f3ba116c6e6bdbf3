//! What the author of a pod asks for, read strictly.

use serde_json::{Map, Value};

use super::{
    duration::Await,
    quantity::{self, Quantity},
    quote::quote,
};
use crate::names::{EnvironmentName, GROUP, annotation, sidecar};

/// Environments that one pod may ask for: each is a volume of its own, held twice in memory while it changes.
const MOST_ENVIRONMENTS: usize = 8;

/// The annotations of a pod, understood.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) environments: Vec<EnvironmentName>,
    pub(super) port: u16,
    pub(super) cpu: Bounds,
    pub(super) memory: Bounds,
    pub(super) wait: Await,
    pub(super) log_level: &'static str,
    pub(super) variables: Vec<&'static str>,
    pub(super) socket: bool,
}

impl Request {
    /// Where health and metrics are: the port behind that of the data.
    pub(super) fn admin_port(&self) -> u16 {
        self.port.saturating_add(1)
    }
}

/// What was asked for of one resource.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    pub(super) request: Option<Quantity>,
    pub(super) limit: Option<Quantity>,
}

/// An annotation that does not follow its grammar.
#[derive(Debug, thiserror::Error)]
#[error("annotation {key} is {value}, but must be {valid}")]
pub struct Invalid {
    key: String,
    value: String,
    valid: String,
}

type Annotations = Map<String, Value>;

/// The value of `remora.dev/inject` that says no.
const OPT_OUT: &str = "false";

/// The annotations that mean something on a pod.
const KNOWN: [&str; 11] = [
    annotation::INJECT,
    annotation::PORT,
    annotation::CPU_REQUEST,
    annotation::MEMORY_REQUEST,
    annotation::CPU_LIMIT,
    annotation::MEMORY_LIMIT,
    annotation::AWAIT,
    annotation::LOG_LEVEL,
    annotation::UNIX_SOCKET,
    annotation::ENV,
    annotation::INJECTED,
];

/// The variables that the application's containers get.
const VARIABLES: [&str; 2] = [sidecar::OFREP_ENDPOINT, sidecar::FLAGSMITH_API_URL];

const LOG_LEVELS: [&str; 4] = ["error", "warn", "info", "debug"];

/// Whether the author thought better of it; for charts whose templates cannot leave the annotation out.
pub(super) fn opted_out(annotations: &Annotations) -> bool {
    annotations.get(annotation::INJECT).and_then(Value::as_str) == Some(OPT_OUT)
}

/// Reads every annotation that is ours.
pub(super) fn read(annotations: &Annotations) -> Result<Request, Invalid> {
    let bounds = |request, limit, parse: fn(&str) -> Option<Quantity>, valid| {
        let bounds = Bounds {
            request: value(annotations, request, valid, parse)?,
            limit: value(annotations, limit, valid, parse)?,
        };
        match (&bounds.request, &bounds.limit) {
            (Some(wanted), Some(most)) if wanted.milli() > most.milli() => {
                Err(invalid(request, &wanted.to_string(), format!("at most {most}, which is its {limit}")))
            }
            _ => Ok(bounds),
        }
    };
    Ok(Request {
        environments: environments(annotations)?,
        port: value(annotations, annotation::PORT, PORT, port)?.unwrap_or(sidecar::DATA_PORT),
        cpu: bounds(annotation::CPU_REQUEST, annotation::CPU_LIMIT, quantity::cpu, CPU)?,
        memory: bounds(annotation::MEMORY_REQUEST, annotation::MEMORY_LIMIT, quantity::memory, MEMORY)?,
        wait: value(annotations, annotation::AWAIT, AWAIT, Await::parse)?.unwrap_or(Await::DEFAULT),
        log_level: value(annotations, annotation::LOG_LEVEL, LOG_LEVEL, log_level)?.unwrap_or("info"),
        variables: value(annotations, annotation::ENV, ENV, variables)?.unwrap_or_else(|| VARIABLES.to_vec()),
        socket: value(annotations, annotation::UNIX_SOCKET, UNIX_SOCKET, yes_or_no)?.unwrap_or(false),
    })
}

/// The keys under our prefix that mean nothing: most likely misspelt.
pub(super) fn unknown(annotations: &Annotations) -> impl Iterator<Item = &str> {
    let is_ours = |key: &str| key.split_once('/').is_some_and(|(prefix, _)| prefix == GROUP);
    let is_known = |key: &str| KNOWN.contains(&key) || key.starts_with(annotation::REVISION);
    annotations.keys().map(String::as_str).filter(move |key| is_ours(key) && !is_known(key))
}

const PORT: &str = "a port from 1024 to 65534, such as 4777; health and metrics take the next one";
const CPU: &str = "an amount of CPU from 1m to 1024, such as 10m or 0.5";
const MEMORY: &str = "an amount of memory from 4Mi to 1Ti, such as 32Mi";
const AWAIT: &str = "a duration up to an hour in ms, s or m, such as 10s; 0s waits for nothing";
const LOG_LEVEL: &str = "one of error, warn, info, debug";
const UNIX_SOCKET: &str = "true or false; the socket is /var/run/remora-socket/remora.sock in every container";
const ENV: &str = "none, or a comma list out of OFREP_ENDPOINT, FLAGSMITH_API_URL";
const INJECT: &str = "names of FeatureEnvironments of the pod's namespace, separated by commas (lower case letters, \
                      digits and -, at most 40 characters each), or false";

fn invalid(key: &str, value: &str, valid: impl Into<String>) -> Invalid {
    Invalid { key: key.to_owned(), value: quote(value), valid: valid.into() }
}

/// One annotation, if it is there.
fn value<T>(
    annotations: &Annotations,
    key: &str,
    valid: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Invalid> {
    match annotations.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => match parse(text) {
            Some(parsed) => Ok(Some(parsed)),
            None => Err(invalid(key, text, valid)),
        },
        Some(other) => Err(invalid(key, &other.to_string(), "a string")),
    }
}

fn environments(annotations: &Annotations) -> Result<Vec<EnvironmentName>, Invalid> {
    let key = annotation::INJECT;
    let list = value(annotations, key, INJECT, |text| Some(text.to_owned()))?.unwrap_or_default();
    let mut environments: Vec<EnvironmentName> = Vec::new();
    for name in list.split(',').map(|name| name.trim_matches(' ')) {
        if name.contains('/') {
            return Err(invalid(
                key,
                &list,
                "names without a namespace: a pod reads the environments of its own namespace only",
            ));
        }
        if matches!(name, "true" | "enabled" | "false" | "disabled") {
            return Err(invalid(key, &list, format!("{INJECT}: it says which environments, not whether")));
        }
        let name: EnvironmentName = name.parse().map_err(|_| invalid(key, &list, INJECT))?;
        if environments.contains(&name) {
            return Err(invalid(key, &list, format!("a list that names {name} once")));
        }
        environments.push(name);
    }
    if environments.len() > MOST_ENVIRONMENTS {
        return Err(invalid(key, &list, format!("a list of at most {MOST_ENVIRONMENTS} environments")));
    }
    Ok(environments)
}

fn port(text: &str) -> Option<u16> {
    let plain = (4..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let number: u16 = plain.then(|| text.parse().ok()).flatten()?;
    (1024..=65534).contains(&number).then_some(number)
}

fn log_level(text: &str) -> Option<&'static str> {
    LOG_LEVELS.into_iter().find(|level| *level == text)
}

fn yes_or_no(text: &str) -> Option<bool> {
    match text {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

fn variables(text: &str) -> Option<Vec<&'static str>> {
    if text == "none" {
        return Some(Vec::new());
    }
    text.split(',').map(|name| VARIABLES.into_iter().find(|known| *known == name.trim_matches(' '))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_one(key: &str, value: &str) -> Result<Request, String> {
        let mut annotations = Map::new();
        annotations.insert(annotation::INJECT.to_owned(), json!("storefront"));
        annotations.insert(key.to_owned(), json!(value));
        read(&annotations).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn defaults() {
        let request = read_one(annotation::INJECT, "storefront").unwrap();
        assert_eq!(request.environments.len(), 1);
        assert_eq!(request.environments[0].as_str(), "storefront");
        assert_eq!(request.port, 4777);
        assert_eq!(request.wait.to_string(), "10s");
        assert_eq!(request.log_level, "info");
        assert_eq!(request.variables, ["OFREP_ENDPOINT", "FLAGSMITH_API_URL"]);
    }

    #[test]
    fn environments_are_a_comma_list() {
        let names = |value: &str| {
            let request = read_one(annotation::INJECT, value)?;
            Ok::<_, String>(request.environments.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(names("a,b , c").unwrap(), ["a", "b", "c"]);
        for bad in ["", " ", ",", "a,", "a,,b", "A", "a b", "a\n", "-a", "a-", "a.b", "ä", "../a", "${a}", "a,a"] {
            assert!(names(bad).is_err(), "{bad:?}");
        }
        assert!(names(&"a".repeat(40)).is_ok());
        assert!(names(&"a".repeat(41)).is_err());
        assert!(names("a,b,c,d,e,f,g,h,i").unwrap_err().contains("at most 8"));
    }

    #[test]
    fn messages_tell_key_value_and_grammar() {
        assert_eq!(
            read_one(annotation::PORT, "80\n").unwrap_err(),
            "annotation remora.dev/port is \"80\\u{a}\", but must be a port from 1024 to 65534, such as 4777; health \
             and metrics take the next one"
        );
        let other_namespace = read_one(annotation::INJECT, "shop/storefront").unwrap_err();
        assert!(other_namespace.contains("its own namespace only"), "{other_namespace}");
        let yes = read_one(annotation::INJECT, "true").unwrap_err();
        assert!(yes.contains("which environments, not whether"), "{yes}");
    }

    #[test]
    fn ports() {
        for good in ["1024", "4777", "65534"] {
            assert!(read_one(annotation::PORT, good).is_ok(), "{good}");
        }
        for bad in ["", "0", "-1", "1023", "65535", "65536", "+4777", "04777", "4777 ", "0x1f90", "4.777e3"] {
            assert_eq!(read_one(annotation::PORT, bad).is_ok(), bad == "04777", "{bad}");
        }
    }

    #[test]
    fn request_above_limit() {
        let annotations = json!({
            annotation::INJECT: "a", annotation::MEMORY_REQUEST: "64Mi", annotation::MEMORY_LIMIT: "32Mi",
        });
        let refusal = read(annotations.as_object().unwrap()).unwrap_err().to_string();
        assert_eq!(
            refusal,
            "annotation remora.dev/memory-request is \"64Mi\", but must be at most 32Mi, which is its \
             remora.dev/memory-limit"
        );
    }

    #[test]
    fn variables_can_be_chosen() {
        let chosen = |value: &str| read_one(annotation::ENV, value).map(|request| request.variables);
        assert_eq!(chosen("none").unwrap(), [] as [&str; 0]);
        assert_eq!(chosen("OFREP_ENDPOINT").unwrap(), ["OFREP_ENDPOINT"]);
        assert_eq!(chosen("FLAGSMITH_API_URL, OFREP_ENDPOINT").unwrap(), ["FLAGSMITH_API_URL", "OFREP_ENDPOINT"]);
        for bad in ["", "None", "PATH", "OFREP_ENDPOINT,", "none,OFREP_ENDPOINT"] {
            assert!(chosen(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_socket_is_asked_for_by_yes_or_no() {
        let socket = |value: &str| read_one(annotation::UNIX_SOCKET, value).map(|request| request.socket);
        assert_eq!((socket("true"), socket("false")), (Ok(true), Ok(false)));
        assert!(!read_one(annotation::PORT, "4777").unwrap().socket);
        for bad in ["", "yes", "True", "/run/remora.sock"] {
            assert!(socket(bad).unwrap_err().contains("/var/run/remora-socket/remora.sock"), "{bad:?}");
        }
    }

    #[test]
    fn unknown_keys_under_our_prefix() {
        let annotations = json!({"remora.dev/prot": "1", "remora.dev/port": "1", "example.com/port": "1"});
        assert_eq!(unknown(annotations.as_object().unwrap()).collect::<Vec<_>>(), ["remora.dev/prot"]);
    }
}
