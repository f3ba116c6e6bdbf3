//! Plans of template pods, whose placeholder values occur nowhere else.

use serde_json::{Value, json};

use super::{
    Error,
    to_cel::{self, Placeholder},
};
use crate::{
    api::names::annotation,
    injection::{
        annotations::{ParsedOptions, ResourceAmounts, VARIABLES},
        config::Config,
        layout::Layout,
        plan::{Plan, mount_path},
        pod::Pod,
        startup_timeout::StartupTimeout,
    },
};

const ENVIRONMENT: &str = "template-environment";
/// [`ENVIRONMENT`] as a JSON string.
const QUOTED: &str = "\"template-environment\"";
const LOG_LEVEL: &str = "template-level";
const AWAIT: &str = "3333s";
const PORT: u16 = 40_001;

/// Placeholders of the template pods and their expressions. `environment` is the variable of a loop over all
/// environments.
pub(super) const PLACEHOLDERS: [Placeholder; 5] = [
    Placeholder::Text(ENVIRONMENT, "environment"),
    Placeholder::Text(LOG_LEVEL, "variables.logLevel"),
    Placeholder::Text(AWAIT, "variables.await"),
    Placeholder::Number(3333, "variables.awaitSeconds"),
    Placeholder::Number(PORT as u64, "variables.port"),
];

/// Plans of one template pod of each kind.
pub(super) struct TemplatePlans {
    /// Plan with one environment, the socket and a log in JSON.
    full: Plan,
    without_environment: Plan,
    without_socket: Plan,
    without_log_json: Plan,
    of_root: Plan,
    mount_path: String,
}

impl TemplatePlans {
    pub(super) fn new(config: &Config) -> Result<TemplatePlans, Error> {
        let user = json!({"containers": []});
        let root = json!({"containers": [], "securityContext": {"runAsUser": 0}});
        Ok(TemplatePlans {
            full: plan(&user, &FULL, config)?,
            without_environment: plan(&user, &Template { environments: &[], ..FULL }, config)?,
            without_socket: plan(&user, &Template { socket: false, ..FULL }, config)?,
            without_log_json: plan(&user, &Template { log_json: false, ..FULL }, config)?,
            of_root: plan(&root, &FULL, config)?,
            mount_path: mount_path(&ENVIRONMENT.parse().map_err(|_| Error::TemplatePod)?),
        })
    }

    /// Returns the expression of the sidecar container. Its `resources` refer to a variable.
    ///
    /// # Errors
    ///
    /// Fails if a member differs between template pods and the generator does not expect that.
    pub(super) fn sidecar(&self) -> Result<String, Error> {
        let mut members = Vec::new();
        for (key, value) in self.full.sidecar.as_object().into_iter().flatten() {
            let expression = match key.as_str() {
                "args" => self.list("args", |plan| items(&plan.sidecar, "args"))?,
                "volumeMounts" => self.list("volumeMounts", |plan| items(&plan.sidecar, "volumeMounts"))?,
                "resources" => "variables.resources".to_owned(),
                "securityContext" => {
                    let of_root = to_cel::value(&self.of_root.sidecar[key], &PLACEHOLDERS);
                    format!("variables.root ? dyn({of_root}) : dyn({})", to_cel::value(value, &PLACEHOLDERS))
                }
                _ if [&self.without_environment, &self.without_socket, &self.without_log_json, &self.of_root]
                    .iter()
                    .any(|other| other.sidecar[key] != *value) =>
                {
                    return Err(Error::Member(key.clone()));
                }
                _ => to_cel::value(value, &PLACEHOLDERS),
            };
            members.push(format!("  '{key}': dyn({expression})"));
        }
        Ok(format!("{{\n{}\n}}", members.join(",\n")))
    }

    pub(super) fn volumes(&self) -> Result<String, Error> {
        self.list("volumes", |plan| plan.volumes.clone())
    }

    pub(super) fn volume_names(&self) -> Result<String, Error> {
        self.list("names of volumes", |plan| plan.volumes.iter().map(|volume| volume["name"].clone()).collect())
    }

    /// Returns the expression of the path where the sidecar reads one environment's files.
    pub(super) fn mount_path(&self) -> String {
        to_cel::string(&self.mount_path, &PLACEHOLDERS)
    }

    /// Returns the expression of the mounts of every container that starts after the sidecar.
    pub(super) fn mounts(&self) -> Result<String, Error> {
        self.list("mounts", |plan| plan.mounts.clone())
    }

    /// Returns the largest number of these mounts.
    pub(super) fn most_mounts(&self) -> usize {
        self.full.mounts.len()
    }

    /// Returns the expression of a map from the names of all environment variables to their values.
    pub(super) fn endpoints(&self) -> String {
        let members = self.full.variables.iter();
        let members: Vec<_> =
            members.map(|(name, value)| format!("'{name}': {}", to_cel::string(value, &PLACEHOLDERS))).collect();
        format!("{{{}}}", members.join(", "))
    }

    /// Returns the expression of the annotation that records the injection for people.
    pub(super) fn record(&self) -> String {
        let all = "variables.environments.map(environment, '\"' + environment + '\"').join(',')";
        to_cel::string(&self.full.record, &[Placeholder::Text(QUOTED, all)])
    }

    /// Returns the expression of a list as a sum of its fixed parts, its part per environment, and its parts for the
    /// socket and for a log in JSON.
    fn list(&self, name: &'static str, of: impl Fn(&Plan) -> Vec<Value>) -> Result<String, Error> {
        let full = of(&self.full);
        let mut parts = Vec::new();
        for (without, part) in [
            (&self.without_environment, Part::EachEnvironment),
            (&self.without_socket, Part::If("variables.socket")),
            (&self.without_log_json, Part::If("variables.logJson")),
        ] {
            parts.push((inserted(&full, &of(without)).ok_or(Error::List(name))?, part));
        }
        parts.retain(|(range, _)| !range.is_empty());
        parts.sort_by_key(|(range, _)| range.start);
        // The part after the last one that depends on an option.
        parts.push((full.len()..full.len(), Part::Fixed));
        let (mut sum, mut end) = (Vec::new(), 0);
        for (range, part) in parts {
            // There is no such range if two parts overlap.
            let fixed = full.get(end..range.start).ok_or(Error::List(name))?;
            let items = full.get(range.clone()).ok_or(Error::List(name))?;
            for (items, part) in [(fixed, Part::Fixed), (items, part)] {
                if !items.is_empty() {
                    sum.push(part.expression(items).ok_or(Error::List(name))?);
                }
            }
            end = range.end;
        }
        Ok(if sum.is_empty() { "[]".to_owned() } else { sum.join("\n  + ") })
    }
}

/// Part of a list.
#[derive(Clone, Copy)]
enum Part {
    Fixed,
    EachEnvironment,
    /// Part that exists if this variable is true.
    If(&'static str),
}

impl Part {
    fn expression(self, items: &[Value]) -> Option<String> {
        let fixed = || to_cel::value(&Value::from(items), &PLACEHOLDERS);
        match self {
            Part::Fixed => Some(fixed()),
            Part::EachEnvironment => each(items),
            Part::If(variable) => Some(format!("({variable} ? {} : [])", fixed())),
        }
    }
}

/// Returns the expression of the part of a list that repeats per environment.
fn each(items: &[Value]) -> Option<String> {
    if let [item] = items {
        return Some(format!("variables.environments.map(environment, {})", to_cel::value(item, &PLACEHOLDERS)));
    }
    // CEL cannot flatten a list of lists. Strings without spaces can be joined and split again.
    let strings: Option<Vec<_>> =
        items.iter().map(|item| item.as_str().filter(|string| !string.contains(' '))).collect();
    let joined = to_cel::string(&strings?.join(" "), &PLACEHOLDERS);
    Some(format!("(variables.environments.map(environment, {joined}).join(' ').split(' '))"))
}

/// Returns the range of `full` whose removal gives `without`. `None` if no single range does.
fn inserted(full: &[Value], without: &[Value]) -> Option<std::ops::Range<usize>> {
    let length = full.len().checked_sub(without.len())?;
    let start = full.iter().zip(without).take_while(|(one, other)| one == other).count();
    let end = start + length;
    (full.get(end..)? == without.get(start..)?).then_some(start..end)
}

fn items(sidecar: &Value, key: &str) -> Vec<Value> {
    sidecar[key].as_array().cloned().unwrap_or_default()
}

/// Options in which template pods differ.
struct Template {
    environments: &'static [&'static str],
    socket: bool,
    log_json: bool,
}

const FULL: Template = Template { environments: &[ENVIRONMENT], socket: true, log_json: true };

fn plan(spec: &Value, template: &Template, config: &Config) -> Result<Plan, Error> {
    let pod = json!({"metadata": {"annotations": {annotation::INJECT: "placeholder"}}, "spec": spec});
    let pod = Pod::read(&pod).map_err(|_| Error::TemplatePod)?;
    let environments: Result<_, _> = template.environments.iter().map(|name| name.parse()).collect();
    let request = ParsedOptions {
        environments: environments.map_err(|_| Error::TemplatePod)?,
        port: PORT,
        cpu: ResourceAmounts::default(),
        memory: ResourceAmounts::default(),
        wait: Some(StartupTimeout::parse(AWAIT).ok_or(Error::TemplatePod)?),
        log_level: Some(LOG_LEVEL),
        log_json: Some(template.log_json),
        variables: VARIABLES.to_vec(),
        socket: template.socket,
        flag_overrides: None,
        override_key: None,
    };
    // The default layout, because an expression cannot look up how an environment is delivered.
    Ok(Plan::new(&pod, &request, config, |_| Layout::default(), Vec::new()))
}
