//! Remora's control plane.
//!
//! A [`FeatureEnvironment`](api::FeatureEnvironment) names a feature environment. A reconciliation brings what is published for it
//! up to date:
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
//! | [`api`] | defines the CustomResourceDefinition, and every name that the parts of Remora share in the cluster |
//! | [`compile`] | turns a document into the bytes that sidecars evaluate in place: pure, without any client |
//! | [`source`] | fetches documents from Flagsmith or from objects of the cluster, and follows streams of changes |
//! | [`publish`] | writes snapshots to ConfigMaps or Secrets, and keeps them as they were written |
//! | [`injection`] | adds the sidecar to pods: the admission webhook, its certificates, and the checks that it works |
//! | [`rollout`] | tells pods of a published revision, and asks them which one they serve |
//! | [`controller`] | reconciles FeatureEnvironments on the replica that holds the lease; status, Events and metrics |
//! | [`tools`] | the commands that need no cluster |
//! | [`compiler`] | runs `compile` in a process of its own, with bounds on its memory and time |
//! | [`listener`] | accepts connections for the webhook and the admin port, within bounds |
//! | [`run`], [`cli`] | wire the process: arguments, admin port, signals |

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
