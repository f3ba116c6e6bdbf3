//! The two commands that run until SIGTERM or SIGINT: `controller`, of which the replica with the lease reconciles, and
//! `webhook`, which every replica serves.

pub mod admin;
mod check_injection;
mod controller;
mod log;
mod process;
mod receiver;
mod webhook;

pub use self::{check_injection::CheckInjection, controller::Controller, webhook::Webhook};
