//! Remora's control plane.
//!
//! A [`FeatureEnvironment`](api::FeatureEnvironment) names a feature environment. A reconciliation updates its
//! published snapshot. In short (the table in [`controller::reconcile`] has every step):
//!
//! ```text
//! fetch ──> prune ──> compile ──> guard ──> publish ──> report
//! source    compiler  compiler    guard     publish     controller
//! ```
//!
//! Each area imports only those above it:
//!
//! | area | what it does |
//! |---|---|
//! | [`memory`] | divides memory among namespaces |
//! | `counted` | counts what is under way, by key |
//! | `fair_semaphore` | bounds tasks that run at one time, and lets namespaces take turns |
//! | [`api`] | defines the CustomResourceDefinition and all names that the parts of Remora share in the cluster |
//! | [`api_call`] | bounds each call to the API server in time |
//! | `events` | publishes Kubernetes Events |
//! | `tasks` | runs tasks beside the reconciliations, at most one of a kind for each environment |
//! | [`compiler`] | prunes and compiles documents with [`remora_compile`], in child processes with bounded memory and time |
//! | [`guard`] | decides whether a document may replace the published one: pure |
//! | [`source`] | fetches documents from Flagsmith or from objects in the cluster, and follows streams of changes |
//! | [`watched`] | keeps the objects of a watch, by the environments that they belong to |
//! | [`publish`] | writes snapshots to ConfigMaps or Secrets, and restores them if somebody changes them |
//! | [`listener`] | accepts connections for the webhook, the admin port and the receiver of Flagsmith's webhooks, within bounds |
//! | [`injection`] | adds the sidecar to pods: admission webhook or policies, certificates, self-check, auditor |
//! | [`rollout`] | notifies pods of a published revision, and asks them which revision they serve |
//! | [`usage`] | reads the counters of used flags from the sidecars, and sends them to the source |
//! | [`controller`] | reconciles FeatureEnvironments on the replica that holds the lease: status, Events and metrics |
//! | [`ask`] | answers `kubectl remora`: reads the cluster with the caller's rights, edits FeatureEnvironments |
//! | [`run`], [`cli`] | start the process: arguments, admin port, port for webhooks, signals |
//!
//! Namespaces share what the process has, so that none of them can take what another one needs:
//!
//! | what | type | rule |
//! |---|---|---|
//! | reconciliations, requests to servers, lists of pods, writes of objects | sparing `FairSemaphore` | a namespace has at most as many permits as stay free: one half, then a quarter |
//! | compilations, questions to sidecars, patches of pods, snapshots that are read back | `FairSemaphore` | a free permit goes to the waiting namespace with the fewest |
//! | memory for snapshots, memory for counted uses | [`memory::Memory`] | equal shares, and a quarter that only namespaces below their share may use |
//! | memory for documents | `source::fetch::memory_budget` | one place in the queue for each namespace; small documents have memory of their own |
//! | documents from the fetch to the compiled snapshot | `counted`, in `controller::reconcile::read` | at most 16 for each namespace |
//! | streams of changes | `source::realtime::permits` | a namespace with fewer streams takes permits of the one with the most |
//! | full reads from a server | `source::fetch::read_budget` | equal shares; the environments of a namespace share its part |
//! | connections and bytes of a port (by address, not by namespace) | `listener::slots` | a full port closes a connection of the address with the most |
//!
//! Words of the operator:
//!
//! | word | meaning |
//! |---|---|
//! | core, overrides files | the two kinds of files of a snapshot: flags and segments, and the identity overrides |
//! | identity override, segment override | state or value of a flag in the document, for an identity or for the identities that match a segment |
//! | flag override | state or value of a flag that a pod or a request sets for itself, for tests: the annotation `remora.dev/overrides` |
//! | part, set | a core that does not fit into one object is divided into parts; two sets of them alternate, so that the one in use stays whole |
//! | slot | place of a file in the volume of a pod, whether the file exists or not |
//! | observed | published, as the cluster shows it at the beginning of a reconciliation |
//! | candidate | snapshot of the newest document, accepted by the guard or held back |
//! | desired | snapshot that should be published: the newest accepted, the pinned, or the last good one |
//! | held back | not accepted by `spec.guard` until a person approves it |
//! | withheld | accepted and not published yet, because the volumes of running pods have no room for its core |
//! | archived, dropped | an earlier revision whose copy is kept in the history; one that the history has no room for |
//! | surplus | objects of no file of the published snapshot any more: deleted after a grace |
//! | obsolete | objects of another kind or format: deleted once no pod mounts them |
//! | behind, silent | a pod that serves another revision than the published one; a pod whose sidecar does not answer |
//!
//! The controller never parses a document: it sends the bytes to [`compiler`], whose child process calls
//! [`remora_compile`], a crate of its own without a client. The crate [`remora_tools`] has the commands that need no
//! cluster; `remora-operator compile` is one of them and calls [`remora_compile`] directly.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod api;
pub mod api_call;
pub mod ask;
pub mod cli;
pub mod compiler;
pub mod controller;
mod counted;
mod events;
mod fair_semaphore;
pub mod guard;
pub mod injection;
pub mod listener;
pub mod memory;
pub mod publish;
pub mod rollout;
pub mod run;
pub mod source;
mod tasks;
pub mod usage;
pub mod watched;
