//! Tasks that run beside the reconciliations: a reconciliation starts, changes or ends them, and reads their states.

pub(super) mod collect;
pub(super) mod listen;
pub(super) mod observe_pods;
pub(super) mod receive;
