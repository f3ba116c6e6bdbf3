//! The metrics page of the admin port, in Prometheus' text format.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use crate::clock::since_epoch;
use crate::counters::latency::Cumulative;
use crate::environments::state::{Environment, Sizes, State};

/// Renders all metrics in Prometheus' text format.
pub(crate) fn render(state: &State) -> String {
    let mut page = Page(String::with_capacity(4096));
    page.family("remora_sidecar_build_info", "gauge", "Version of the sidecar. Always 1.");
    page.sample("remora_sidecar_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    page.family("remora_sidecar_requests_total", "counter", "Number of answers by route and class of status.");
    for (route, class, count) in state.requests.rows().filter(|(_, _, count)| *count > 0) {
        let labels = [("route", route.label()), ("status", class.label())];
        page.sample("remora_sidecar_requests_total", &labels, count as f64);
    }
    page.latency(&state.latency.cumulative());
    page.family("remora_sidecar_streams", "gauge", "Number of open event streams.");
    page.sample("remora_sidecar_streams", &[], state.streams.open() as f64);
    page.environments(state);
    page.use_of_flags(state);
    page.process();
    page.0
}

struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail, here and below.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            // Names of environments are DNS labels or names of directories, and the latter may need escapes.
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{value}\"", if index == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn gauge(&mut self, state: &State, name: &str, help: &str, value: impl Fn(&Environment) -> Option<f64>) {
        self.family(name, "gauge", help);
        for environment in &state.environments {
            if let Some(value) = value(environment) {
                self.sample(name, &[("environment", &environment.name)], value);
            }
        }
    }

    fn latency(&mut self, latency: &Cumulative) {
        const ANSWERS: &str = "remora_sidecar_answer_duration_seconds";
        self.family(
            ANSWERS,
            "histogram",
            "Time from the last byte of a request on the data port to its answer, without sending it, in seconds.",
        );
        for (bound, count) in &latency.buckets {
            self.sample(&format!("{ANSWERS}_bucket"), &[("le", &bound.to_string())], *count as f64);
        }
        self.sample(&format!("{ANSWERS}_bucket"), &[("le", "+Inf")], latency.count as f64);
        self.sample(&format!("{ANSWERS}_sum"), &[], latency.sum);
        self.sample(&format!("{ANSWERS}_count"), &[], latency.count as f64);
    }

    fn environments(&mut self, state: &State) {
        const REVISION: &str = "remora_sidecar_revision_info";
        self.family(REVISION, "gauge", "Revision that is served. Always 1.");
        for environment in &state.environments {
            if let Some(loaded) = environment.loaded.load().as_ref() {
                let revision = loaded.snapshot.revision().to_string();
                self.sample(REVISION, &[("environment", &environment.name), ("revision", &revision)], 1.0);
            }
        }
        self.gauge(
            state,
            "remora_sidecar_loaded",
            "1 if the environment has a snapshot to serve, 0 if not.",
            |environment| Some(f64::from(u8::from(environment.loaded.load().is_some()))),
        );
        self.gauge(
            state,
            "remora_sidecar_last_swap_timestamp_seconds",
            "Unix time at which the served snapshot was loaded, in seconds.",
            |environment| Some(since_epoch(environment.loaded.load().as_ref()?.since).as_secs_f64()),
        );
        let now = since_epoch(SystemTime::now()).as_secs();
        self.gauge(
            state,
            "remora_sidecar_stale_seconds",
            "Seconds since the pod was notified of a revision that it does not serve yet; 0 if it serves that revision.",
            |environment| match environment.stale_since.load(Ordering::Relaxed) {
                0 => Some(0.0),
                since => Some(now.saturating_sub(since) as f64),
            },
        );
        self.gauge(state, "remora_sidecar_features", "Number of features in the served snapshot.", |environment| {
            Some(environment.loaded.load().as_ref()?.snapshot.served_features() as f64)
        });
        self.gauge(
            state,
            "remora_sidecar_mapped_in_place",
            "1 if the files are mapped in place, 0 if they were copied.",
            |environment| Some(f64::from(u8::from(environment.loaded.load().as_ref()?.in_place))),
        );
        const BYTES: &str = "remora_sidecar_snapshot_bytes";
        self.family(BYTES, "gauge", "Sizes of the served files in bytes, by part.");
        for environment in &state.environments {
            if let Some(loaded) = environment.loaded.load().as_ref() {
                let Sizes { core, overrides, document } = loaded.sizes;
                for (part, bytes) in [("core", core), ("overrides", overrides), ("document", document)] {
                    self.sample(BYTES, &[("environment", &environment.name), ("part", part)], bytes as f64);
                }
            }
        }
        const RELOADS: &str = "remora_sidecar_reloads_total";
        self.family(RELOADS, "counter", "Number of checks of a changed volume, by result.");
        for environment in &state.environments {
            for (result, count) in environment.reloads.rows() {
                let labels = [("environment", environment.name.as_str()), ("result", result.label())];
                self.sample(RELOADS, &labels, count as f64);
            }
        }
    }

    /// Writes the counters of evaluations and of the uses that applications report.
    fn use_of_flags(&mut self, state: &State) {
        const EVALUATIONS: &str = "remora_sidecar_evaluations_total";
        self.family(
            EVALUATIONS,
            "counter",
            "Number of evaluations by environment and route. Only answers with status 200 count.",
        );
        for environment in &state.environments {
            for (kind, count) in environment.evaluations.rows() {
                let labels = [("environment", environment.name.as_str()), ("route", kind.label())];
                self.sample(EVALUATIONS, &labels, count as f64);
            }
        }
        const OVERRUNS: &str = "remora_sidecar_undecided_evaluations_total";
        self.family(
            OVERRUNS,
            "counter",
            "Number of evaluations that used up their budget of steps. Undecided segments did not match.",
        );
        for environment in &state.environments {
            self.sample(OVERRUNS, &[("environment", &environment.name)], environment.overruns.count() as f64);
        }
        const USES: &str = "remora_sidecar_flag_uses_total";
        self.family(
            USES,
            "counter",
            "Number of uses of a flag of the environment: as SDKs report them, and single evaluations by OFREP.",
        );
        for environment in &state.environments {
            environment.each_use(|flag, count| {
                self.sample(USES, &[("environment", &environment.name), ("flag", flag)], count as f64);
            });
        }
        const OTHER: &str = "remora_sidecar_other_flag_uses_total";
        self.family(OTHER, "counter", "Number of reported uses of flags that the environment does not have.");
        for environment in &state.environments {
            self.sample(OTHER, &[("environment", &environment.name)], environment.uses.lock().unknown() as f64);
        }
    }

    /// Writes the kernel's figures about the process.
    fn process(&mut self) {
        let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return };
        let bytes = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field))?;
            line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
        };
        for (name, field, help) in [
            ("process_resident_memory_bytes", "VmRSS:", "Resident memory in bytes, including mapped files."),
            (
                "process_anonymous_memory_bytes",
                "RssAnon:",
                "Resident memory in bytes that no file and no other process shares.",
            ),
        ] {
            if let Some(bytes) = bytes(field) {
                self.family(name, "gauge", help);
                self.sample(name, &[], bytes as f64);
            }
        }
    }
}

#[cfg(test)]
mod tests {

    use http::StatusCode;

    use super::*;
    use crate::counters::reloads::Reload;
    use crate::environments::state::Settings;
    use crate::routes::Route;

    #[test]
    fn metrics_page_is_valid_prometheus_text() {
        let state = State::new(["shop\"\n".to_owned()], Settings::default());
        state.requests.count(Route::Flags, StatusCode::OK);
        state.requests.count(Route::Flags, StatusCode::OK);
        state.requests.count(Route::OfrepFlags, StatusCode::NOT_MODIFIED);
        state.environments[0].reloads.count(Reload::Missing);
        let page = render(&state);
        assert!(page.contains("remora_sidecar_requests_total{route=\"flags\",status=\"2xx\"} 2\n"), "{page}");
        assert!(page.contains("remora_sidecar_requests_total{route=\"ofrep_flags\",status=\"3xx\"} 1\n"), "{page}");
        assert!(page.contains("{environment=\"shop\\\"\\n\",result=\"missing\"} 1\n"), "{page}");
        assert!(page.contains("process_resident_memory_bytes "), "{page}");
        let mut families = std::collections::HashSet::new();
        for line in page.lines() {
            if let Some(family) = line.strip_prefix("# TYPE ") {
                assert!(families.insert(family.split(' ').next().unwrap().to_owned()), "{line} twice");
            } else if !line.starts_with('#') {
                let name = line.split(['{', ' ']).next().unwrap();
                let series = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
                let name = series.filter(|family| families.contains(*family)).unwrap_or(name);
                assert!(families.contains(name), "{line} before its type");
                assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
            }
        }
    }
}
