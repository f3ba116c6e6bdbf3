//! An inotify watch of directories.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::log;

/// An inotify watch of directories.
pub(super) struct Watch(OwnedFd);

impl Watch {
    /// Creates a watch of no directory. `None` if the system refuses it.
    pub(super) fn new() -> Option<Watch> {
        match inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(watch) => Some(Watch(watch)),
            Err(error) => {
                log::info!("cannot watch directories: {error}; polling them instead");
                None
            }
        }
    }

    /// Watches a directory. Adding it again has no effect, unless another directory has taken its place: that one is
    /// watched.
    pub(super) fn add(&self, directory: &Path) {
        let flags = WatchFlags::MOVED_TO | WatchFlags::CREATE | WatchFlags::ONLYDIR;
        if let Err(error) = inotify::add_watch(&self.0, directory, flags) {
            log::debug!("cannot watch {}: {error}", directory.display());
        }
    }

    /// Waits until something happens in a watched directory, or until `time` has passed.
    pub(super) fn wait(&self, time: Duration) {
        let timeout =
            Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(1), tv_nsec: time.subsec_nanos().into() };
        let mut descriptors = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        let ready = rustix::event::poll(&mut descriptors, Some(&timeout));
        if let Err(error) = ready {
            log::debug!("cannot wait for a change: {error}");
            std::thread::sleep(Duration::from_millis(100));
        }
        // The events are discarded: there are few directories, and checking an unchanged one costs two system calls.
        let mut events = [0; 4096];
        while rustix::io::read(&self.0, &mut events).is_ok_and(|bytes| bytes > 0) {}
    }
}
