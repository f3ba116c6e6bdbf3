//! Remora's control plane.
//!
//! A [`FeatureEnvironment`](api::FeatureEnvironment) names a feature environment; reconciling it is one sentence:
//!
//! ```text
//! fetch ──> prune ──> compile ──> publish ──> report
//! client    pure      pure        client      client
//! ```
//!
//! [`fetch`] brings a document from Flagsmith or from an object in the cluster; [`compiler`] has a process of its own read it,
//! drop what nobody asked for ([`prune`]) and make the bytes that the sidecar evaluates in place ([`compile`]); [`publish`] writes them to ConfigMaps or Secrets beside the
//! FeatureEnvironment, and [`report`] says in its status, in Events and in [`metrics`] what happened. [`reconcile`] is the
//! sentence, and decides when it is said again; [`realtime`] has it said before its time, and [`guard`] holds back what looks wrong
//! until it is confirmed. [`nudge`] and [`followers`] see to it that pods serve what was published.
//!
//! Every replica answers admission requests; only the holder of the lease ([`leader`]) reconciles. [`run`] wires all of it,
//! [`self_check`] proves that pods get their sidecar, [`auditor`] finds those that got none,
//! [`admin`] serves health and metrics, [`listener`] bounds what callers of it and of the webhook can take, [`names`] has every name that the parts share.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod admin;
pub mod api;
pub mod auditor;
pub mod certificates;
pub mod cli;
pub mod compile;
pub mod compiler;
mod digest;
pub mod directory;
pub mod document;
pub mod fetch;
pub mod followers;
pub mod guard;
pub mod inject;
pub mod leader;
pub mod listener;
pub mod metrics;
pub mod names;
pub mod nudge;
mod pods;
pub mod prune;
pub mod publish;
pub mod realtime;
pub mod reconcile;
pub mod report;
pub mod run;
pub mod self_check;
pub mod tools;
pub mod wake;
pub mod webhook;
