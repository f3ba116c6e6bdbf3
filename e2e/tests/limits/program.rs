//! A program of the operator in a cgroup of the size of its memory limit in the chart.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use remora_e2e::harness::root;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Memory cgroup, version 1 or 2.
pub(crate) struct Cgroup {
    directory: PathBuf,
    is_unified: bool,
}

impl Cgroup {
    /// Creates a cgroup below that of this process. A version 2 cgroup with processes cannot have children, so the new
    /// one is then at the top.
    pub(crate) fn new(name: &str, limit: u64) -> anyhow::Result<Self> {
        let mounted = Path::new("/sys/fs/cgroup");
        let of_process = fs::read_to_string("/proc/self/cgroup")?;
        let is_unified = mounted.join("cgroup.controllers").exists();
        let parent = if is_unified {
            fs::write(mounted.join("cgroup.subtree_control"), "+memory")
                .map_err(|error| anyhow::anyhow!("no cgroup can be given a limit of memory: {error} at {}; run this as root where /sys/fs/cgroup is writable", mounted.display()))?;
            mounted.to_owned()
        } else {
            let own = of_process.lines().find_map(|line| line.split_once(":memory:")).map_or("/", |(_, path)| path);
            mounted.join("memory").join(own.trim_start_matches('/'))
        };
        let directory = parent.join(format!("remora-{name}-{}", std::process::id()));
        fs::create_dir(&directory).map_err(|error| {
            anyhow::anyhow!(
                "no cgroup can be made: {error} at {}; run this as root where it is writable",
                directory.display()
            )
        })?;
        let file = if is_unified { "memory.max" } else { "memory.limit_in_bytes" };
        fs::write(directory.join(file), limit.to_string())?;
        Ok(Self { directory, is_unified })
    }

    /// Returns the bytes that the program has allocated and touched, without file pages.
    pub(crate) fn allocated(&self) -> u64 {
        let key = if self.is_unified { "anon " } else { "total_rss " };
        let stat = fs::read_to_string(self.directory.join("memory.stat")).unwrap();
        stat.lines().find_map(|line| line.strip_prefix(key)).unwrap().parse().unwrap()
    }
}

/// Running program, which ends with the test.
pub(crate) struct Running {
    child: Child,
    pub(crate) cgroup: Cgroup,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir(&self.cgroup.directory);
    }
}

impl Running {
    /// Starts `remora-operator` with these arguments, the first of which is the command, in a cgroup, with the heap
    /// settings of the chart.
    pub(crate) fn start(
        program: &Path,
        cgroup: Cgroup,
        kubeconfig: &Path,
        arguments: &[String],
    ) -> anyhow::Result<Self> {
        let procs = cgroup.directory.join("cgroup.procs");
        // The shell joins the cgroup before it becomes the program, so that all of the program's memory counts.
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(procs).arg(program).args(arguments);
        command.env("KUBECONFIG", kubeconfig).envs(chart_heap());
        Ok(Self { child: command.spawn()?, cgroup })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_alive(&mut self) {
        assert_eq!(self.child.try_wait().unwrap(), None, "the program ended: it had too much memory, most likely");
    }
}

/// Returns the memory limit in the chart of a part of the operator.
pub(crate) fn chart_limit(part: &str) -> u64 {
    let values: Value =
        serde_yaml::from_str(&fs::read_to_string(root().join("charts/remora/values.yaml")).unwrap()).unwrap();
    let limit = values[part]["resources"]["limits"]["memory"].as_str().unwrap().to_owned();
    limit.strip_suffix("Mi").expect("a limit in Mi").parse::<u64>().unwrap() << 20
}

/// Returns the environment variables of the chart's pods that configure the heap.
fn chart_heap() -> Vec<(String, String)> {
    let template = fs::read_to_string(root().join("charts/remora/templates/_pod.tpl")).unwrap();
    let lines: Vec<&str> = template.lines().map(str::trim).collect();
    let heap = lines.windows(2).filter_map(|pair| {
        let name = pair[0].strip_prefix("- name: ").filter(|name| name.starts_with("MALLOC_"))?;
        Some((name.to_owned(), pair[1].strip_prefix("value: ")?.trim_matches('"').to_owned()))
    });
    heap.collect()
}

pub(crate) fn free_port() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Writes a kubeconfig for an API server without TLS, and returns its path.
pub(crate) fn kubeconfig(directory: &Path, api_server: SocketAddr) -> PathBuf {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": format!("http://{api_server}")}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "users": [{"name": "test", "user": {}}],
    });
    let path = directory.join("kubeconfig");
    fs::write(&path, kubeconfig.to_string()).unwrap();
    path
}

/// Returns the status of a path of a program's admin port, over a new connection, as a kubelet's probe does.
pub(crate) async fn probe(admin: SocketAddr, path: &str) -> anyhow::Result<u16> {
    let mut stream = TcpStream::connect(admin).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    anyhow::ensure!(answer.len() > 12, "no answer: {answer:?}");
    Ok(answer[9..12].parse()?)
}
