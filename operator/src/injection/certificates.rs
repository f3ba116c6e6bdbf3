//! The webhook's certificates: the operator creates, renews and registers them with the API server by itself.
//!
//! The CA is stored in a Secret that all replicas share; the first replica that finds none creates it.
//! Each replica signs a short-lived serving certificate for itself and keeps it, with its key, in memory. `caBundle` in
//! the MutatingWebhookConfiguration (the *registration*) lists the CAs that the API server trusts. A rotation updates
//! `caBundle` before any replica serves with the new CA:
//!
//! ```text
//! CA at 2/3 of its lifetime     ──> new CA in the Secret, old CA beside it as "previous"
//!                               ──> caBundle = new and previous CA
//!   after Lifetimes::settle     ──> each replica signs a new serving certificate
//!   after Lifetimes::leaf       ──> no certificate of the previous CA is valid: caBundle drops it
//! ```
//!
//! The same steps repair a Secret that was deleted or damaged: its CA counts as due for renewal. All times are
//! wall-clock times, because a monotonic clock stops while the machine sleeps and the life of a certificate does not.
//!
//! If another program creates the certificate, for example cert-manager, the webhook reads it from files ([`Files`])
//! and does none of this.

mod ca;
mod files;
mod registration;
mod renewal;
mod rotation;
mod secret;
mod serving;

use std::{path::PathBuf, time::Duration};

pub use self::{
    ca::{Ca, Certificate, Leaf, SignError, Unusable},
    files::{Files, Unreadable},
    registration::{Registered, update},
    renewal::{RenewalReason, Validity, needs_renewal},
    rotation::{CertificateManager, Error},
    secret::{Contents, ForeignSecret},
    serving::Serving,
};

/// Origin of a replica's serving certificate.
#[derive(Clone, Debug)]
pub enum Source {
    /// The replica creates the certificate itself.
    SelfManaged(Names),
    /// Another program writes the certificate into this directory, and registers its CA with the API server.
    Directory(PathBuf),
}

/// Names of the objects that the certificates are created for and stored in.
#[derive(Clone, Debug)]
pub struct Names {
    /// The operator's namespace.
    pub namespace: String,
    /// The Service through which the API server calls the webhook.
    pub service: String,
    /// The MutatingWebhookConfiguration whose `caBundle` must contain the CA.
    pub configuration: String,
    /// The Secret that stores the CA.
    pub secret: String,
}

impl Names {
    /// Returns the server name that the API server verifies when it connects.
    fn server(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }
}

/// Lifetimes and intervals of certificate management. Tests use seconds.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// Lifetime of a CA.
    pub ca: Duration,
    /// Lifetime of a replica's serving certificate.
    pub leaf: Duration,
    /// Delay from the creation of a CA until replicas sign with it. API servers need it to read the new `caBundle`.
    pub settle: Duration,
    /// Delay from a change of the registration until a starting replica assumes that API servers have read the change.
    pub propagation: Duration,
    /// Largest difference between clocks in the cluster. A certificate is valid from this long before its creation.
    pub skew: Duration,
    /// Interval between two checks.
    pub check: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        const DAY: u64 = 24 * 60 * 60;
        Lifetimes {
            ca: Duration::from_secs(365 * DAY),
            leaf: Duration::from_secs(7 * DAY),
            settle: Duration::from_secs(120),
            propagation: Duration::from_secs(1),
            skew: Duration::from_secs(300),
            check: Duration::from_secs(10),
        }
    }
}
