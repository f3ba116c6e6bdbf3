//! Checks, after each change that a watch reports, which revision sidecars serve over the published ConfigMaps.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    runtime::watcher::{self, Event, watcher},
};
use parking_lot::Mutex;
use remora_operator::api::names::{EnvironmentName, FORMAT, label};
use remora_sidecar::{Level, Reader, set_level};
use tokio::task::JoinHandle;

/// Observer of the volumes of all namespaces.
pub(crate) struct Volumes {
    problems: Arc<Mutex<Vec<String>>>,
    watch: JoinHandle<()>,
}

impl Drop for Volumes {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// Volume of one namespace.
struct Volume {
    directory: PathBuf,
    files: BTreeMap<String, Vec<u8>>,
    changes: usize,
    running: Reader,
    /// Revisions that the running sidecar has served, each once.
    served: Vec<String>,
}

impl Volumes {
    /// Observes the published ConfigMaps of all namespaces. The files of the volumes are written below `directory`.
    pub(crate) fn observe(client: Client, directory: &Path) -> Self {
        set_level(Level::Error);
        let problems = Arc::<Mutex<Vec<String>>>::default();
        let (found, directory) = (Arc::clone(&problems), directory.to_owned());
        let published = watcher::Config::default().labels(&format!("{}={}", label::MANAGED_BY, label::REMORA));
        let watch = tokio::spawn(async move {
            let mut volumes: BTreeMap<String, Volume> = BTreeMap::new();
            let mut events = std::pin::pin!(watcher(Api::<ConfigMap>::all(client), published));
            loop {
                let (map, exists) = match events.try_next().await {
                    Ok(Some(Event::Apply(map) | Event::InitApply(map))) => (map, true),
                    Ok(Some(Event::Delete(map))) => (map, false),
                    Ok(Some(Event::Init | Event::InitDone)) | Err(_) => continue,
                    Ok(None) => return,
                };
                let namespace = map.metadata.namespace.clone().unwrap_or_default();
                let volume =
                    volumes.entry(namespace).or_insert_with_key(|namespace| Volume::new(&directory.join(namespace)));
                if let Err(problem) = volume.change(map, exists) {
                    found.lock().push(format!("{}: {problem}", volume.directory.display()));
                }
            }
        });
        Self { problems, watch }
    }

    /// Returns what was wrong.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.problems.lock().clone()
    }
}

impl Volume {
    fn new(directory: &Path) -> Self {
        let running = Reader::new(directory, "storefront");
        Self { directory: directory.to_owned(), files: BTreeMap::new(), changes: 0, running, served: Vec::new() }
    }

    /// Brings a change of an object to the volume, and checks what a sidecar serves that starts over it and what one serves
    /// that has run since the beginning.
    fn change(&mut self, map: ConfigMap, exists: bool) -> Result<(), String> {
        let environment: EnvironmentName = "storefront".parse().unwrap();
        let name = map.metadata.name.unwrap_or_default();
        let Some((FORMAT, file)) = environment.format_and_file(&name) else { return Ok(()) };
        let content = map.binary_data.unwrap_or_default().remove(file).map(|content| content.0);
        match content.filter(|_| exists) {
            Some(content) => drop(self.files.insert(file.to_owned(), content)),
            None => drop(self.files.remove(file)),
        }
        // The end of an environment deletes its objects in any order, and pods without an environment keep their files.
        if !self.files.contains_key("core") {
            return Ok(());
        }
        self.write();
        let started = Reader::new(&self.directory, "storefront").look();
        let Some(started) = started else { return Err(format!("a sidecar that starts serves nothing after {name}")) };
        if !started.whole {
            return Err(format!("a sidecar that starts misses overrides after {name}"));
        }
        let Some(served) = self.running.look() else {
            return Err(format!("a running sidecar serves nothing after {name}"));
        };
        if self.served.last() != Some(&served.revision) {
            if self.served.contains(&served.revision) {
                return Err(format!("a running sidecar goes back to {} after {name}", served.revision));
            }
            self.served.push(served.revision);
        }
        Ok(())
    }

    /// Writes the files as kubelet does.
    fn write(&mut self) {
        let (root, new) = (self.directory.join("storefront"), format!("..{}", self.changes));
        fs::create_dir_all(root.join(&new)).unwrap();
        for (file, content) in &self.files {
            fs::write(root.join(&new).join(file), content).unwrap();
        }
        symlink(&new, root.join("..data_tmp")).unwrap();
        fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
        if let Some(former) = self.changes.checked_sub(1) {
            fs::remove_dir_all(root.join(format!("..{former}"))).unwrap();
        }
        self.changes += 1;
    }
}
