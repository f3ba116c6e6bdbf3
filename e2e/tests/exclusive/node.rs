//! Machine of the local cluster, for faults that the API server cannot cause: stopped processes, and alarms of etcd.
//! Each fault is undone, whatever the result of the case is.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use remora_e2e::harness::{eventually, root, say};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::Command;

/// Time in which a killed process ends on a busy machine.
const END: Duration = Duration::from_secs(60);

/// Machine of the local cluster.
pub(super) struct Node {
    /// Directory of the cluster's state.
    run: PathBuf,
    /// Client port of etcd.
    etcd: String,
    /// Names of the cluster's processes.
    processes: Vec<String>,
}

impl Node {
    /// Finds the machine of the local cluster. Returns `None` on another cluster, whose machines the tests must not
    /// break, and prints that the case was skipped.
    pub(super) async fn local(case: &str) -> anyhow::Result<Option<Node>> {
        let facts = r#"cd "$0" && . ./env.sh && . ./processes.sh &&
            printf '%s\n' "$KUBECONFIG" "$REMORA_RUN" "$REMORA_ETCD_PORT" "${REMORA_PROCESSES[*]}""#;
        let script = root().join("e2e/cluster");
        let output = Command::new("bash").args(["-euc", facts]).arg(&script).output().await?;
        anyhow::ensure!(output.status.success(), "{}: {}", script.display(), String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout)?;
        let [kubeconfig, run, etcd, processes] = text.lines().collect::<Vec<_>>()[..] else {
            anyhow::bail!("four facts: {text}")
        };
        if std::env::var("KUBECONFIG").ok().as_deref() != Some(kubeconfig) {
            say(&format!(
                "{case}: not tried, as it needs the machine of the local cluster, and KUBECONFIG names another"
            ));
            return Ok(None);
        }
        let processes = processes.split(' ').map(str::to_owned).collect();
        Ok(Some(Node { run: run.into(), etcd: format!("http://127.0.0.1:{etcd}"), processes }))
    }

    /// Kills one of the cluster's processes, as a crash would, and waits until it has ended. [`Node::restore`] starts it
    /// again.
    pub(super) async fn kill(&self, name: &str) -> anyhow::Result<()> {
        self.kill_each([name]).await
    }

    /// Kills all of the cluster's processes, and waits until they have ended. Pods go on, as their processes belong to
    /// containerd's shims.
    pub(super) async fn kill_all(&self) -> anyhow::Result<()> {
        self.kill_each(self.processes.iter().map(String::as_str)).await
    }

    /// Kills processes at the same time. [`Node::restore`] would not start one that has not ended.
    async fn kill_each(&self, names: impl IntoIterator<Item = &str>) -> anyhow::Result<()> {
        let mut killed = Vec::new();
        for name in names {
            let pid = self.pid(name)?;
            signal(pid, Signal::KILL)?;
            killed.push((name, pid));
        }
        for (name, pid) in killed {
            eventually(&format!("{name} has ended"), END, async || Ok(has_ended(pid)?.then_some(()))).await?;
        }
        Ok(())
    }

    fn pid(&self, name: &str) -> anyhow::Result<i32> {
        let path = self.run.join("pid").join(name);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(text.split_whitespace().next().context("a file without a process")?.parse()?)
    }

    /// Kills all processes of the cluster and of its pods, as a loss of power would.
    pub(super) async fn lose_power(&self) -> anyhow::Result<()> {
        self.kill_all().await?;
        script("kill-pods.sh").await
    }

    /// Starts all processes that do not run, and waits until the node is Ready.
    pub(super) async fn restore(&self) -> anyhow::Result<()> {
        script("up.sh").await
    }

    /// Sets or clears the alarm that etcd raises when its quota is used up: etcd refuses all writes until it is
    /// cleared.
    pub(super) async fn alarm(&self, is_set: bool) -> anyhow::Result<()> {
        let action = if is_set { "ACTIVATE" } else { "DEACTIVATE" };
        self.etcd("maintenance/alarm", &json!({"action": action, "memberID": "0", "alarm": "NOSPACE"})).await?;
        let alarms = self.etcd("maintenance/alarm", &json!({"action": "GET"})).await?;
        let now = alarms["alarms"].as_array().is_some_and(|alarms| !alarms.is_empty());
        anyhow::ensure!(now == is_set, "the alarm did not change: {alarms}");
        Ok(())
    }

    async fn etcd(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        // reqwest requires the process's TLS provider, even without TLS.
        let _installed_already = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build()?;
        let answer = client.post(format!("{}/v3/{path}", self.etcd)).json(body).send().await?;
        Ok(answer.error_for_status()?.json().await?)
    }
}

/// Runs a script of the local cluster.
async fn script(name: &str) -> anyhow::Result<()> {
    let output = Command::new("bash").arg(root().join("e2e/cluster").join(name)).output().await?;
    let said = [output.stdout, output.stderr].concat();
    anyhow::ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&said));
    Ok(())
}

/// Returns the ID of a program's process in a pod, found by the pod's cgroup.
pub(super) fn process(pod_uid: &str, program: &str) -> anyhow::Result<i32> {
    let group = format!("pod{pod_uid}");
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Processes may exit during the search.
        let read = |file: &str| std::fs::read(entry.path().join(file)).unwrap_or_default();
        let exists = String::from_utf8_lossy(&read("cgroup")).contains(&group);
        let command = read("cmdline");
        let first = command.split(|byte| *byte == 0).next().unwrap_or_default();
        if exists && String::from_utf8_lossy(first).ends_with(program) {
            return Ok(pid);
        }
    }
    anyhow::bail!("no process {program} in pod {pod_uid}")
}

/// True if the process is gone, or is a zombie that its parent has not reaped.
fn has_ended(pid: i32) -> anyhow::Result<bool> {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        // The name, in parentheses, may contain any character, so the state is found after it.
        Ok(stat) => Ok(stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        // The process ended between the opening of the file and the reading.
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(true),
        Err(error) => Err(error).with_context(|| format!("the state of process {pid}")),
    }
}

fn signal(pid: i32, signal: Signal) -> anyhow::Result<()> {
    let pid = Pid::from_raw(pid).context("a process has a number")?;
    kill_process(pid, signal).with_context(|| format!("process {pid:?}"))
}

/// Process that is stopped until this value is dropped.
pub(super) struct Stopped(i32);

impl Stopped {
    pub(super) fn new(pid: i32) -> anyhow::Result<Stopped> {
        signal(pid, Signal::STOP)?;
        Ok(Stopped(pid))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if let Err(error) = signal(self.0, Signal::CONT) {
            say(&format!("a stopped process does not go on: {error:#}"));
        }
    }
}
