//! The format of the Secret that stores the CA.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use super::{
    Lifetimes, Names,
    ca::{Ca, Certificate, Unusable},
    renewal::{RenewalReason, Validity, needs_renewal},
};
use crate::api::names::label;

const CERTIFICATE: &str = "ca.crt";
const KEY: &str = "ca.key";
/// Key of the previous CA certificates, newest first. A CA stays there while a certificate that it signed may be in
/// use.
const PREVIOUS: &str = "previous-ca.crt";
/// Most previous CAs that are kept. Each stands for one renewal while certificates of the CA before it were in use.
const MOST_PREVIOUS: usize = 4;

/// Parsed contents of the Secret.
pub struct Contents {
    /// The CA that signs.
    pub ca: Ca,
    /// Certificates of the previous CAs, newest first.
    pub previous: Vec<Certificate>,
}

/// Error: the Secret exists without the operator's label. The operator does not change it.
#[derive(Debug, thiserror::Error)]
#[error(
    "Secret {0} exists without the label app.kubernetes.io/managed-by=remora, so it is not overwritten: remove it, or \
     name another with --certificate-secret"
)]
pub struct ForeignSecret(String);

/// State of the Secret.
pub(super) enum State {
    /// The Secret can be used as it is.
    Usable(Box<Contents>),
    /// The Secret must be replaced. `old` holds the old CAs that can still be parsed, newest first; they stay trusted
    /// for a while.
    Renew { reason: RenewalReason, old: Vec<Certificate> },
}

impl Contents {
    /// Creates contents with a new CA, and keeps the first [`MOST_PREVIOUS`] distinct certificates of `old`.
    pub(super) fn renewed(
        old: impl IntoIterator<Item = Certificate>,
        now: Timestamp,
        lifetimes: &Lifetimes,
    ) -> Result<Contents, rcgen::Error> {
        let mut previous: Vec<Certificate> = Vec::new();
        for certificate in old {
            if previous.len() < MOST_PREVIOUS && !previous.contains(&certificate) {
                previous.push(certificate);
            }
        }
        Ok(Contents { ca: Ca::create(now, lifetimes)?, previous })
    }

    /// Returns every CA that may have signed a certificate in use, the current CA first.
    pub fn trusted(&self, now: Timestamp, lifetimes: &Lifetimes) -> Vec<&Certificate> {
        let current = self.ca.certificate();
        let created = current.validity().created(lifetimes.skew);
        // Previous CAs signed nothing after the current one was created, except replicas that were just signing: they
        // get a minute.
        let last = created.checked_add(lifetimes.leaf + Duration::from_secs(60)).unwrap_or(Timestamp::MAX);
        let in_use = |previous: &&Certificate| now < last && now < previous.validity().until && *previous != current;
        std::iter::once(current).chain(self.previous.iter().filter(in_use)).collect()
    }

    /// Renders the contents as a Secret. The Secret carries the resource version of the one that it replaces, so that
    /// only one of two concurrent replicas succeeds.
    pub(super) fn secret(&self, names: &Names, replaces: Option<&Secret>) -> Secret {
        let mut data = BTreeMap::from([
            (CERTIFICATE.to_owned(), ByteString(self.ca.certificate().pem().into())),
            (KEY.to_owned(), ByteString(self.ca.key_pem().into())),
        ]);
        if !self.previous.is_empty() {
            let previous: String = self.previous.iter().map(Certificate::pem).collect();
            data.insert(PREVIOUS.to_owned(), ByteString(previous.into()));
        }
        let kept = |secret: &Secret| ObjectMeta {
            labels: secret.metadata.labels.clone(),
            annotations: secret.metadata.annotations.clone(),
            owner_references: secret.metadata.owner_references.clone(),
            resource_version: secret.metadata.resource_version.clone(),
            ..ObjectMeta::default()
        };
        let mut metadata = replaces.map(kept).unwrap_or_default();
        metadata.name = Some(names.secret.clone());
        metadata.namespace = Some(names.namespace.clone());
        metadata.labels.get_or_insert_default().insert(label::MANAGED_BY.to_owned(), label::REMORA.to_owned());
        Secret { metadata, data: Some(data), type_: Some("Opaque".to_owned()), ..Secret::default() }
    }
}

/// Decides if the Secret can be used or must be replaced. `secret` is `None` if no Secret exists.
///
/// # Errors
///
/// Fails if the Secret exists without the operator's label.
pub(super) fn assess(secret: Option<&Secret>, now: Timestamp) -> Result<State, ForeignSecret> {
    let Some(secret) = secret else {
        return Ok(State::Renew { reason: RenewalReason::Missing, old: Vec::new() });
    };
    let labels = secret.metadata.labels.as_ref();
    if labels.and_then(|labels| labels.get(label::MANAGED_BY)).map(String::as_str) != Some(label::REMORA) {
        return Err(ForeignSecret(secret.metadata.name.clone().unwrap_or_default()));
    }
    let read = read(secret);
    let validity: Result<Validity, ()> = match &read {
        Ok(contents) => Ok(contents.ca.certificate().validity()),
        Err(error) => {
            tracing::warn!(%error, "cannot use the CA in the Secret; creating another one");
            Err(())
        }
    };
    Ok(match (needs_renewal(Some(&validity), now), read) {
        (None, Ok(contents)) => State::Usable(Box::new(contents)),
        (reason, read) => {
            let newest = match read {
                Ok(contents) => Some(contents.ca.certificate().clone()),
                Err(_) => part(secret, CERTIFICATE).and_then(Certificate::read).ok(),
            };
            let old = newest.into_iter().chain(previous(secret)).collect();
            State::Renew { reason: reason.unwrap_or(RenewalReason::Unusable), old }
        }
    })
}

fn read(secret: &Secret) -> Result<Contents, Unusable> {
    Ok(Contents { ca: Ca::read(part(secret, CERTIFICATE)?, part(secret, KEY)?)?, previous: previous(secret) })
}

/// Parses the previous CAs. The result skips unreadable ones: previous CAs are only trusted, for a limited time, and
/// never sign.
fn previous(secret: &Secret) -> Vec<Certificate> {
    part(secret, PREVIOUS).map(Certificate::read_all).unwrap_or_default()
}

fn part<'a>(secret: &'a Secret, key: &'static str) -> Result<&'a [u8], Unusable> {
    let data = secret.data.as_ref().and_then(|data| data.get(key));
    data.map(|bytes| bytes.0.as_slice()).ok_or(Unusable::Absent(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names {
            namespace: "remora-system".to_owned(),
            service: "remora-webhook".to_owned(),
            configuration: "remora".to_owned(),
            secret: "remora-webhook-authority".to_owned(),
        }
    }

    fn later(now: Timestamp, seconds: u64) -> Timestamp {
        now + Duration::from_secs(seconds)
    }

    const DAY: u64 = 86_400;

    fn renewal(secret: &Secret, now: Timestamp) -> Option<(RenewalReason, bool)> {
        match assess(Some(secret), now).unwrap() {
            State::Usable(_) => None,
            State::Renew { reason, old } => Some((reason, !old.is_empty())),
        }
    }

    #[test]
    fn ca_is_usable_until_two_thirds_of_its_validity() {
        let (now, lifetimes) = (Timestamp::now(), Lifetimes::default());
        let secret = Contents::renewed(Vec::new(), now, &lifetimes).unwrap().secret(&names(), None);
        assert_eq!(renewal(&secret, now), None);
        assert_eq!(renewal(&secret, later(now, 243 * DAY)), None);
        assert_eq!(renewal(&secret, later(now, 244 * DAY)), Some((RenewalReason::Due, true)));
        assert_eq!(renewal(&secret, later(now, 366 * DAY)), Some((RenewalReason::Expired, true)));
        assert_eq!(
            renewal(&secret, later(now, 0) - Duration::from_secs(3600)),
            Some((RenewalReason::NotYetValid, true))
        );
    }

    #[test]
    fn damaged_secret_is_renewed_and_keeps_readable_cas() {
        let (now, lifetimes) = (Timestamp::now(), Lifetimes::default());
        let whole = Contents::renewed(Vec::new(), now, &lifetimes).unwrap().secret(&names(), None);
        let damaged = |key: &str, value: Option<&[u8]>| {
            let mut secret = whole.clone();
            let data = secret.data.as_mut().unwrap();
            match value {
                Some(value) => data.insert(key.to_owned(), ByteString(value.to_vec())),
                None => data.remove(key),
            };
            secret
        };
        assert_eq!(renewal(&damaged(KEY, None), now), Some((RenewalReason::Unusable, true)));
        assert_eq!(renewal(&damaged(KEY, Some(b"?")), now), Some((RenewalReason::Unusable, true)));
        assert_eq!(renewal(&damaged(CERTIFICATE, None), now), Some((RenewalReason::Unusable, false)));
        assert_eq!(renewal(&damaged(CERTIFICATE, Some(b"\xff")), now), Some((RenewalReason::Unusable, false)));
        assert_eq!(renewal(&damaged(PREVIOUS, Some(b"?")), now), None);
        assert_eq!(renewal(&Secret { data: None, ..whole.clone() }, now), Some((RenewalReason::Unusable, false)));
        assert!(
            matches!(assess(None, now), Ok(State::Renew { reason: RenewalReason::Missing, old }) if old.is_empty())
        );
    }

    #[test]
    fn foreign_secret_is_an_error() {
        let (now, lifetimes) = (Timestamp::now(), Lifetimes::default());
        let mut secret = Contents::renewed(Vec::new(), now, &lifetimes).unwrap().secret(&names(), None);
        secret.metadata.labels = None;
        let message = assess(Some(&secret), now).err().unwrap().to_string();
        assert!(message.contains("remora-webhook-authority") && message.contains("not overwritten"), "{message}");
    }

    #[test]
    fn previous_ca_is_trusted_until_its_last_certificate_expires() {
        let (now, lifetimes) = (Timestamp::now(), Lifetimes::default());
        let old = Contents::renewed(Vec::new(), now, &lifetimes).unwrap().ca.certificate().clone();
        let then = later(now, 250 * DAY);
        let contents = Contents::renewed(vec![old.clone()], then, &lifetimes).unwrap();
        let secret = contents.secret(&names(), None);
        let State::Usable(contents) = assess(Some(&secret), then).unwrap() else { panic!("not usable") };
        assert_eq!(contents.trusted(then, &lifetimes), [contents.ca.certificate(), &old]);
        assert_eq!(contents.trusted(later(then, 7 * DAY), &lifetimes).len(), 2);
        assert_eq!(contents.trusted(later(then, 7 * DAY + 61), &lifetimes), [contents.ca.certificate()]);
    }

    /// Certificates of the first CA may still be in use when the second CA is damaged.
    #[test]
    fn second_renewal_within_minutes_keeps_first_ca_trusted() {
        let (now, lifetimes) = (Timestamp::now(), Lifetimes::default());
        let first = Contents::renewed(Vec::new(), now, &lifetimes).unwrap().ca.certificate().clone();
        let second = Contents::renewed(vec![first.clone()], later(now, 10), &lifetimes).unwrap();
        let mut secret = second.secret(&names(), None);
        secret.data.as_mut().unwrap().remove(KEY);
        let State::Renew { old, .. } = assess(Some(&secret), later(now, 20)).unwrap() else { panic!("usable") };
        let second = second.ca.certificate().clone();
        assert_eq!(old, [second.clone(), first.clone()]);
        // The CA of the replica's serving certificate may be in the list already.
        let old = old.into_iter().chain([first.clone()]);
        let third = Contents::renewed(old, later(now, 20), &lifetimes).unwrap();
        let State::Usable(third) = assess(Some(&third.secret(&names(), None)), later(now, 20)).unwrap() else {
            panic!("not usable")
        };
        assert_eq!(third.trusted(later(now, 20), &lifetimes), [third.ca.certificate(), &second, &first]);
        let many = (0..9).map(|_| Contents::renewed(Vec::new(), now, &lifetimes).unwrap().ca.certificate().clone());
        assert_eq!(Contents::renewed(many, now, &lifetimes).unwrap().previous.len(), MOST_PREVIOUS);
    }

    #[test]
    fn replacement_keeps_foreign_metadata() {
        let (now, lifetimes) = (Timestamp::now(), Lifetimes::default());
        let contents = Contents::renewed(Vec::new(), now, &lifetimes).unwrap();
        let mut existing = contents.secret(&names(), None);
        existing.metadata.resource_version = Some("7".to_owned());
        existing.metadata.annotations = Some(BTreeMap::from([("backup".to_owned(), "no".to_owned())]));
        let replacement = contents.secret(&names(), Some(&existing));
        assert_eq!(replacement.metadata, existing.metadata);
    }
}
