//! The environments of the process: their volumes are followed, and what arrives there is served.
//!
//! `follow` watches the volumes on a thread of its own. `load` reads the files of a volume, and the `state` that all
//! requests share gets the result in one step. The endpoints answer from that state, and from `document` and `stream`.

pub(crate) mod document;
pub(crate) mod follow;
mod load;
pub(crate) mod state;
pub(crate) mod stream;
mod watch;
