//! The sidecars of all pods: one listener, which tells the pods apart by the loopback address that is asked. A sidecar
//! serves the revision of its pod's annotation as soon as this program sees it, as if kubelet had updated the volume. A
//! pod that is being deleted ends at once, as if kubelet had stopped its containers.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    api::DeleteParams,
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// Admin port of sidecars.
const PORT: u16 = 4778;

/// The revision that a sidecar serves.
#[derive(Clone, Debug)]
struct Serves {
    environment: String,
    revision: String,
}

type Served = Arc<Mutex<HashMap<Ipv4Addr, Serves>>>;

/// Sidecars of all pods. They end with this value.
pub(crate) struct Sidecars {
    served: Served,
    _tasks: JoinSet<()>,
}

impl Sidecars {
    /// Listens for the controller's questions, and watches the pods.
    pub(crate) async fn start(client: Client) -> anyhow::Result<Self> {
        let served = Served::default();
        let listener =
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await.with_context(|| format!("port {PORT} is taken"))?;
        let mut tasks = JoinSet::new();
        tasks.spawn(answer_all(listener, Arc::clone(&served)));
        tasks.spawn(follow(client, Arc::clone(&served)));
        Ok(Self { served, _tasks: tasks })
    }

    /// Returns the address of the pod with this number.
    pub(crate) fn address(&self, number: usize) -> anyhow::Result<Ipv4Addr> {
        let number = u32::try_from(number)? + 1;
        Ok(Ipv4Addr::from((127 << 24) | (1 << 16) | number))
    }

    /// Starts a sidecar that serves this revision.
    pub(crate) fn starts(&self, address: Ipv4Addr, environment: &str, revision: &str) {
        let serves = Serves { environment: environment.to_owned(), revision: revision.to_owned() };
        self.served.lock().unwrap_or_else(PoisonError::into_inner).insert(address, serves);
    }

    /// Counts the sidecars that serve each revision, by environment and revision.
    pub(crate) fn serving(&self) -> HashMap<(String, String), usize> {
        let mut counts = HashMap::new();
        for Serves { environment, revision } in self.served.lock().unwrap_or_else(PoisonError::into_inner).values() {
            *counts.entry((environment.clone(), revision.clone())).or_default() += 1;
        }
        counts
    }
}

async fn answer_all(listener: TcpListener, served: Served) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let served = Arc::clone(&served);
        tokio::spawn(async move {
            // The controller asks again if an answer is lost.
            let _ = answer(stream, &served).await;
        });
    }
}

async fn answer(mut stream: TcpStream, served: &Served) -> anyhow::Result<()> {
    let IpAddr::V4(address) = stream.local_addr()?.ip() else { return Ok(()) };
    let serves = served.lock().unwrap_or_else(PoisonError::into_inner).get(&address).cloned();
    let text = serves.map(|serves| format!("{} {}\n", serves.environment, serves.revision)).unwrap_or_default();
    let mut request = [0; 1024];
    let _ = stream.read(&mut request).await?;
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len());
    stream.write_all((head + &text).as_bytes()).await?;
    Ok(())
}

/// Deletes a pod whose containers have all ended.
async fn end(client: Client, pod: Pod) {
    let api: Api<Pod> = Api::namespaced(client, pod.namespace().as_deref().unwrap_or_default());
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    // Another event of the same pod may have deleted it already.
    let _ = api.delete(&pod.name_any(), &now).await;
}

/// Follows the annotations and deletions of the pods.
async fn follow(client: Client, served: Served) {
    let api: Api<Pod> = Api::all(client.clone());
    let injected = watcher::Config::default().labels("remora.dev/sidecar=injected");
    let mut events = watcher(api, injected).default_backoff().applied_objects().boxed();
    while let Some(event) = events.next().await {
        let Ok(pod) = event else { continue };
        if pod.metadata.deletion_timestamp.is_some() {
            tokio::spawn(end(client.clone(), pod));
            continue;
        }
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref()?.parse::<Ipv4Addr>().ok());
        let Some(address) = address else { continue };
        let mut served = served.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(serves) = served.get_mut(&address) else { continue };
        let key = format!("remora.dev/revision.{}", serves.environment);
        if let Some(revision) = pod.annotations().get(&key).and_then(|text| text.split_whitespace().next()) {
            revision.clone_into(&mut serves.revision);
        }
    }
}
