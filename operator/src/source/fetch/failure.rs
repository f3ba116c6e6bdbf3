//! Translates failed requests into errors in words of our own.

use std::{error::Error as StdError, io, iter};

use reqwest::Url;
use rustls::{CertificateError, Error as TlsError};

use super::{
    error::{Error, Fault},
    origin::Origin,
    resolve::{Blocked, Unknown},
};

/// Remedy for a server that cannot be reached, or does not answer.
pub(super) const CHECK_PATH: &str = "check the server, and DNS, egress and NetworkPolicies on the way to it";

/// Translates an error of `reqwest`.
pub(super) fn explain(error: &reqwest::Error, origin: &Origin, url: &Url) -> Error {
    for cause in causes(error) {
        if let Some(problem) = tunnel_problem(cause) {
            return unreached(origin, problem);
        }
        if cause.is::<Blocked>() {
            return Error::AddressBlocked(url.host_str().unwrap_or_default().to_owned());
        }
        if cause.is::<Unknown>() {
            return unreached(origin, &format!("the name does not resolve; {CHECK_PATH}"));
        }
        if let Some(tls) = cause.downcast_ref::<TlsError>() {
            return Error::TlsFailure { origin: origin.clone(), problem: tls_problem(tls) };
        }
    }
    let system = causes(error).find_map(io_problem);
    let problem = match system {
        Some(problem) => problem,
        None if error.is_timeout() => "no answer in time",
        None if error.is_connect() => "no connection",
        None => "the answer is not HTTP, or broke off",
    };
    let problem = &format!("{problem}; {CHECK_PATH}");
    // An answer may break off for one environment only. A failed connection concerns all of them.
    if error.is_connect() { unreached(origin, problem) } else { unavailable(origin, problem) }
}

/// Returns the error of a server that was reached and gave no usable answer.
pub(super) fn unavailable(origin: &Origin, problem: &str) -> Error {
    Error::UpstreamUnavailable {
        origin: origin.clone(),
        problem: problem.to_owned(),
        fault: Fault::Answer,
        retry_after: None,
    }
}

/// Returns the error of a server that cannot be reached.
pub(super) fn unreached(origin: &Origin, problem: &str) -> Error {
    Error::UpstreamUnavailable {
        origin: origin.clone(),
        problem: problem.to_owned(),
        fault: Fault::Connection,
        retry_after: None,
    }
}

/// Iterates over the error and its causes. `source` skips the error that an I/O error wraps, [`cause`] does not.
fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    iter::successors(Some(error), |error| cause(*error))
}

fn cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

fn io_problem(cause: &(dyn StdError + 'static)) -> Option<&'static str> {
    match cause.downcast_ref::<io::Error>()?.kind() {
        io::ErrorKind::ConnectionRefused => Some("connection refused"),
        io::ErrorKind::ConnectionReset => Some("connection reset"),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Some("no route to the server"),
        _ => None,
    }
}

/// Returns the problem of a connection through a proxy. hyper-util does not export the type of its error, only its text.
fn tunnel_problem(cause: &(dyn StdError + 'static)) -> Option<&'static str> {
    match cause.to_string().strip_prefix("tunnel error: ")? {
        "proxy authorization required" => {
            Some("its proxy wants other credentials; check the Secret that the chart's proxy values name")
        }
        "unsuccessful" => Some("its proxy refuses the connection; allow the server there"),
        "failed to create underlying connection" => Some("its proxy cannot be reached"),
        _ => Some("its proxy does not answer as an HTTP proxy does"),
    }
}

fn tls_problem(error: &TlsError) -> &'static str {
    let TlsError::InvalidCertificate(problem) = error else {
        return "the server offers neither TLS 1.2 nor 1.3; enable one of them there";
    };
    match problem {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the certificate is signed by an unknown CA; set a bundle with that CA in caBundleRef, or in the chart's caBundle for all environments"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the certificate has expired; renew it on the server"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate is not valid yet; check the clocks of the server and of this node"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the certificate is for another name; check spec.source.flagsmith.apiUrl, and the certificate of the server"
        }
        _ => "the certificate is not valid; check it on the server",
    }
}
