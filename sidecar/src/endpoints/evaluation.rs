//! The scratch memory of the thread that answers, and the report of evaluations that exceed their budget.

use std::cell::RefCell;

use crate::dialects::scratch::Scratch;
use crate::environments::state::{Environment, Loaded};

/// Largest body in bytes after which the thread's scratch buffers are kept. A larger body may have made them grow as
/// much.
const MAX_KEPT_BODY: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

/// Runs `work` with the thread's scratch buffers, or with new ones if the body would make the thread's grow too large.
pub(super) fn with_scratch<T>(body: &[u8], work: impl FnOnce(&mut Scratch) -> T) -> T {
    if body.len() > MAX_KEPT_BODY {
        return work(&mut Scratch::default());
    }
    SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
        Ok(mut scratch) => work(&mut scratch),
        Err(_) => work(&mut Scratch::default()),
    })
}

/// Reports an evaluation that exceeded its budget.
pub(super) fn report(environment: &Environment, loaded: &Loaded, scratch: &Scratch) {
    if let Some(overrun) = loaded.snapshot.overrun(&scratch.request) {
        environment.overruns.report(&environment.name, overrun);
    }
}
