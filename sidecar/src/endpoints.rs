//! The endpoints of both ports.
//!
//! `data` receives a request of an application, `respond` finds its endpoint, and `flagsmith` or `ofrep` checks the key
//! and evaluates. `admin` answers kubelet, Prometheus and the controller.

pub(crate) mod admin;
mod assignment;
pub(crate) mod data;
mod document;
mod evaluation;
mod flagsmith;
mod headers;
mod metrics;
mod ofrep;
mod respond;
mod signed;
mod stream;
