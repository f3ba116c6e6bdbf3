use std::time::Duration;

use reqwest::StatusCode;

use super::{key::EnvironmentKey, origin::Origin};

/// Why there is no document. What a server answered is never in it, and neither is the key: only what we say ourselves.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source cannot be used as it is written.
    #[error("spec.source cannot be used: {0}")]
    InvalidSource(&'static str),
    /// Nobody allowed this server.
    #[error(
        "{0} is not an allowed origin: ask the administrator to start the operator with --allowed-origin {0} (chart value allowedOrigins)"
    )]
    OriginNotAllowed(Origin),
    /// The Secret is not there.
    #[error(
        "Secret {0} does not exist in this namespace: create it, with the label remora.dev/environment-key: \"true\""
    )]
    SecretNotFound(String),
    /// The Secret's owner did not agree.
    #[error("Secret {0} may not be used: its owner has to label it with remora.dev/environment-key: \"true\"")]
    SecretNotConsented(String),
    /// The Secret does not hold what is needed.
    #[error("Secret {name}, key {key}: {problem}")]
    SecretInvalid {
        /// The Secret.
        name: String,
        /// The key in it.
        key: String,
        /// What is wrong, and what should be there.
        problem: &'static str,
    },
    /// The ConfigMap is not there.
    #[error("ConfigMap {0} does not exist in this namespace: create it, or correct its name in spec.source")]
    ConfigMapNotFound(String),
    /// The ConfigMap does not hold what is needed.
    #[error("ConfigMap {name}, key {key}: {problem}")]
    ConfigMapInvalid {
        /// The ConfigMap.
        name: String,
        /// The key in it.
        key: String,
        /// What is wrong, and what should be there.
        problem: &'static str,
    },
    /// The API server did not let us read what the source names.
    #[error("reading {what}: {problem}")]
    ReadFailed {
        /// The object.
        what: String,
        /// What the API server says.
        problem: String,
    },
    /// The server's name leads to where the operator does not go.
    #[error(
        "{0} resolves to addresses that the operator does not connect to: private ones need an origin that the administrator named, link-local ones are never used"
    )]
    AddressBlocked(String),
    /// No trusted connection.
    #[error("TLS with {origin} failed: {problem}")]
    TlsFailure {
        /// The server.
        origin: Origin,
        /// What is wrong, and what to do.
        problem: &'static str,
    },
    /// The server does not accept the key.
    #[error(
        "{origin} answered HTTP {status} to the environment key: check that the Secret holds this environment's server-side key, and that the organisation is not blocked"
    )]
    AuthenticationFailed {
        /// The server.
        origin: Origin,
        /// 401 or 403.
        status: StatusCode,
        /// The key, which is not tried again soon.
        key: EnvironmentKey,
    },
    /// The server does not know the path.
    #[error("{0} answered HTTP 404: check spec.source.flagsmith.apiUrl, which usually ends in /api/v1/")]
    EnvironmentNotFound(Origin),
    /// The server asks for patience.
    #[error("{origin} answered HTTP 429: it is asked less often for a while")]
    RateLimited {
        /// The server.
        origin: Origin,
        /// How long it asks us to wait.
        retry_after: Option<Duration>,
    },
    /// No answer, or a bad one.
    #[error("{origin}: {problem}")]
    UpstreamUnavailable {
        /// The server.
        origin: Origin,
        /// What happened.
        problem: String,
        /// Who is at fault.
        fault: Fault,
        /// How long it asks us to wait.
        retry_after: Option<Duration>,
    },
    /// The server sends us elsewhere.
    #[error(
        "{0} redirects to another origin or in circles, which is not followed because the request carries the environment key: write the final URL in spec.source.flagsmith.apiUrl"
    )]
    RedirectRefused(Origin),
    /// Larger than anything that is read.
    #[error("{what} exceeds {limit} bytes")]
    BodyTooLarge {
        /// What was bounded.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
}

/// Why a server gave nothing of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There was no connection.
    Connection,
    /// It says so itself: HTTP 5xx.
    Server,
    /// The answer is bad, or broke off.
    Answer,
}

/// When to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Soon, then ever later.
    Backoff,
    /// Not soon, then ever later, however short the interval is: an attempt costs much.
    Costly,
    /// Soon: nothing but our own API server is asked.
    Reference,
    /// Rarely, until the key changes.
    Slow,
    /// Not before this time.
    After(Duration),
    /// When the object changes.
    Edited,
}

impl Error {
    /// The variant's name: the reason in conditions and Events, and a metric's label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::InvalidSource(_) => "InvalidSource",
            Self::OriginNotAllowed(_) => "OriginNotAllowed",
            Self::SecretNotFound(_) => "SecretNotFound",
            Self::SecretNotConsented(_) => "SecretNotConsented",
            Self::SecretInvalid { .. } => "SecretInvalid",
            Self::ConfigMapNotFound(_) => "ConfigMapNotFound",
            Self::ConfigMapInvalid { .. } => "ConfigMapInvalid",
            Self::ReadFailed { .. } => "ReadFailed",
            Self::AddressBlocked(_) => "AddressBlocked",
            Self::TlsFailure { .. } => "TLSFailure",
            Self::AuthenticationFailed { .. } => "AuthenticationFailed",
            Self::EnvironmentNotFound(_) => "EnvironmentNotFound",
            Self::RateLimited { .. } => "RateLimited",
            Self::UpstreamUnavailable { .. } => "UpstreamUnavailable",
            Self::RedirectRefused(_) => "RedirectRefused",
            Self::BodyTooLarge { .. } => "BodyTooLarge",
        }
    }

    /// Whether the spec or what it refers to is at fault, rather than the server.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::InvalidSource(_)
                | Self::OriginNotAllowed(_)
                | Self::SecretNotFound(_)
                | Self::SecretNotConsented(_)
                | Self::SecretInvalid { .. }
                | Self::ConfigMapNotFound(_)
                | Self::ConfigMapInvalid { .. }
        )
    }

    /// When to try again.
    pub fn retry(&self) -> Retry {
        match self {
            Self::InvalidSource(_) | Self::OriginNotAllowed(_) => Retry::Edited,
            Self::SecretNotFound(_)
            | Self::SecretNotConsented(_)
            | Self::SecretInvalid { .. }
            | Self::ConfigMapNotFound(_)
            | Self::ConfigMapInvalid { .. } => Retry::Reference,
            Self::AuthenticationFailed { .. } => Retry::Slow,
            Self::RateLimited { retry_after: Some(wait), .. }
            | Self::UpstreamUnavailable { retry_after: Some(wait), .. } => Retry::After(*wait),
            _ => Retry::Backoff,
        }
    }
}
