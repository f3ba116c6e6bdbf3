//! Injects the sidecar into a pod: a decision and a patch, both pure functions of the pod in the request.
//!
//! [`decide`] reads the annotations of the pod and of its namespace and returns a [`Decision`], with a patch if the pod is
//! injected. [`missing_sidecar`] checks a pod that exists already. Neither uses a cluster, a clock or a socket.
//!
//! | modules | what they do |
//! |---|---|
//! | `annotations`, `quantity`, `startup_timeout`, `flag_overrides` | parse the options of a pod and of its namespace |
//! | `config`, `defaults` | settings for all pods, and the options of pods without annotations |
//! | `pod`, `decide`, `layout`, `resources`, `plan`, `patch` | decide, plan and patch, in this order |
//! | `admission_policy` | generates the same decision and plan as CEL, for clusters without the webhook |
//! | [`webhook`], [`metrics`] | answers admission requests with the decision and the patch |
//! | [`certificates`] | creates, renews and registers the webhook's certificates |
//! | `dry_run_pod`, [`self_check`] | checks by dry runs that a new pod gets its sidecar |
//! | `audit`, [`auditor`] | the check of one pod for its sidecar; the task that finds, reports and evicts pods without |
//! | `pods` | lists pods of the cluster in pages, also for [`rollout`](crate::rollout) |
//!
//! Three rules apply to the pure functions:
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
mod defaults;
mod dry_run_pod;
pub(crate) mod flag_overrides;
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
pub use decide::{Decision, Injection, PodContext, Refusal, SkipReason, decide};
pub use defaults::{Conflict, DefaultTexts, Defaults};
pub(crate) use dry_run_pod::dry_run_pod;
pub use layout::{Layout, Layouts, Size, Slots};
pub use pod::Malformed;
pub(crate) use quote::quote;
