//! Looks after the certificates for as long as the replica lives.

use std::{convert::Infallible, future::Future, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::Secret};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use tokio::time::{sleep, timeout};

use super::{
    Lifetimes, Names, Serving,
    authority::{Certificate, Leaf, SignError},
    registration::{Registered, update},
    renewal::{Reason, Validity, needs_renewal},
    secret::{Contents, ForeignSecret, Judged, judge},
};
use crate::injection::metrics::Metrics;

/// One call of the API. The client's own retries would go on for minutes.
const CALL: Duration = Duration::from_secs(5);

/// The most that a replica waits between two attempts before its first success.
const FIRST_ATTEMPTS: Duration = Duration::from_secs(1);

/// Keeps the authority, this replica's certificate and the registration in step.
pub struct Keeper {
    secrets: Api<Secret>,
    configurations: Api<MutatingWebhookConfiguration>,
    names: Names,
    lifetimes: Lifetimes,
    serving: Serving,
    metrics: Metrics,
    leaf: Option<Held>,
}

/// What is known of the certificate in use.
struct Held {
    validity: Validity,
    signed_by: Certificate,
}

/// What went wrong at which step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Reading the Secret.
    #[error("Secret {name} cannot be read: {source}")]
    ReadAuthority {
        /// The Secret.
        name: String,
        /// The API server's answer.
        source: CallError,
    },
    /// It is somebody else's.
    #[error(transparent)]
    ForeignSecret(#[from] ForeignSecret),
    /// Making an authority.
    #[error("no authority could be made: {0}")]
    MakeAuthority(#[from] rcgen::Error),
    /// Writing the Secret.
    #[error("Secret {name} cannot be written: {source}")]
    WriteAuthority {
        /// The Secret.
        name: String,
        /// The API server's answer.
        source: CallError,
    },
    /// Making a certificate.
    #[error("no certificate could be made: {0}")]
    MakeCertificate(#[from] SignError),
    /// Reading the registration.
    #[error("MutatingWebhookConfiguration {name} cannot be read: {source}")]
    ReadRegistration {
        /// The MutatingWebhookConfiguration.
        name: String,
        /// The API server's answer.
        source: CallError,
    },
    /// Writing the registration.
    #[error("caBundle of MutatingWebhookConfiguration {name} cannot be written: {source}")]
    WriteRegistration {
        /// The MutatingWebhookConfiguration.
        name: String,
        /// The API server's answer.
        source: CallError,
    },
}

/// An API call that failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The API server said no, or could not be reached.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// It said nothing.
    #[error("no answer in {} s", CALL.as_secs())]
    Silence(#[from] tokio::time::error::Elapsed),
    /// What was to be sent cannot be written.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl CallError {
    fn is_conflict(&self) -> bool {
        matches!(self, CallError::Api(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists())
    }
}

async fn call<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, CallError> {
    Ok(timeout(CALL, request).await??)
}

impl Keeper {
    /// Keeps what these names say, and lets `serving` serve with it.
    pub fn new(client: Client, names: Names, serving: Serving, metrics: Metrics) -> Keeper {
        Keeper {
            secrets: Api::namespaced(client.clone(), &names.namespace),
            configurations: Api::all(client),
            names,
            lifetimes: Lifetimes::default(),
            serving,
            metrics,
            leaf: None,
        }
    }

    /// With other lifetimes than the usual ones.
    #[must_use]
    pub fn lifetimes(self, lifetimes: Lifetimes) -> Keeper {
        Keeper { lifetimes, ..self }
    }

    /// Runs for ever; `ready` is called once, when API servers can be believed to trust the certificate.
    pub async fn run<F: Future<Output = ()>>(mut self, ready: impl FnOnce() -> F) -> Infallible {
        let mut ready = Some(ready);
        loop {
            let mut pause = self.lifetimes.check;
            match self.step(Timestamp::now()).await {
                Ok(news) => {
                    if let Some(ready) = ready.take() {
                        if news {
                            sleep(self.lifetimes.propagation).await;
                        }
                        ready().await;
                    }
                }
                Err(error) => {
                    self.metrics.certificates_failed();
                    tracing::warn!(%error, "certificates");
                    if ready.is_some() {
                        pause = pause.min(FIRST_ATTEMPTS);
                    }
                }
            }
            sleep(pause).await;
        }
    }

    /// Whatever is due now. Tells whether API servers may not have heard yet what they have to trust.
    async fn step(&mut self, now: Timestamp) -> Result<bool, Error> {
        let contents = self.contents(now).await?;
        self.metrics.authority_expires(contents.authority.certificate().validity().until.as_second());
        let trusted = contents.trusted(now, &self.lifetimes);
        // Serving comes first: what is registered must be reachable.
        if self.leaf.as_ref().is_none_or(|leaf| !leaf.serves(&trusted, now)) {
            self.sign(&contents, now)?;
        }
        let changed = self.register(&trusted).await?;
        let settled =
            contents.authority.certificate().validity().made(self.lifetimes.skew) + self.lifetimes.settle <= now;
        if settled && self.leaf.as_ref().is_none_or(|leaf| leaf.is_outdated(&contents, now)) {
            self.sign(&contents, now)?;
        }
        Ok(changed || !settled)
    }

    /// The authority, made or renewed if need be. When several replicas try, one succeeds and all take its.
    async fn contents(&self, now: Timestamp) -> Result<Contents, Error> {
        let name = &self.names.secret;
        let mut attempts = 0;
        loop {
            let found = call(self.secrets.get_opt(name))
                .await
                .map_err(|source| Error::ReadAuthority { name: name.clone(), source })?;
            let (reason, old) = match judge(found.as_ref(), now)? {
                Judged::Good(contents) => return Ok(*contents),
                Judged::Renew { reason, old } => (reason, old),
            };
            // A Secret that is gone took its certificate with it, but what it signed is still in use.
            let old = old.into_iter().chain(self.leaf.as_ref().map(|leaf| leaf.signed_by.clone())).collect();
            let contents = Contents::renewed(old, now, &self.lifetimes)?;
            let secret = contents.secret(&self.names, found.as_ref());
            let params = PostParams::default();
            let written = match &found {
                None => call(self.secrets.create(&params, &secret)).await,
                Some(_) => call(self.secrets.replace(name, &params, &secret)).await,
            };
            attempts += 1;
            match written {
                Ok(_) => {
                    tracing::info!(?reason, secret = %name, "made a new authority");
                    return Ok(contents);
                }
                // Another replica was faster: its authority is as good.
                Err(error) if error.is_conflict() && attempts < 5 => {}
                Err(source) => return Err(Error::WriteAuthority { name: name.clone(), source }),
            }
        }
    }

    /// Serves with a new certificate from now on.
    fn sign(&mut self, contents: &Contents, now: Timestamp) -> Result<(), Error> {
        let Leaf { key, validity, signed_by } = contents.authority.sign(&self.names.server(), now, &self.lifetimes)?;
        self.serving.with(key);
        self.metrics.certificate_expires(validity.until.as_second());
        tracing::info!(until = %validity.until, "serves with a new certificate");
        self.leaf = Some(Held { validity, signed_by });
        Ok(())
    }

    async fn register(&self, trusted: &[&Certificate]) -> Result<bool, Error> {
        let name = &self.names.configuration;
        let configuration = call(self.configurations.get(name))
            .await
            .map_err(|source| Error::ReadRegistration { name: name.clone(), source })?;
        let failed = |source| Error::WriteRegistration { name: name.clone(), source };
        match update(&configuration, trusted).map_err(|error| failed(error.into()))? {
            Registered::Current => Ok(false),
            Registered::Outdated(operations) => {
                let patch = Patch::Json::<()>(operations);
                call(self.configurations.patch(name, &PatchParams::default(), &patch)).await.map_err(failed)?;
                tracing::info!(configuration = %name, authorities = trusted.len(), "told the API server what to trust");
                Ok(true)
            }
        }
    }
}

impl Held {
    /// Whether it is valid, and signed by something that is trusted.
    fn serves(&self, trusted: &[&Certificate], now: Timestamp) -> bool {
        let expired = matches!(self.renewal(now), Some(Reason::Expired | Reason::NotYetValid));
        !expired && trusted.contains(&&self.signed_by)
    }

    /// Whether it is time for another one.
    fn is_outdated(&self, contents: &Contents, now: Timestamp) -> bool {
        self.renewal(now).is_some() || self.signed_by != *contents.authority.certificate()
    }

    fn renewal(&self, now: Timestamp) -> Option<Reason> {
        needs_renewal(Some(&Ok::<_, Infallible>(self.validity)), now)
    }
}

#[cfg(test)]
mod tests;
