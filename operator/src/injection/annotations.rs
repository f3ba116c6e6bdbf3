//! Parses the options that annotations of a pod and of its namespace set. Invalid values are errors.

use std::{borrow::Cow, collections::BTreeMap, ops::RangeInclusive};

use serde_json::{Map, Value};

use super::{
    flag_overrides::{self, FlagOverrides},
    quantity::{self, Grammar, Quantity},
    quote::quote,
    startup_timeout::StartupTimeout,
};
use crate::api::names::{EnvironmentName, GROUP, annotation, is_object_name, sidecar};

/// Largest number of environments of one pod. Each is a volume of its own, which is in memory twice while it changes.
pub(super) const MOST_ENVIRONMENTS: usize = 8;

/// The parsed options of a pod.
#[derive(Debug)]
pub(super) struct ParsedOptions {
    pub(super) environments: Vec<EnvironmentName>,
    pub(super) port: u16,
    pub(super) cpu: ResourceAmounts,
    pub(super) memory: ResourceAmounts,
    /// Startup timeout. Like the next two, `None` where no annotation sets it.
    pub(super) wait: Option<StartupTimeout>,
    pub(super) log_level: Option<&'static str>,
    pub(super) log_json: Option<bool>,
    pub(super) variables: Vec<&'static str>,
    pub(super) socket: bool,
    pub(super) flag_overrides: Option<FlagOverrides>,
    /// Name of the Secret whose key signs flag overrides of requests.
    pub(super) override_key: Option<String>,
}

impl ParsedOptions {
    /// Returns the port of health and metrics, which follows the data port.
    pub(super) fn admin_port(&self) -> u16 {
        self.port.saturating_add(1)
    }
}

/// Requested amounts of one resource; `None` where no annotation sets one.
#[derive(Debug, Default)]
pub(super) struct ResourceAmounts {
    pub(super) request: Option<Quantity>,
    pub(super) limit: Option<Quantity>,
}

/// Error: an annotation does not follow its grammar.
#[derive(Debug, thiserror::Error)]
#[error("annotation {key}{place} is {value}, but must be {valid}")]
pub struct Invalid {
    pub(super) key: String,
    /// Suffix that names the namespace. Empty if the annotation is the pod's own.
    pub(super) place: String,
    pub(super) value: String,
    pub(super) valid: String,
}

type Annotations = Map<String, Value>;

/// Value of `remora.dev/inject` that opts the pod out.
pub(super) const OPT_OUT: &str = "false";

/// All annotations that have a meaning on a pod, except those with the revision prefix.
pub(super) const KNOWN: [&str; 14] = [
    annotation::INJECT,
    annotation::PORT,
    annotation::CPU_REQUEST,
    annotation::MEMORY_REQUEST,
    annotation::CPU_LIMIT,
    annotation::MEMORY_LIMIT,
    annotation::AWAIT,
    annotation::LOG_LEVEL,
    annotation::LOG_JSON,
    annotation::UNIX_SOCKET,
    annotation::ENV,
    annotation::OVERRIDES,
    annotation::OVERRIDE_KEY,
    annotation::INJECTED,
];

/// Largest length in bytes of a value of these annotations where many objects are read. A longer value is cut there, which
/// makes it invalid.
pub(super) const VALUE_MAX: usize = 8 << 10;

/// Names of the variables that the application's containers get.
pub(super) const VARIABLES: [&str; 2] = [sidecar::OFREP_ENDPOINT, sidecar::FLAGSMITH_API_URL];

pub(super) const LOG_LEVELS: [&str; 4] = ["error", "warn", "info", "debug"];

/// True if the annotation is `false`, which opts the pod out where a chart always renders the annotation.
pub(super) fn opted_out(annotations: &Annotations) -> bool {
    annotations.get(annotation::INJECT).and_then(Value::as_str) == Some(OPT_OUT)
}

/// Annotations of a pod and the defaults of its namespace. The pod's annotations take precedence.
#[derive(Clone, Copy)]
pub(super) struct PodOptions<'a> {
    pub(super) pod: &'a Annotations,
    pub(super) namespace: &'a str,
    pub(super) defaults: Option<&'a BTreeMap<String, String>>,
}

/// Object that an annotation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Author {
    Pod,
    Namespace,
}

/// Parses all options. A namespace sets how its pods are injected, but never which pods: the registration selects by
/// the pod's own annotation only.
///
/// # Errors
///
/// Fails at the first annotation that does not follow its grammar, and if a request exceeds its limit and both come
/// from the same object.
pub(super) fn read(options: &PodOptions<'_>) -> Result<ParsedOptions, Invalid> {
    Ok(ParsedOptions {
        environments: environments(options)?,
        port: options.value(annotation::PORT, PORT, port)?.unwrap_or(sidecar::DATA_PORT),
        cpu: options.bounds(annotation::CPU_REQUEST, annotation::CPU_LIMIT, &quantity::CPU, CPU)?,
        memory: options.bounds(annotation::MEMORY_REQUEST, annotation::MEMORY_LIMIT, &quantity::MEMORY, MEMORY)?,
        wait: options.value(annotation::AWAIT, AWAIT, StartupTimeout::parse)?,
        log_level: options.value(annotation::LOG_LEVEL, LOG_LEVEL, log_level)?,
        log_json: options.value(annotation::LOG_JSON, LOG_JSON, boolean)?,
        variables: options.value(annotation::ENV, ENV, variables)?.unwrap_or_else(|| VARIABLES.to_vec()),
        socket: options.value(annotation::UNIX_SOCKET, UNIX_SOCKET, boolean)?.unwrap_or(false),
        flag_overrides: options.value(annotation::OVERRIDES, flag_overrides::GRAMMAR, FlagOverrides::parse)?,
        override_key: options.value(annotation::OVERRIDE_KEY, OVERRIDE_KEY, secret)?,
    })
}

impl<'a> PodOptions<'a> {
    /// Returns the value under this key and the object that it comes from.
    fn find(&self, key: &str) -> Option<(Cow<'a, Value>, Author)> {
        let of_pod = self.pod.get(key).map(|value| (Cow::Borrowed(value), Author::Pod));
        let default =
            || self.defaults?.get(key).map(|text| (Cow::Owned(Value::from(text.as_str())), Author::Namespace));
        of_pod.or_else(default)
    }

    /// Parses one annotation. Returns `None` if neither the pod nor the namespace has it.
    fn value<T>(&self, key: &str, valid: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Invalid> {
        Ok(self.authored(key, valid, parse)?.map(|(value, _)| value))
    }

    fn authored<T>(
        &self,
        key: &str,
        valid: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<(T, Author)>, Invalid> {
        let Some((value, author)) = self.find(key) else {
            return Ok(None);
        };
        match value.as_ref() {
            Value::String(text) => match parse(text) {
                Some(parsed) => Ok(Some((parsed, author))),
                None => Err(self.invalid(key, author, text, valid)),
            },
            other => Err(self.invalid(key, author, &other.to_string(), "a string")),
        }
    }

    /// Parses request and limit of one resource. If the request exceeds the limit and only one of them is the pod's
    /// own, drops the namespace's value.
    fn bounds(&self, request: &str, limit: &str, grammar: &Grammar, valid: &str) -> Result<ResourceAmounts, Invalid> {
        let parse = |text: &str| grammar.read(text);
        let (wanted, most) = (self.authored(request, valid, parse)?, self.authored(limit, valid, parse)?);
        let only = |quantity: Option<(Quantity, Author)>| quantity.map(|(quantity, _)| quantity);
        match (&wanted, &most) {
            (Some((amount, of)), Some((bound, by))) if amount.milli() > bound.milli() => match (of, by) {
                // The pod's own value takes precedence over the namespace's default.
                (Author::Pod, Author::Namespace) => Ok(ResourceAmounts { request: only(wanted), limit: None }),
                (Author::Namespace, Author::Pod) => Ok(ResourceAmounts { request: None, limit: only(most) }),
                _ => Err(self.invalid(
                    request,
                    *of,
                    &amount.to_string(),
                    format!("at most {bound}, which is its {limit}"),
                )),
            },
            _ => Ok(ResourceAmounts { request: only(wanted), limit: only(most) }),
        }
    }

    fn invalid(&self, key: &str, author: Author, value: &str, valid: impl Into<String>) -> Invalid {
        let place = match author {
            Author::Pod => String::new(),
            Author::Namespace => format!(" of namespace {}", self.namespace),
        };
        Invalid { key: key.to_owned(), place, value: quote(value), valid: valid.into() }
    }
}

/// Returns the keys under Remora's prefix that have no meaning, most likely because they are misspelt.
pub(super) fn unknown(annotations: &Annotations) -> impl Iterator<Item = &str> {
    let is_ours = |key: &str| key.split_once('/').is_some_and(|(prefix, _)| prefix == GROUP);
    let is_known = |key: &str| KNOWN.contains(&key) || key.starts_with(annotation::REVISION);
    annotations.keys().map(String::as_str).filter(move |key| is_ours(key) && !is_known(key))
}

pub(super) const PORT: &str = "a port from 1024 to 65534, such as 4777; health and metrics take the next one";
pub(super) const CPU: &str = "an amount of CPU from 1m to 1024, such as 10m or 0.5";
pub(super) const MEMORY: &str = "an amount of memory from 4Mi to 1Ti, such as 32Mi";
pub(super) const AWAIT: &str = "a duration up to an hour, such as 10s, 500ms or 1m30s; 0s does not wait";
pub(super) const LOG_LEVEL: &str = "one of error, warn, info, debug";
pub(super) const LOG_JSON: &str = "true for JSON, or false for text";
pub(super) const UNIX_SOCKET: &str =
    "true or false; the socket is /var/run/remora-socket/remora.sock in every container";
pub(super) const ENV: &str = "none, or a comma list out of OFREP_ENDPOINT, FLAGSMITH_API_URL";
pub(super) const OVERRIDE_KEY: &str = "the name of a Secret of the pod's namespace (lower case letters, digits, - and ., at most 253 characters), with \
                            the key under its name `key`";
pub(super) const NO_OVERRIDES: &str = "left out where an admission policy injects the sidecar, because a policy reads no JSON: remove it, or set \
                            the chart's injection.by to Webhook";
pub(super) const NO_OVERRIDE_KEY: &str = "left out where an admission policy injects the sidecar, because only the webhook mounts the Secret: remove it, or set \
                            the chart's injection.by to Webhook";
pub(super) const INJECT: &str = "names of FeatureEnvironments of the pod's namespace, separated by commas (lower case letters, \
                      digits and -, at most 40 characters each), or false";
pub(super) const OWN_NAMESPACE: &str =
    "names without a namespace: a pod reads the environments of its own namespace only";
/// Follows the refused word.
pub(super) const NOT_A_NAME: &str =
    " is not accepted as a name: write the names of the FeatureEnvironments, such as storefront";

/// Values that other products use in such annotations, and that are refused as environment names.
pub(super) const NOT_NAMES: [&str; 4] = ["true", "enabled", "false", "disabled"];

/// Allowed data ports: any user may listen on them, and each has a next port for health and metrics.
pub(super) const PORTS: RangeInclusive<u16> = 1024..=65534;

fn environments(options: &PodOptions<'_>) -> Result<Vec<EnvironmentName>, Invalid> {
    let key = annotation::INJECT;
    let own = PodOptions { defaults: None, ..*options };
    let list = own.value(key, INJECT, |text| Some(text.to_owned()))?.unwrap_or_default();
    environment_names(&list).map_err(|valid| own.invalid(key, Author::Pod, &list, valid))
}

/// Parses the value of the inject annotation of a pod that is not opted out.
///
/// # Errors
///
/// Fails if the value does not follow its grammar; the error describes a valid value.
pub(super) fn environment_names(list: &str) -> Result<Vec<EnvironmentName>, String> {
    let mut environments: Vec<EnvironmentName> = Vec::new();
    for name in list.split(',').map(|name| name.trim_matches(' ')) {
        if name.contains('/') {
            return Err(OWN_NAMESPACE.to_owned());
        }
        if NOT_NAMES.contains(&name) {
            return Err(format!("{INJECT}; {name}{NOT_A_NAME}"));
        }
        let name: EnvironmentName = name.parse().map_err(|_| INJECT.to_owned())?;
        if environments.contains(&name) {
            return Err(format!("a list that names {name} once"));
        }
        environments.push(name);
        // Later names are not checked, because an annotation can hold very many.
        if environments.len() > MOST_ENVIRONMENTS {
            return Err(format!("a list of at most {MOST_ENVIRONMENTS} environments"));
        }
    }
    Ok(environments)
}

fn port(text: &str) -> Option<u16> {
    let plain = (4..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let number: u16 = plain.then(|| text.parse().ok()).flatten()?;
    PORTS.contains(&number).then_some(number)
}

fn secret(text: &str) -> Option<String> {
    is_object_name(text).then(|| text.to_owned())
}

pub(super) fn log_level(text: &str) -> Option<&'static str> {
    LOG_LEVELS.into_iter().find(|level| *level == text)
}

fn boolean(text: &str) -> Option<bool> {
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
    let named: Vec<_> = text.split(',').map(|name| name.trim_matches(' ')).collect();
    let known = named.iter().all(|name| VARIABLES.contains(name));
    known.then(|| VARIABLES.into_iter().filter(|name| named.contains(name)).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_one(key: &str, value: &str) -> Result<ParsedOptions, String> {
        let mut annotations = Map::new();
        annotations.insert(annotation::INJECT.to_owned(), json!("storefront"));
        annotations.insert(key.to_owned(), json!(value));
        read(&of_pod(&annotations)).map_err(|refusal| refusal.to_string())
    }

    fn of_pod(pod: &Annotations) -> PodOptions<'_> {
        PodOptions { pod, namespace: "shop", defaults: None }
    }

    /// Parses the annotations of a pod with these defaults of its namespace.
    fn both(pod: &Value, defaults: &[(&str, &str)]) -> Result<ParsedOptions, String> {
        let mut pod = pod.as_object().unwrap().clone();
        pod.insert(annotation::INJECT.to_owned(), json!("storefront"));
        let defaults = defaults.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let options = PodOptions { pod: &pod, namespace: "shop", defaults: Some(&defaults) };
        read(&options).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn namespace_sets_options_that_pod_leaves_out() {
        let defaults = [(annotation::PORT, "5000"), (annotation::AWAIT, "1m"), (annotation::INJECT, "other")];
        let request = both(&json!({annotation::AWAIT: "2s"}), &defaults).unwrap();
        assert_eq!((request.port, request.wait), (5000, StartupTimeout::parse("2s")));
        assert_eq!(request.environments[0].as_str(), "storefront");
    }

    #[test]
    fn invalid_namespace_default_is_an_error_unless_pod_overrides_it() {
        let defaults = [(annotation::PORT, "80")];
        assert_eq!(
            both(&json!({}), &defaults).unwrap_err(),
            "annotation remora.dev/port of namespace shop is \"80\", but must be a port from 1024 to 65534, such as \
             4777; health and metrics take the next one"
        );
        assert_eq!(both(&json!({annotation::PORT: "4000"}), &defaults).unwrap().port, 4000);
        let crossed = [(annotation::MEMORY_REQUEST, "64Mi"), (annotation::MEMORY_LIMIT, "32Mi")];
        let message = both(&json!({}), &crossed).unwrap_err();
        assert!(message.starts_with("annotation remora.dev/memory-request of namespace shop is"), "{message}");
    }

    #[test]
    fn namespace_bound_that_conflicts_with_pod_is_dropped() {
        let request =
            both(&json!({annotation::MEMORY_LIMIT: "16Mi"}), &[(annotation::MEMORY_REQUEST, "64Mi")]).unwrap();
        assert!(request.memory.request.is_none() && request.memory.limit.is_some());
        let request = both(&json!({annotation::CPU_REQUEST: "1"}), &[(annotation::CPU_LIMIT, "500m")]).unwrap();
        assert!(request.cpu.request.is_some() && request.cpu.limit.is_none());
    }

    #[test]
    fn pod_without_options_leaves_them_to_the_defaults() {
        let request = read_one(annotation::INJECT, "storefront").unwrap();
        assert_eq!(request.environments.len(), 1);
        assert_eq!(request.environments[0].as_str(), "storefront");
        assert_eq!(request.port, 4777);
        assert_eq!((request.wait, request.log_level, request.log_json), (None, None, None));
        assert_eq!(request.variables, ["OFREP_ENDPOINT", "FLAGSMITH_API_URL"]);
    }

    #[test]
    fn inject_annotation_is_comma_list_of_valid_names() {
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
    fn error_names_key_value_and_grammar() {
        assert_eq!(
            read_one(annotation::PORT, "80\n").unwrap_err(),
            "annotation remora.dev/port is \"80\\u{a}\", but must be a port from 1024 to 65534, such as 4777; health \
             and metrics take the next one"
        );
        let other_namespace = read_one(annotation::INJECT, "shop/storefront").unwrap_err();
        assert!(other_namespace.contains("its own namespace only"), "{other_namespace}");
        let yes = read_one(annotation::INJECT, "true").unwrap_err();
        assert!(
            yes.ends_with(
                "; true is not accepted as a name: write the names of the FeatureEnvironments, such as storefront"
            ),
            "{yes}"
        );
    }

    #[test]
    fn port_outside_range_is_an_error() {
        for good in ["1024", "4777", "65534"] {
            assert!(read_one(annotation::PORT, good).is_ok(), "{good}");
        }
        for bad in ["", "0", "-1", "1023", "65535", "65536", "+4777", "04777", "4777 ", "0x1f90", "4.777e3"] {
            assert_eq!(read_one(annotation::PORT, bad).is_ok(), bad == "04777", "{bad}");
        }
    }

    #[test]
    fn request_above_limit_is_an_error() {
        let annotations = json!({
            annotation::INJECT: "a", annotation::MEMORY_REQUEST: "64Mi", annotation::MEMORY_LIMIT: "32Mi",
        });
        let refusal = read(&of_pod(annotations.as_object().unwrap())).unwrap_err().to_string();
        assert_eq!(
            refusal,
            "annotation remora.dev/memory-request is \"64Mi\", but must be at most 32Mi, which is its \
             remora.dev/memory-limit"
        );
    }

    #[test]
    fn env_annotation_selects_variables() {
        let chosen = |value: &str| read_one(annotation::ENV, value).map(|request| request.variables);
        assert_eq!(chosen("none").unwrap(), [] as [&str; 0]);
        assert_eq!(chosen("OFREP_ENDPOINT").unwrap(), ["OFREP_ENDPOINT"]);
        assert_eq!(chosen("FLAGSMITH_API_URL, OFREP_ENDPOINT").unwrap(), ["OFREP_ENDPOINT", "FLAGSMITH_API_URL"]);
        assert_eq!(chosen("OFREP_ENDPOINT,OFREP_ENDPOINT").unwrap(), ["OFREP_ENDPOINT"]);
        for bad in ["", "None", "PATH", "OFREP_ENDPOINT,", "none,OFREP_ENDPOINT"] {
            assert!(chosen(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn socket_option_is_true_or_false() {
        let socket = |value: &str| read_one(annotation::UNIX_SOCKET, value).map(|request| request.socket);
        assert_eq!((socket("true"), socket("false")), (Ok(true), Ok(false)));
        assert!(!read_one(annotation::PORT, "4777").unwrap().socket);
        for bad in ["", "yes", "True", "/run/remora.sock"] {
            assert!(socket(bad).unwrap_err().contains("/var/run/remora-socket/remora.sock"), "{bad:?}");
        }
    }

    #[test]
    fn unknown_returns_misspelt_remora_keys_only() {
        let annotations = json!({"remora.dev/prot": "1", "remora.dev/port": "1", "example.com/port": "1"});
        assert_eq!(unknown(annotations.as_object().unwrap()).collect::<Vec<_>>(), ["remora.dev/prot"]);
    }
}
