//! Reasons why a fetch returns no document: message, reason in conditions, and schedule of the next attempt.

use std::time::Duration;

use reqwest::StatusCode;

use super::{key::EnvironmentKey, minimum_rate::MinimumRate, origin::Origin};
use crate::{api::Reason, source::back_off::Retry};

/// Remedy for a document that is too large.
pub(super) const SMALLER_DOCUMENT: &str =
    "remove identity overrides at the source, or raise the chart value controller.maxDocumentBytes";

/// Reason why a fetch returned no document. Never contains text of a server's answer or the key.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source cannot be used as written.
    #[error("spec.source cannot be used: {0}")]
    InvalidSource(String),
    /// No administrator allowed the server's origin.
    #[error(
        "{0} is not an allowed origin: ask the administrator to start the operator with --allowed-origin {0} (chart value allowedOrigins)"
    )]
    OriginNotAllowed(Origin),
    /// The Secret does not exist.
    #[error(
        "Secret {0} does not exist in this namespace: create it, with the label remora.dev/environment-key: \"true\""
    )]
    SecretNotFound(String),
    /// The Secret lacks the label with which its owner consents.
    #[error("Secret {0} may not be used: its owner has to label it with remora.dev/environment-key: \"true\"")]
    SecretNotConsented(String),
    /// The Secret lacks the key, or the key's value is unusable.
    #[error("Secret {name}, key {key}: {problem}")]
    SecretInvalid {
        /// Name of the Secret.
        name: String,
        /// Key in the Secret.
        key: String,
        /// Problem and what to do.
        problem: &'static str,
    },
    /// The ConfigMap does not exist.
    #[error("ConfigMap {0} does not exist in this namespace: create it, or correct its name in spec.source")]
    ConfigMapNotFound(String),
    /// The ConfigMap lacks the key, or the key's value is unusable.
    #[error("ConfigMap {name}, key {key}: {problem}")]
    ConfigMapInvalid {
        /// Name of the ConfigMap.
        name: String,
        /// Key in the ConfigMap.
        key: String,
        /// Problem and what to do.
        problem: &'static str,
    },
    /// The API server did not return the object that the source names.
    #[error(
        "cannot read {what}: {problem}: check the API server, and the controller's permissions; the operator tries again"
    )]
    ReadFailed {
        /// Kind and name of the object.
        what: String,
        /// Message of the API server, or our own if there was no answer.
        problem: String,
    },
    /// The server's name resolves to forbidden addresses only. Holds the host.
    #[error(
        "{0} resolves to addresses that the operator does not connect to: ask the administrator to allow the origin for a private address; link-local addresses are never allowed"
    )]
    AddressBlocked(String),
    /// The TLS handshake failed.
    #[error("TLS with {origin} failed: {problem}")]
    TlsFailure {
        /// Origin of the server.
        origin: Origin,
        /// Problem and what to do.
        problem: &'static str,
    },
    /// The server refused the key.
    #[error(
        "{origin} answered HTTP {status} to the environment key: check that the Secret holds this environment's server-side key, and that the organisation is not blocked"
    )]
    AuthenticationFailed {
        /// Origin of the server.
        origin: Origin,
        /// HTTP status: 401 or 403.
        status: StatusCode,
        /// Refused key. It is not tried again soon.
        key: EnvironmentKey,
    },
    /// The server answered HTTP 404.
    #[error("{0} answered HTTP 404: check spec.source.flagsmith.apiUrl, which usually ends in /api/v1/")]
    EnvironmentNotFound(Origin),
    /// The server answered HTTP 429.
    #[error(
        "{origin} answered HTTP 429: the operator sends fewer requests for a while; if this goes on, set a longer spec.refresh.interval"
    )]
    RateLimited {
        /// Origin of the server.
        origin: Origin,
        /// Wait that the server asked for in `Retry-After`, if any.
        retry_after: Option<Duration>,
    },
    /// The server gave no answer, or an unusable one.
    #[error("{origin} gave no usable answer: {problem}")]
    UpstreamUnavailable {
        /// Origin of the server.
        origin: Origin,
        /// Description of the problem, and what to do.
        problem: String,
        /// Kind of the fault.
        fault: Fault,
        /// Minimum wait before the next attempt: the server's `Retry-After`, or the pause of an open circuit.
        retry_after: Option<Duration>,
    },
    /// The server sends the document below the minimum rate.
    #[error(
        "{origin} sends the document too slowly, less than {rate} (decompressed): check the server and the network on the way to it, or let the server compress its answers with gzip"
    )]
    AnswerTooSlow {
        /// Origin of the server.
        origin: Origin,
        /// Rate that the server did not keep.
        rate: MinimumRate,
    },
    /// The server redirects to another origin, or too often.
    #[error(
        "{0} redirects to another origin or in a loop, which the operator does not follow because the request contains the environment key: set spec.source.flagsmith.apiUrl to the final URL"
    )]
    RedirectRefused(Origin),
    /// A part of the answer or the document exceeds its size limit.
    #[error("{what} exceeds {limit} bytes: {remedy}")]
    BodyTooLarge {
        /// Part that exceeds the limit.
        what: &'static str,
        /// Size limit in bytes.
        limit: usize,
        /// Remedy, for the message.
        remedy: &'static str,
    },
}

/// Kind of fault of a server that gave no usable answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No connection was made.
    Connection,
    /// The server answered HTTP 5xx.
    Server,
    /// The answer is invalid or incomplete.
    Answer,
}

impl Error {
    /// Returns the reason in conditions, Events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::InvalidSource(_) => Reason::InvalidSource,
            Self::OriginNotAllowed(_) => Reason::OriginNotAllowed,
            Self::SecretNotFound(_) => Reason::SecretNotFound,
            Self::SecretNotConsented(_) => Reason::SecretNotConsented,
            Self::SecretInvalid { .. } => Reason::SecretInvalid,
            Self::ConfigMapNotFound(_) => Reason::ConfigMapNotFound,
            Self::ConfigMapInvalid { .. } => Reason::ConfigMapInvalid,
            Self::ReadFailed { .. } => Reason::ReadFailed,
            Self::AddressBlocked(_) => Reason::AddressBlocked,
            Self::TlsFailure { .. } => Reason::TLSFailure,
            Self::AuthenticationFailed { .. } => Reason::AuthenticationFailed,
            Self::EnvironmentNotFound(_) => Reason::EnvironmentNotFound,
            Self::RateLimited { .. } => Reason::RateLimited,
            Self::UpstreamUnavailable { .. } => Reason::UpstreamUnavailable,
            Self::AnswerTooSlow { .. } => Reason::AnswerTooSlow,
            Self::RedirectRefused(_) => Reason::RedirectRefused,
            Self::BodyTooLarge { .. } => Reason::BodyTooLarge,
        }
    }

    /// Returns true if the spec or an object that it refers to is at fault, not the server.
    pub fn is_fault_of_spec(&self) -> bool {
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

    /// Returns the schedule of the next attempt.
    pub fn retry(&self) -> Retry {
        match self {
            Self::InvalidSource(_) | Self::OriginNotAllowed(_) => Retry::AfterEdit,
            Self::SecretNotFound(_)
            | Self::SecretNotConsented(_)
            | Self::SecretInvalid { .. }
            | Self::ConfigMapNotFound(_)
            | Self::ConfigMapInvalid { .. }
            | Self::AuthenticationFailed { .. } => Retry::Reference,
            Self::RateLimited { retry_after: Some(wait), .. }
            | Self::UpstreamUnavailable { retry_after: Some(wait), .. } => Retry::After(*wait),
            _ => Retry::Backoff,
        }
    }
}
