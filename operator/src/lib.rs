//! Remora's control plane.
//!
//! A [`FeatureEnvironment`](api::FeatureEnvironment) names a feature environment. A reconciliation updates its
//! published snapshot:
//!
//! ```text
//! fetch ──> prune ──> compile ──> guard ──> publish ──> report
//! source    compile   compile     compile   publish     controller
//! ```
//!
//! Each area imports only those above it:
//!
//! | area | what it does |
//! |---|---|
//! | [`api`] | defines the CustomResourceDefinition and all names that the parts of Remora share in the cluster |
//! | [`compile`] | compiles a document to the bytes that sidecars evaluate in place: pure, without a client |
//! | [`source`] | fetches documents from Flagsmith or from objects in the cluster, and follows streams of changes |
//! | [`publish`] | writes snapshots to ConfigMaps or Secrets, and restores them if somebody changes them |
//! | [`injection`] | adds the sidecar to pods: admission webhook, certificates, self-check |
//! | [`rollout`] | notifies pods of a published revision, and asks them which revision they serve |
//! | [`controller`] | reconciles FeatureEnvironments on the replica that holds the lease: status, Events and metrics |
//! | [`tools`] | implements the commands that need no cluster |
//! | [`compiler`] | runs `compile` in a child process with bounded memory and time |
//! | [`listener`] | accepts connections for the webhook and the admin port, within bounds |
//! | [`run`], [`cli`] | start the process: arguments, admin port, signals |

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod api;
pub mod cli;
pub mod compile;
pub mod compiler;
pub mod controller;
pub mod injection;
pub mod listener;
pub mod publish;
pub mod rollout;
pub mod run;
pub mod source;
pub mod tools;
