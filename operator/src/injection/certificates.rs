//! The webhook's certificates: made, renewed and made known to the API server without anybody's help.
//!
//! An *authority* lives in a Secret that all replicas share; whichever comes first makes it. Each replica signs a
//! short-lived certificate for itself and keeps it, with its key, in memory. The API server learns from `caBundle` in
//! the registration which authorities to trust, and a rotation never outruns it:
//!
//! ```text
//! authority 2/3 of its life old ──> new one in the Secret, old one beside it as "previous"
//!                               ──> caBundle = new and previous
//!   after Lifetimes::settle     ──> each replica signs its certificate anew
//!   after Lifetimes::leaf       ──> nothing signed by the previous one is valid: it leaves the bundle
//! ```
//!
//! The same steps heal a Secret that was deleted or damaged, whose certificates are simply due. All times are wall
//! clock: monotonic ones stand still while a machine sleeps, certificates do not.
//!
//! Where somebody else makes the certificate, cert-manager for example, it is read from files ([`Files`]) and nothing of this
//! happens.

mod authority;
mod files;
mod keeper;
mod registration;
mod renewal;
mod secret;
mod serving;

use std::{path::PathBuf, time::Duration};

pub use self::{
    authority::{Authority, Certificate, Leaf, SignError, Unusable},
    files::{Files, Unreadable},
    keeper::{Error, Keeper},
    registration::{Registered, update},
    renewal::{Reason, Validity, needs_renewal},
    secret::{Contents, ForeignSecret},
    serving::Serving,
};

/// Where a replica's certificate comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// It makes one itself.
    SelfManaged(Names),
    /// Somebody puts it into this directory, and tells the API server whom to trust.
    Directory(PathBuf),
}

/// What the certificates are for, and where they are kept.
#[derive(Clone, Debug)]
pub struct Names {
    /// The operator's namespace.
    pub namespace: String,
    /// The Service through which the API server calls.
    pub service: String,
    /// The MutatingWebhookConfiguration that must trust the authority.
    pub configuration: String,
    /// The Secret with the authority.
    pub secret: String,
}

impl Names {
    /// The name that the API server asks for when it connects.
    fn server(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }
}

/// How long things last. Tests use seconds.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// An authority.
    pub authority: Duration,
    /// A replica's certificate.
    pub leaf: Duration,
    /// From an authority's birth until replicas sign with it: for API servers to hear of it.
    pub settle: Duration,
    /// Between a change of the registration and the belief that API servers have seen it, for a replica that starts.
    pub propagation: Duration,
    /// How far clocks of the cluster may be apart: certificates are valid from this much before they are made.
    pub skew: Duration,
    /// Between two checks.
    pub check: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        const DAY: u64 = 24 * 60 * 60;
        Lifetimes {
            authority: Duration::from_secs(365 * DAY),
            leaf: Duration::from_secs(7 * DAY),
            settle: Duration::from_secs(120),
            propagation: Duration::from_secs(1),
            skew: Duration::from_secs(300),
            check: Duration::from_secs(10),
        }
    }
}
