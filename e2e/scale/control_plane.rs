//! etcd, API server and controller manager as processes of this program, on free ports and in a directory of their own.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use kube::{
    Client,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::{chart::minor, meter::Meter, until, usage::Usage};

/// User of the controller: the service account that the chart gives its rights to.
const CONTROLLER: &str = "system:serviceaccount:remora-system:remora-controller";
/// The user of this program, and its token.
const ADMIN: &str = "admin";
const ADMIN_TOKEN: &str = "admin-token";
/// Controllers of the controller manager that the phases need: a deleted namespace, and objects of a deleted owner.
const CONTROLLERS: &str = "namespace-controller,garbage-collector-controller";

/// Running process, which ends with this value.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let file = fs::OpenOptions::new().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Ok(Self(command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?))
    }

    /// Starts the operator's program, with the C library's settings of the chart.
    pub(crate) fn start_operator(command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        command.env("POD_NAMESPACE", "remora-system").envs([
            ("MALLOC_ARENA_MAX", "2"),
            ("MALLOC_MMAP_THRESHOLD_", "131072"),
            ("MALLOC_TRIM_THRESHOLD_", "131072"),
        ]);
        Self::start(command, log)
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Kills the process, and does not wait for its end.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.0.kill()?)
    }

    /// True if the process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(Some(_)))
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        self.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.stop();
    }
}

/// Settings that each process of the controller starts with.
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    /// Server that is the only allowed source.
    pub(crate) upstream: String,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) admin: u16,
    pub(crate) log: PathBuf,
}

impl Launch {
    /// Starts a process of the controller.
    pub(crate) fn process(&self) -> anyhow::Result<Process> {
        let mut command = Command::new(&self.program);
        command
            .args(["controller", "--allowed-origin", &self.upstream])
            .arg(format!("--admin-listen=127.0.0.1:{}", self.admin))
            .env("KUBECONFIG", &self.kubeconfig);
        Process::start_operator(&mut command, &self.log)
    }
}

/// The control plane.
pub(crate) struct ControlPlane {
    bin: PathBuf,
    directory: PathBuf,
    etcd_port: u16,
    port: u16,
    etcd: Process,
    server: Process,
    manager: Option<Process>,
    /// Counter of the bytes between the controller and the API server.
    pub(crate) meter: Meter,
}

impl ControlPlane {
    /// Starts the processes of `bin` with their state in `directory`, and waits until the API server is ready.
    pub(crate) async fn start(bin: &Path, directory: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(directory)?;
        let [etcd_port, peer_port, port] = [free_port()?, free_port()?, free_port()?];
        configure(directory)?;
        let of = |port: u16| format!("http://127.0.0.1:{port}");
        let mut etcd = Command::new(bin.join("etcd"));
        etcd.args(["--name", "scale", "--unsafe-no-fsync", "--log-level", "warn", "--quota-backend-bytes=8589934592"])
            .arg("--data-dir")
            .arg(directory.join("etcd"))
            .args(["--listen-client-urls", &of(etcd_port), "--advertise-client-urls", &of(etcd_port)])
            .args(["--listen-peer-urls", &of(peer_port), "--initial-advertise-peer-urls", &of(peer_port)])
            .args(["--initial-cluster", &format!("scale={}", of(peer_port))]);
        let etcd = Process::start(&mut etcd, &directory.join("etcd.log"))?;
        let server = api_server(bin, directory, etcd_port, port)?;
        let meter = Meter::start(port).await?;
        let plane = Self {
            bin: bin.to_owned(),
            directory: directory.to_owned(),
            etcd_port,
            port,
            etcd,
            server,
            manager: None,
            meter,
        };
        plane.ready().await?;
        plane.start_manager()
    }

    fn start_manager(mut self) -> anyhow::Result<Self> {
        let mut manager = Command::new(self.bin.join("kube-controller-manager"));
        manager
            .arg("--kubeconfig")
            .arg(self.kubeconfig(ADMIN, self.port, ADMIN_TOKEN)?)
            .args(["--leader-elect=false", "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000"])
            .arg(format!("--controllers={CONTROLLERS}"));
        self.manager = Some(Process::start(&mut manager, &self.directory.join("controller-manager.log"))?);
        Ok(self)
    }

    async fn ready(&self) -> anyhow::Result<()> {
        until("the API server is ready", Duration::from_secs(180), async || {
            let client = self.client().await?;
            let request = http::Request::get("/readyz").body(Vec::new())?;
            Ok(client.request_text(request).await.is_ok_and(|text| text == "ok"))
        })
        .await
    }

    /// Returns the administrator's client.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig(ADMIN, self.port, ADMIN_TOKEN)?)?;
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }

    /// Returns the path of a kubeconfig for the controller, whose connections lead through the meter.
    pub(crate) fn controller_kubeconfig(&self) -> anyhow::Result<PathBuf> {
        self.account_kubeconfig("remora-controller", self.meter.port())
    }

    /// Returns the path of a kubeconfig for the webhook.
    pub(crate) fn webhook_kubeconfig(&self) -> anyhow::Result<PathBuf> {
        self.account_kubeconfig("remora-webhook", self.port)
    }

    fn account_kubeconfig(&self, account: &str, port: u16) -> anyhow::Result<PathBuf> {
        let token = self.kubectl(&["create", "token", account, "--namespace=remora-system", "--duration=24h"], None)?;
        self.kubeconfig(account, port, token.trim())
    }

    fn kubeconfig(&self, user: &str, port: u16, token: &str) -> anyhow::Result<PathBuf> {
        let server = format!("https://127.0.0.1:{port}");
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "scale",
            "clusters": [{"name": "scale", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "contexts": [{"name": "scale", "context": {"cluster": "scale", "user": "scale"}}],
            "users": [{"name": "scale", "user": {"token": token}}],
        });
        let path = self.directory.join(format!("{user}.kubeconfig"));
        fs::write(&path, kubeconfig.to_string())?;
        Ok(path)
    }

    /// Applies these objects.
    pub(crate) fn apply(&self, objects: &[Value]) -> anyhow::Result<()> {
        self.kubectl(&["apply", "--server-side"], Some(objects)).map(drop)
    }

    /// Deletes these objects.
    pub(crate) fn delete(&self, objects: &[Value]) -> anyhow::Result<()> {
        self.kubectl(&["delete"], Some(objects)).map(drop)
    }

    /// Runs kubectl as the administrator, with a file of these objects if there are some. Returns its output.
    fn kubectl(&self, arguments: &[&str], objects: Option<&[Value]>) -> anyhow::Result<String> {
        let mut kubectl = Command::new(self.bin.join("kubectl"));
        kubectl.arg("--kubeconfig").arg(self.kubeconfig(ADMIN, self.port, ADMIN_TOKEN)?).args(arguments);
        if let Some(objects) = objects {
            let path = self.directory.join("objects.json");
            fs::write(&path, json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())?;
            kubectl.arg("-f").arg(&path);
        }
        let done = kubectl.output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "kubectl {}: {said}", arguments.join(" "));
        Ok(String::from_utf8(done.stdout)?)
    }

    /// Returns the directory of the programs.
    pub(crate) fn bin(&self) -> &Path {
        &self.bin
    }

    /// Returns memory and processor time of the API server.
    pub(crate) fn server_usage(&self) -> anyhow::Result<Usage> {
        Usage::of(self.server.id()).context("the API server")
    }

    /// Ends the API server, starts it again, and waits until it is ready.
    pub(crate) async fn restart_server(&mut self) -> anyhow::Result<()> {
        self.server.stop()?;
        self.server = api_server(&self.bin, &self.directory, self.etcd_port, self.port)?;
        self.ready().await
    }

    /// Returns the log of the controller's requests.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.directory.join("audit.log")
    }

    /// Returns the value of a metric of etcd.
    pub(crate) async fn etcd_metric(&self, name: &str) -> anyhow::Result<f64> {
        let text = crate::meter::get(("127.0.0.1", self.etcd_port), "/metrics").await?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.with_context(|| format!("etcd (process {}) has no metric {name}", self.etcd.id()))
    }
}

fn api_server(bin: &Path, directory: &Path, etcd_port: u16, port: u16) -> anyhow::Result<Process> {
    let mut server = Command::new(bin.join("kube-apiserver"));
    let path = |name: &str| directory.join(name).display().to_string();
    server
        .arg(format!("--etcd-servers=http://127.0.0.1:{etcd_port}"))
        .arg(format!("--secure-port={port}"))
        .args(["--bind-address=127.0.0.1", "--service-cluster-ip-range=10.215.0.0/16", "--authorization-mode=RBAC"])
        .args(["--service-account-issuer=https://kubernetes.default.svc", "--disable-admission-plugins=ServiceAccount"])
        .arg(format!("--cert-dir={}", path("certificates")))
        .arg(format!("--token-auth-file={}", path("tokens.csv")))
        .arg(format!("--service-account-key-file={}", path("accounts.key")))
        .arg(format!("--service-account-signing-key-file={}", path("accounts.key")))
        .arg(format!("--audit-policy-file={}", path("audit.yaml")))
        .arg(format!("--audit-log-path={}", path("audit.log")))
        .args([
            "--audit-log-mode=batch",
            "--audit-log-batch-max-wait=1s",
            "--audit-log-maxsize=4000",
            "--profiling=false",
        ]);
    // MutatingAdmissionPolicy is a beta API before Kubernetes 1.36.
    if minor(bin)? < 36 {
        server.args([
            "--feature-gates=MutatingAdmissionPolicy=true",
            "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
        ]);
    }
    Process::start(&mut server, &directory.join("apiserver.log"))
}

/// Writes the API server's files: tokens, the key of service accounts, and a policy that logs the controller's requests.
fn configure(directory: &Path) -> anyhow::Result<()> {
    fs::write(directory.join("tokens.csv"), format!("{ADMIN_TOKEN},{ADMIN},{ADMIN},system:masters\n"))?;
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": [CONTROLLER]}, {"level": "None"}],
    });
    fs::write(directory.join("audit.yaml"), policy.to_string())?;
    let key =
        Command::new("openssl").args(["genrsa", "-out"]).arg(directory.join("accounts.key")).arg("2048").output()?;
    ensure!(key.status.success(), "openssl genrsa: {}", String::from_utf8_lossy(&key.stderr));
    Ok(())
}

pub(crate) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
