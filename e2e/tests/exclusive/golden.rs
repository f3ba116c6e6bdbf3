//! Pods and their expected outcome: those of `operator/tests/inject/`, and more at the limits of every grammar, for
//! which the code itself gives the outcome.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Parser;
use remora_operator::injection::{Config, Decision, Defaults, PodContext, decide};
use serde_json::{Value, json};

/// Pod as a user sends it.
pub(super) struct Golden {
    pub(super) name: String,
    pub(super) pod: Value,
    pub(super) place: Spot,
    /// Annotations of the pod's namespace.
    pub(super) defaults: BTreeMap<String, String>,
    /// Settings of the installation.
    pub(super) settings: Settings,
    pub(super) becomes: Becomes,
}

/// Namespace that the pod is sent to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Spot {
    Anywhere,
    KubeSystem,
    Ours,
}

/// Values of the chart that an installation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settings {
    /// The chart's defaults.
    Defaults,
    /// Those of `sidecar.values.yaml`.
    Values,
}

impl Settings {
    pub(super) const ALL: [Settings; 2] = [Settings::Defaults, Settings::Values];

    /// Returns the values of the chart.
    pub(super) fn values(self) -> anyhow::Result<Value> {
        match self {
            Settings::Defaults => Ok(json!({})),
            Settings::Values => read(&directory().join("sidecar.values.yaml")),
        }
    }

    /// Returns the defaults of the webhook's arguments that follow from these values.
    fn sidecar_defaults(self) -> anyhow::Result<Defaults> {
        /// Command line with the defaults of sidecars.
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            defaults: Defaults,
        }
        let arguments = match self {
            Settings::Defaults => String::new(),
            Settings::Values => std::fs::read_to_string(directory().join("sidecar.arguments.txt"))?,
        };
        Ok(Line::try_parse_from(["run"].into_iter().chain(arguments.lines()))?.defaults)
    }
}

/// Expected outcome.
#[derive(Clone)]
pub(super) enum Becomes {
    Pod { pod: Value, warnings: Vec<String> },
    Refused(String),
}

/// Namespace in the expected messages.
pub(super) const NAMESPACE: &str = "shop";

pub(super) const REPOSITORY: &str = "example.org/remora-sidecar";
pub(super) const TAG: &str = "1.0.0";

fn directory() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "operator", "tests", "inject"].iter().collect()
}

/// Returns the pods of the golden table.
pub(super) fn table() -> anyhow::Result<Vec<Golden>> {
    let mut table = Vec::new();
    for entry in std::fs::read_dir(directory())? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".in.yaml"))
        else {
            continue;
        };
        let pod = read(&path)?;
        let outcome = read(&path.with_file_name(format!("{name}.out.yaml")))?;
        let defaults = path.with_file_name(format!("{name}.namespace.yaml"));
        let defaults = if defaults.exists() { serde_json::from_value(read(&defaults)?)? } else { BTreeMap::new() };
        let settings = if name.starts_with("values-") { Settings::Values } else { Settings::Defaults };
        let place = match name {
            "system-namespace" => Spot::KubeSystem,
            "own-namespace" => Spot::Ours,
            _ => Spot::Anywhere,
        };
        let becomes = match outcome.get("message").and_then(Value::as_str) {
            Some(message) => Becomes::Refused(message.to_owned()),
            None => Becomes::Pod {
                pod: outcome.get("pod").unwrap_or(&pod).clone(),
                // In system namespaces the API server calls neither webhook nor policy, so there are no warnings.
                warnings: if place == Spot::Anywhere { warnings(&outcome) } else { Vec::new() },
            },
        };
        table.push(Golden { name: name.to_owned(), pod, place, defaults, settings, becomes });
    }
    table.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(table)
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(serde_yaml::from_str(&text)?)
}

fn warnings(outcome: &Value) -> Vec<String> {
    let many = outcome["warnings"].as_array().into_iter().flatten();
    many.chain([&outcome["warning"]]).filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns pods with valid and invalid values of every annotation, and with many kinds of resources in their other
/// containers.
pub(super) fn bounds() -> anyhow::Result<Vec<Golden>> {
    let values: &[(&str, &[&str])] = &[
        (
            "inject",
            &[
                "a,b , c",
                "",
                " ",
                ",",
                "a,",
                "A",
                "a b",
                "a\n",
                "-a",
                "a-",
                "a.b",
                "ä",
                "../a",
                "true",
                "x/true",
                "b,disabled",
                "a,a",
                "a,B,a",
                "a,b,c,d,e,f,g,h",
                "a,b,c,d,e,f,g,h,i",
                "a,b,c,d,e,f,g,h,i,j,B,a",
                "a,b,c,d,e,f,g,h,I",
                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                "say \"hi\" \\ to 'them' {{x}} in a value that is longer than sixty-four characters",
            ],
        ),
        (
            "port",
            &["1024", "65534", "04777", "", "0", "-1", "1023", "65535", "65536", "+4777", "4777 ", "80\n", "0x1f90"],
        ),
        (
            "cpu-request",
            &["1m", "0.5", "1024", "251m", "0", "0m", "1025", "0.5m", "1e3", "+1", "1k", ".5", "1.", "0.0001"],
        ),
        ("cpu-limit", &["1m", "4m", "2", "1.001", "1.0001"]),
        (
            "memory-request",
            &["4Mi", "64Mi", "1.5Gi", "4194304", "1Ti", "4194303", "2Ti", "32m", "32mi", "32MB", "1e9", "4.001Mi"],
        ),
        ("memory-limit", &["4Mi", "5M", "11Mi", "1T", "32 Mi", "-32Mi"]),
        (
            "await",
            &[
                "0s",
                "500ms",
                "1500ms",
                "60000ms",
                "2m",
                "60m",
                "3600s",
                "3601s",
                "61m",
                "1h",
                "soon",
                "",
                "s",
                "12345678ms",
            ],
        ),
        ("log-level", &["error", "debug", "trace", "Info", ""]),
        ("log-json", &["true", "false", "json", "True", ""]),
        (
            "env",
            &[
                "none",
                "OFREP_ENDPOINT",
                "FLAGSMITH_API_URL, OFREP_ENDPOINT",
                "OFREP_ENDPOINT,OFREP_ENDPOINT",
                "",
                "None",
                "PATH",
                "OFREP_ENDPOINT,",
                "none,OFREP_ENDPOINT",
            ],
        ),
        ("unix-socket", &["true", "false", "yes", ""]),
        ("revision.a", &["1"]),
        ("prot", &["1"]),
    ];
    let mut pods = Vec::new();
    for (key, values) in values {
        for value in *values {
            let mut pod = json!({
                "metadata": {"annotations": {"remora.dev/inject": "a"}},
                "spec": {"containers": [{"name": "web", "image": "web"}]},
            });
            pod["metadata"]["annotations"][format!("remora.dev/{key}")] = json!(value);
            pods.push((format!("{key} {value:?}"), pod));
        }
    }
    // These values fill the maximum size of annotations: they must not keep the API server busy.
    for (name, long) in
        [("commas", ",".repeat(200_000)), ("spaces", " ".repeat(200_000) + "a"), ("names", "a,".repeat(100_000))]
    {
        pods.push((
            format!("very many {name}"),
            json!({
                "metadata": {"annotations": {"remora.dev/inject": long}},
                "spec": {"containers": [{"name": "web", "image": "web"}]},
            }),
        ));
    }
    pods.extend(resources());
    let by_default = pods.into_iter().map(|(name, pod)| (name, pod, Settings::Defaults));
    let by_values = resources().into_iter().map(|(name, pod)| (format!("{name}, by values"), pod, Settings::Values));
    by_default
        .chain(by_values)
        .map(|(name, pod, settings)| {
            let becomes = by_the_code(&pod, settings)?;
            Ok(Golden { name, pod, place: Spot::Anywhere, defaults: BTreeMap::new(), settings, becomes })
        })
        .collect()
}

/// Returns pods by the resources of their other containers and of the sidecar.
fn resources() -> Vec<(String, Value)> {
    let both = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
    let others = [
        ("nothing", json!({})),
        ("a request", json!({"requests": both("1", "1Gi")})),
        ("limits", json!({"limits": both("1", "1Gi")})),
        ("equal in value", json!({"requests": both("1000m", "1024Mi"), "limits": both("1", "1Gi")})),
        ("less", json!({"requests": both("500m", "1Gi"), "limits": both("1", "1Gi")})),
        ("a CPU limit", json!({"limits": {"cpu": "2"}})),
        ("a small memory limit", json!({"limits": {"memory": "5Mi"}})),
        ("zeros", json!({"requests": both("0", "0"), "limits": both("0", "0")})),
    ];
    let asked = [
        ("nothing", json!({})),
        ("a small CPU limit", json!({"remora.dev/cpu-limit": "2m"})),
        ("a large CPU request", json!({"remora.dev/cpu-request": "300m"})),
        ("a small memory limit", json!({"remora.dev/memory-limit": "5Mi"})),
        ("different bounds", json!({"remora.dev/memory-request": "16Mi", "remora.dev/memory-limit": "64Mi"})),
        ("crossed bounds", json!({"remora.dev/cpu-request": "20m", "remora.dev/cpu-limit": "10m"})),
    ];
    let mut pods = Vec::new();
    for (has, resources) in &others {
        for (wants, annotations) in &asked {
            let mut pod = json!({"metadata": {"annotations": annotations}, "spec": {
                "initContainers": [{"name": "mesh", "image": "mesh", "restartPolicy": "Always", "resources": resources}],
                "containers": [{"name": "web", "image": "web", "resources": resources}],
            }});
            pod["metadata"]["annotations"]["remora.dev/inject"] = json!("a");
            pods.push((format!("containers have {has}, the sidecar wants {wants}"), pod));
        }
    }
    pods
}

/// Returns the outcome of a pod that the code gives.
pub(super) fn by_the_code(pod: &Value, settings: Settings) -> anyhow::Result<Becomes> {
    let config = Config {
        sidecar_image: format!("{REPOSITORY}:{TAG}"),
        sidecar_pull_policy: "IfNotPresent".to_owned(),
        own_namespace: "remora-system".to_owned(),
        defaults: settings.sidecar_defaults()?,
    };
    Ok(match decide(pod, &PodContext::new(NAMESPACE), &config) {
        Decision::Skip(reason) => {
            Becomes::Pod { pod: pod.clone(), warnings: reason.warning().map(str::to_owned).into_iter().collect() }
        }
        Decision::Deny(refusal) => Becomes::Refused(refusal.to_string()),
        Decision::Inject(injection) => {
            let mut patched = pod.clone();
            json_patch::patch(&mut patched, &injection.patch)?;
            Becomes::Pod { pod: patched, warnings: injection.warnings }
        }
    })
}
