//! The certificate manager: keeps CA, serving certificate and registration up to date while the replica runs.

use std::{convert::Infallible, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::Secret};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use tokio::time::sleep;

use super::{
    Lifetimes, Names, Serving,
    ca::{Certificate, Leaf, SignError},
    registration::{Registered, registered, update},
    renewal::{RenewalReason, Validity, needs_renewal},
    secret::{Contents, ForeignSecret, State, assess},
};
use crate::{
    api_call::{CallError, within},
    injection::metrics::Metrics,
};

/// Timeout of one API call.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of attempts of one check while other replicas write at the same time.
const ATTEMPTS: usize = 5;

/// Longest pause between two attempts before the first success.
const FIRST_ATTEMPTS: Duration = Duration::from_secs(1);

/// The certificate manager: keeps the CA, this replica's serving certificate and the registration consistent.
pub struct CertificateManager {
    secrets: Api<Secret>,
    configurations: Api<MutatingWebhookConfiguration>,
    names: Names,
    lifetimes: Lifetimes,
    serving: Serving,
    metrics: Metrics,
    leaf: Option<InUse>,
}

/// The serving certificate in use: its validity and its CA.
struct InUse {
    validity: Validity,
    signed_by: Certificate,
}

/// Error of one step of certificate management.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The Secret cannot be read.
    #[error("cannot read Secret {name}: {source}")]
    ReadCa {
        /// Name of the Secret.
        name: String,
        /// Error of the API call.
        source: CallError,
    },
    /// The Secret belongs to another program.
    #[error(transparent)]
    ForeignSecret(#[from] ForeignSecret),
    /// The CA cannot be created.
    #[error("cannot create a CA: {0}")]
    CreateCa(#[from] rcgen::Error),
    /// The Secret cannot be written.
    #[error("cannot write Secret {name}: {source}")]
    WriteCa {
        /// Name of the Secret.
        name: String,
        /// Error of the API call.
        source: CallError,
    },
    /// The serving certificate cannot be created.
    #[error("cannot create a serving certificate: {0}")]
    CreateCertificate(#[from] SignError),
    /// The registration cannot be read.
    #[error("cannot read MutatingWebhookConfiguration {name}: {source}")]
    ReadRegistration {
        /// Name of the MutatingWebhookConfiguration.
        name: String,
        /// Error of the API call.
        source: CallError,
    },
    /// The change of the registration cannot be serialized.
    #[error("cannot serialize caBundle of a MutatingWebhookConfiguration: {0}")]
    SerializeRegistration(#[from] serde_json::Error),
    /// The registration cannot be written.
    #[error("cannot write caBundle of MutatingWebhookConfiguration {name}: {source}")]
    WriteRegistration {
        /// Name of the MutatingWebhookConfiguration.
        name: String,
        /// Error of the API call.
        source: CallError,
    },
}

impl CertificateManager {
    /// Creates a manager for these objects that passes each new serving certificate to `serving`.
    pub fn new(client: Client, names: Names, serving: Serving, metrics: Metrics) -> CertificateManager {
        CertificateManager {
            secrets: Api::namespaced(client.clone(), &names.namespace),
            configurations: Api::all(client),
            names,
            lifetimes: Lifetimes::default(),
            serving,
            metrics,
            leaf: None,
        }
    }

    /// Replaces the default lifetimes.
    #[must_use]
    pub fn lifetimes(self, lifetimes: Lifetimes) -> CertificateManager {
        CertificateManager { lifetimes, ..self }
    }

    /// Checks the certificates periodically and never returns. Calls `ready` once, when API servers should trust the
    /// certificate.
    pub async fn run<F: Future<Output = ()>>(mut self, ready: impl FnOnce() -> F) -> Infallible {
        let mut ready = Some(ready);
        loop {
            let mut pause = self.lifetimes.check;
            match self.step(Timestamp::now()).await {
                Ok(unsettled) => {
                    if let Some(ready) = ready.take() {
                        if unsettled {
                            sleep(self.lifetimes.propagation).await;
                        }
                        ready().await;
                    }
                }
                Err(error) => {
                    self.metrics.count_certificate_failure();
                    tracing::warn!(%error, "cannot renew or register the webhook's certificates; trying again");
                    if ready.is_some() {
                        pause = pause.min(FIRST_ATTEMPTS);
                    }
                }
            }
            sleep(pause).await;
        }
    }

    /// Does all work that is due now. Returns true if API servers may not have read the current `caBundle` yet.
    async fn step(&mut self, now: Timestamp) -> Result<bool, Error> {
        for _ in 1..ATTEMPTS {
            match self.attempt(now).await {
                // Another replica wrote first: the next attempt reads what it wrote.
                Err(Error::WriteCa { source, .. }) if source.is_conflict() => {}
                Err(Error::WriteRegistration { source, .. }) if source.is_unprocessable() => {}
                result => return result,
            }
        }
        self.attempt(now).await
    }

    async fn attempt(&mut self, now: Timestamp) -> Result<bool, Error> {
        // The registration is read before the Secret, and written only if it has not changed since: it never loses a CA
        // that another replica has registered after it read a later Secret.
        let registration = self.registration().await;
        let registered = registration.as_ref().map(registered).unwrap_or_default();
        let contents = self.contents(registered, now).await?;
        self.metrics.set_ca_expiry(contents.ca.certificate().validity().until.as_second());
        let trusted = contents.trusted(now, &self.lifetimes);
        // Signing comes before registration: the API server calls the webhook as soon as `caBundle` is set, and the
        // replica must have a certificate then.
        if self.leaf.as_ref().is_none_or(|leaf| !leaf.serves(&trusted, now)) {
            self.sign(&contents, now)?;
        }
        let changed = self.register(&registration?, &trusted).await?;
        let settled = contents.ca.certificate().validity().created(self.lifetimes.skew) + self.lifetimes.settle <= now;
        if settled && self.leaf.as_ref().is_none_or(|leaf| leaf.is_outdated(&contents, now)) {
            self.sign(&contents, now)?;
        }
        Ok(changed || !settled)
    }

    /// Returns the contents of the Secret, and creates or renews the CA if necessary. If several replicas try at the
    /// same time, one succeeds.
    async fn contents(&self, registered: Vec<Certificate>, now: Timestamp) -> Result<Contents, Error> {
        let name = &self.names.secret;
        let found = within(CALL_TIMEOUT, self.secrets.get_opt(name))
            .await
            .map_err(|source| Error::ReadCa { name: name.clone(), source })?;
        let (reason, old) = match assess(found.as_ref(), now)? {
            State::Usable(contents) => return Ok(*contents),
            State::Renew { reason, old } => (reason, old),
        };
        // The CAs of a deleted Secret are still needed: the serving certificates that they signed are in use, here and in
        // the other replicas.
        let own = self.leaf.as_ref().map(|leaf| leaf.signed_by.clone());
        let contents = Contents::renewed(old.into_iter().chain(own).chain(registered), now, &self.lifetimes)?;
        let secret = contents.secret(&self.names, found.as_ref());
        let params = PostParams::default();
        let written = match &found {
            None => within(CALL_TIMEOUT, self.secrets.create(&params, &secret)).await,
            Some(_) => within(CALL_TIMEOUT, self.secrets.replace(name, &params, &secret)).await,
        };
        written.map_err(|source| Error::WriteCa { name: name.clone(), source })?;
        tracing::info!(?reason, secret = %name, "created a new CA");
        Ok(contents)
    }

    /// Signs a new serving certificate and serves with it from the next handshake on.
    fn sign(&mut self, contents: &Contents, now: Timestamp) -> Result<(), Error> {
        let Leaf { key, validity, signed_by } = contents.ca.sign(&self.names.server(), now, &self.lifetimes)?;
        self.serving.replace(key);
        self.metrics.set_certificate_expiry(validity.until.as_second());
        tracing::info!(until = %validity.until, "signed a new serving certificate");
        self.leaf = Some(InUse { validity, signed_by });
        Ok(())
    }

    async fn registration(&self) -> Result<MutatingWebhookConfiguration, Error> {
        let name = &self.names.configuration;
        within(CALL_TIMEOUT, self.configurations.get(name))
            .await
            .map_err(|source| Error::ReadRegistration { name: name.clone(), source })
    }

    /// Registers the CAs with the API server. Returns true if they were not registered already.
    async fn register(
        &self,
        registration: &MutatingWebhookConfiguration,
        trusted: &[&Certificate],
    ) -> Result<bool, Error> {
        let name = &self.names.configuration;
        match update(registration, trusted)? {
            Registered::Current => Ok(false),
            Registered::Outdated(operations) => {
                let patch = Patch::Json::<()>(operations);
                within(CALL_TIMEOUT, self.configurations.patch(name, &PatchParams::default(), &patch))
                    .await
                    .map_err(|source| Error::WriteRegistration { name: name.clone(), source })?;
                tracing::info!(configuration = %name, cas = trusted.len(), "registered the CAs with the API server");
                Ok(true)
            }
        }
    }
}

impl InUse {
    /// True if the certificate is valid now and its CA is among `trusted`.
    fn serves(&self, trusted: &[&Certificate], now: Timestamp) -> bool {
        let expired = matches!(self.renewal(now), Some(RenewalReason::Expired | RenewalReason::NotYetValid));
        !expired && trusted.contains(&&self.signed_by)
    }

    /// True if the certificate is due for renewal or was not signed by the current CA.
    fn is_outdated(&self, contents: &Contents, now: Timestamp) -> bool {
        self.renewal(now).is_some() || self.signed_by != *contents.ca.certificate()
    }

    fn renewal(&self, now: Timestamp) -> Option<RenewalReason> {
        needs_renewal(Some(&Ok::<_, Infallible>(self.validity)), now)
    }
}

#[cfg(test)]
mod cuts;
#[cfg(test)]
mod tests;
