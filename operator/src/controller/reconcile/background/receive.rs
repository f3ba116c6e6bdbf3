//! Receive step: gives the receiver of webhooks the environment's secret.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    api::SigningSecretRef,
    controller::reconcile::environment::Environment,
    source::{
        fetch::{Error, Fetcher},
        receiver::WebhookReceiver,
        trigger::TriggerSender,
    },
};

/// Time after which the Secret is read again.
const REREAD: Duration = Duration::from_secs(60);

/// State of the reception between reconciliations.
#[derive(Debug, Default)]
pub(crate) struct Reception {
    read: Option<SecretRead>,
}

/// Last read of the Secret.
#[derive(Debug)]
struct SecretRead {
    at: Instant,
    reference: SigningSecretRef,
    /// State for the status.
    state_text: String,
    /// True if the spec has changed since.
    is_outdated: bool,
}

impl Reception {
    /// Returns the time at which the Secret should be read again.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.read.as_ref().map(|read| read.at + REREAD)
    }

    /// Returns the state for the status. `None` if the spec asks for no reception.
    pub(crate) fn state_text(&self) -> Option<String> {
        self.read.as_ref().map(|read| read.state_text.clone())
    }

    /// Makes the next reconciliation read the Secret.
    pub(crate) fn start_generation(&mut self) {
        if let Some(read) = &mut self.read {
            read.is_outdated = true;
        }
    }
}

/// Registers the environment with the receiver if the spec asks for it, and removes it otherwise. While the Secret cannot
/// be used, the environment is only polled.
pub(crate) async fn receive(
    environment: &Environment<'_>,
    fetcher: &Fetcher,
    receiver: &WebhookReceiver,
    triggers: &TriggerSender,
    reception: &mut Reception,
) {
    let (name, uid) = (&environment.name, &environment.uid);
    let flagsmith = environment.spec.source.flagsmith.as_ref().filter(|_| !environment.spec.suspend);
    let Some(webhook) = flagsmith.and_then(|flagsmith| flagsmith.webhook.as_ref()) else {
        receiver.set_target(name, uid, None, triggers);
        reception.read = None;
        return;
    };
    let reference = &webhook.secret_key_ref;
    let before = reception.read.as_mut().filter(|read| read.reference == *reference);
    if let Some(read) = &before
        && !read.is_outdated
        && read.at.elapsed() < REREAD
    {
        return;
    }
    let (secret, state_text) = match fetcher.signing_secret(environment.namespace(), reference).await {
        Ok(secret) => (Some(secret), "receiving".to_owned()),
        // A read that failed says nothing about the Secret, so the secret that was read before stays in use.
        Err(Error::ReadFailed { .. }) if let Some(read) = before => {
            (read.at, read.is_outdated) = (Instant::now(), false);
            return;
        }
        Err(error) => (None, format!("polled only: {error}")),
    };
    receiver.set_target(name, uid, secret, triggers);
    let (at, reference) = (Instant::now(), reference.clone());
    reception.read = Some(SecretRead { at, reference, state_text, is_outdated: false });
}
