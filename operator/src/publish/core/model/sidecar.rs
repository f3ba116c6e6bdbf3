//! The sidecars of the model: the sidecar's own reader, over volumes in memory. Each result is kept.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use remora_sidecar::{Level, Reader, Served, set_level};

use super::{Volume, name_of};

/// Everything that sidecars serve, by number. 0: nothing.
pub(super) struct Sidecars {
    directory: PathBuf,
    /// Served content by state, and the volumes that lead to it one after another. The next state of a sidecar depends on the
    /// bytes that it serves, and on nothing else.
    states: Vec<(Option<Served>, Vec<Volume>)>,
    /// Number of the state with these bytes.
    numbers: HashMap<u64, usize>,
    /// State after each volume.
    after: HashMap<(usize, Volume), usize>,
}

impl Default for Sidecars {
    fn default() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        set_level(Level::Error);
        let memory = PathBuf::from("/dev/shm");
        let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = parent.join(format!("remora-model-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        Self { directory, states: vec![(None, Vec::new())], numbers: HashMap::new(), after: HashMap::new() }
    }
}

impl Drop for Sidecars {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Sidecars {
    /// Returns what a sidecar serves that served `serving` and reads this volume.
    pub(super) fn look(&mut self, contents: &[Vec<u8>], volume: &Volume, serving: usize) -> usize {
        if let Some(known) = self.after.get(&(serving, *volume)) {
            return *known;
        }
        let mut path = self.states[serving].1.clone();
        path.push(*volume);
        let served = self.read(contents, &path);
        let state = match &served {
            None => 0,
            Some(read) => *self.numbers.entry(read.content).or_insert_with(|| {
                self.states.push((served, path));
                self.states.len() - 1
            }),
        };
        self.after.insert((serving, *volume), state);
        state
    }

    pub(super) fn served(&self, state: usize) -> Option<&Served> {
        self.states[state].0.as_ref()
    }

    /// Returns what a sidecar serves that has seen these volumes one after another.
    fn read(&self, contents: &[Vec<u8>], volumes: &[Volume]) -> Option<Served> {
        let directory = self.directory.join("e");
        let mut reader = Reader::new(&self.directory, "e");
        let mut served = None;
        for (time, volume) in volumes.iter().enumerate() {
            self.write(contents, &directory, time, volume);
            served = reader.look();
        }
        fs::remove_dir_all(&directory).unwrap();
        served
    }

    /// Writes a volume as the kubelet does. Its files are links, because most volumes have the same ones.
    fn write(&self, contents: &[Vec<u8>], directory: &Path, time: usize, volume: &Volume) {
        let current = directory.join(format!("..{time}"));
        fs::create_dir_all(&current).unwrap();
        for (file, content) in volume.iter().enumerate().filter(|(_, content)| **content != 0) {
            let kept = self.directory.join(content.to_string());
            if !kept.exists() {
                fs::write(&kept, &contents[usize::from(*content)]).unwrap();
            }
            fs::hard_link(kept, current.join(name_of(file))).unwrap();
        }
        symlink(&current, directory.join("..data_tmp")).unwrap();
        fs::rename(directory.join("..data_tmp"), directory.join("..data")).unwrap();
        if time > 0 {
            fs::remove_dir_all(directory.join(format!("..{}", time - 1))).unwrap();
        }
    }
}
