//! The scratch memory of the thread that answers, and the report of evaluations that exceed their budget.

use std::cell::RefCell;

use crate::dialects::scratch::Desk;
use crate::environments::state::{Environment, Loaded};

/// Largest body in bytes after which the thread's scratch buffers are kept. A larger body may have made them grow as
/// much.
const KEPT_DESK_BODY: usize = 64 * 1024;

thread_local! {
    static DESK: RefCell<Desk> = RefCell::new(Desk::default());
}

/// Runs `work` with the thread's scratch buffers, or with new ones if the body would make the thread's grow too large.
pub(super) fn with_desk<T>(body: &[u8], work: impl FnOnce(&mut Desk) -> T) -> T {
    if body.len() > KEPT_DESK_BODY {
        return work(&mut Desk::default());
    }
    DESK.with(|desk| match desk.try_borrow_mut() {
        Ok(mut desk) => work(&mut desk),
        Err(_) => work(&mut Desk::default()),
    })
}

/// Reports an evaluation that exceeded its budget.
pub(super) fn report(environment: &Environment, loaded: &Loaded, desk: &Desk) {
    if let Some(overrun) = loaded.snapshot.overrun(&desk.subject) {
        environment.overruns.report(&environment.name, overrun);
    }
}
