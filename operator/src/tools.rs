//! Tools that need no cluster: `compile`, `inspect`, `explain`.

pub mod compile;
pub mod explain;
pub mod inspect;
