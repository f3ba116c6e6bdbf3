//! Reads a volume as the program does, without ports and without a thread of its own.

use std::path::Path;
use std::sync::Arc;

use crate::environments::follow::Follower;
use crate::environments::state::{Settings, State};

/// The data that a sidecar serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Revision of the core.
    pub revision: String,
    /// True if every identity override is found, even if only in a file of another revision.
    pub whole: bool,
    /// True if nothing is missing that the core refers to, the environment's document included.
    pub complete: bool,
    /// Hash of all bytes that are served, overrides files included.
    pub content: u64,
}

/// The part of a sidecar that follows the volume of one environment. Tests of programs that write volumes read them
/// with it.
pub struct Reader {
    state: Arc<State>,
    follower: Follower,
}

impl Reader {
    /// Creates a reader that has looked at no volume yet. The volume of `environment` is the sub-directory of
    /// `directory` with that name.
    #[must_use]
    pub fn new(directory: &Path, environment: &str) -> Reader {
        let state = Arc::new(State::new([environment.to_owned()], Settings::default()));
        Reader { follower: Follower::new(Arc::clone(&state), directory), state }
    }

    /// Looks at the volume, and returns the data that the sidecar serves from then on. `None` if it serves none.
    pub fn look(&mut self) -> Option<Served> {
        self.follower.check();
        let environment = self.state.environments.first()?;
        let loaded = environment.loaded.load();
        loaded.as_ref().map(|loaded| Served {
            revision: loaded.snapshot.revision().to_string(),
            whole: loaded.snapshot.is_whole(),
            complete: loaded.complete,
            content: loaded.content_hash,
        })
    }
}
