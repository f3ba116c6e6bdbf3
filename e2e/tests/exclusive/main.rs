//! Cases that remove or replace a part of Remora: they run one at a time, and never in parallel with other cases.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that panics has failed, as it should"
)]

mod absent;
mod audit;
mod bystander;
mod cert_manager;
mod certificates;
mod drift;
mod given_certificate;
mod golden;
mod handover;
mod incomplete;
mod kubelet;
mod namespaces;
mod node;
mod node_processes;
mod policy;
mod proxy;
mod receiver;
mod registry;
mod release;
mod second_injector;
mod signatures;
mod space;
mod stopped_leader;
mod unpullable;
mod uses;
