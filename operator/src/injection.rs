//! Injects the sidecar into a pod: a decision and a patch, both pure functions of the pod in the request.
//!
//! [`requested_environments`] lists the environments whose layouts the decision needs. [`decide`] reads the annotations of the pod
//! and of its namespace and returns a [`Decision`], with a [`Plan`] if the pod is injected. [`patch`] turns the plan
//! into JSON Patch operations. [`missing_sidecar`] checks a pod that exists already. None of them uses a cluster, a clock
//! or a socket.
//!
//! Three rules apply to the whole module:
//!
//! - The pod stays untyped JSON. A typed round trip would lose every field that is newer than the API library.
//! - The patch holds only `add` operations, and only for what is absent: containers, volumes and variables are
//!   recognised by their names. Patching an injected pod gives no operations, however often the API server repeats the
//!   request, and a container that a later webhook added gets its variables when the request is repeated.
//! - A pod that cannot be patched safely is denied with a message for its author.

mod admission_policy;
mod annotations;
mod audit;
pub mod auditor;
pub mod certificates;
mod config;
mod decide;
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
mod startup_timeout;
pub mod webhook;

pub use admission_policy::{Error as PolicyError, Policy, Validation, Variable, policy};
pub use annotations::Invalid;
pub use audit::{MissingSidecar, is_candidate, missing_sidecar};
pub use config::Config;
pub use decide::{Decision, PodContext, Reason, Refusal, decide, requested_environments};
pub use layout::{Layout, Layouts};
pub use patch::patch;
pub use plan::Plan;
pub use pod::Malformed;
pub(crate) use quote::quote;
