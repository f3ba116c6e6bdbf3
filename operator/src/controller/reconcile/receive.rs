//! Receive step: gives the receiver of webhooks the environment's secret.

use std::time::Duration;

use tokio::time::Instant;

use super::environment::Environment;
use crate::source::{
    fetch::{Error, Fetcher},
    receiver::Receiver,
    trigger::TriggerSender,
};

/// Time after which the Secret is read again.
const REREAD: Duration = Duration::from_secs(60);

/// State of the reception between reconciliations.
#[derive(Debug, Default)]
pub(super) struct Reception {
    /// Time at which the Secret was read last, and the state for the status.
    read: Option<(Instant, String)>,
}

impl Reception {
    /// Returns the time at which the Secret should be read again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.read.as_ref().map(|(at, _)| *at + REREAD)
    }

    /// Forgets what belongs to an earlier generation of the spec.
    pub(super) fn start_generation(&mut self) {
        self.read = None;
    }
}

/// Registers the environment with the receiver if the spec asks for it, and removes it otherwise. Returns the state for
/// the status. While the Secret cannot be used, the environment is only polled.
pub(super) async fn receive(
    environment: &Environment<'_>,
    fetcher: &Fetcher,
    receiver: &Receiver,
    triggers: &TriggerSender,
    reception: &mut Reception,
) -> Option<String> {
    let (namespace, name, uid) = (&environment.namespace, &environment.name, &environment.uid);
    let flagsmith = environment.spec.source.flagsmith.as_ref().filter(|_| !environment.spec.suspend);
    let Some(webhook) = flagsmith.and_then(|flagsmith| flagsmith.webhook.as_ref()) else {
        receiver.keep(namespace, name, uid, None, triggers);
        reception.read = None;
        return None;
    };
    if let Some((at, standing)) = &reception.read
        && at.elapsed() < REREAD
    {
        return Some(standing.clone());
    }
    let (secret, standing) = match fetcher.signing_secret(namespace, &webhook.secret_key_ref).await {
        Ok(secret) => (Some(secret), "receiving".to_owned()),
        // A read that failed says nothing about the Secret, so the secret that was read before stays in use.
        Err(Error::ReadFailed { .. }) if let Some((at, standing)) = &mut reception.read => {
            *at = Instant::now();
            return Some(standing.clone());
        }
        Err(error) => (None, format!("polled only: {error}")),
    };
    receiver.keep(namespace, name, uid, secret, triggers);
    reception.read = Some((Instant::now(), standing.clone()));
    Some(standing)
}
