//! Puts the sidecar into a pod: a decision and a patch, both pure functions of the pod as it came.
//!
//! [`asked_for`] says which environments have to be looked up first. [`decide`] reads the annotations of the pod and of its namespace and says whether, and with what, it is to be injected;
//! [`patch`] turns that [`Plan`] into JSON Patch operations; [`lacks_sidecar`] judges a pod that exists already. None knows of
//! a cluster, a clock or a socket.
//!
//! Three rules hold everywhere here:
//!
//! - The pod stays untyped JSON. A typed round trip would lose every field that is younger than our API library.
//! - Only `add` is ever written, and only for what is absent: the container and the volumes are recognised by their
//!   names, a variable by its own. Patching what was patched gives no operations, however often the API server asks
//!   again, and a container that a later injector brought gets its variables on that occasion.
//! - Whatever does not let itself be patched safely is denied with a message for whoever wrote the pod.

mod admission_policy;
mod annotations;
mod audit;
pub mod auditor;
pub mod certificates;
mod config;
mod decide;
mod duration;
mod layout;
pub mod metrics;
mod patch;
mod plan;
mod pod;
pub(crate) mod pods;
pub(crate) mod quantity;
mod quote;
mod resources;
pub mod self_check;
pub mod webhook;

pub use admission_policy::{Error as PolicyError, Policy, Validation, Variable, policy};
pub use annotations::Invalid;
pub use audit::{Lack, is_candidate, lacks_sidecar};
pub use config::Config;
pub use decide::{Decision, Place, Reason, Refusal, asked_for, decide};
pub use layout::{Layout, Layouts};
pub use patch::patch;
pub use plan::Plan;
pub use pod::Malformed;
pub(crate) use quote::quote;
