//! The CA, and the serving certificates that it signs.

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, date_time_ymd,
};
use rustls::{
    crypto::ring::sign::any_supported_type,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject},
    sign::CertifiedKey,
};

use super::{Lifetimes, renewal::Validity};

/// A CA certificate without its key: a trust anchor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    pem: String,
    der: CertificateDer<'static>,
    validity: Validity,
}

/// A CA: its certificate and its signing key.
pub struct Ca {
    certificate: Certificate,
    key: KeyPair,
}

/// A replica's serving certificate.
pub struct Leaf {
    /// The certificate and its key, in the form that rustls needs.
    pub key: CertifiedKey,
    /// Validity period of the certificate.
    pub validity: Validity,
    /// Certificate of the CA that signed it.
    pub signed_by: Certificate,
}

/// Error: the bytes are not a CA that can be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The bytes are not UTF-8.
    #[error("it is not UTF-8")]
    Text(#[from] std::str::Utf8Error),
    /// The certificate is not PEM.
    #[error("its certificate is not PEM: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// The certificate is not X.509.
    #[error("its certificate is not X.509: {0}")]
    Certificate(String),
    /// The certificate is not a CA certificate.
    #[error("its certificate is not a CA certificate")]
    NotACa,
    /// The key cannot be parsed.
    #[error("its key cannot be parsed: {0}")]
    Key(#[from] rcgen::Error),
    /// The key belongs to another certificate.
    #[error("its key belongs to another certificate")]
    OtherKey,
    /// The Secret has no data under this key.
    #[error("it has no {0}")]
    Absent(&'static str),
}

impl Certificate {
    /// Parses one PEM certificate of a CA.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not UTF-8, PEM and X.509, or if the certificate is not a CA certificate.
    pub fn read(pem: &[u8]) -> Result<Certificate, Unusable> {
        Self::read_with_key(pem).map(|(certificate, _)| certificate)
    }

    /// Parses a sequence of PEM certificates, and skips every one that cannot be parsed or is not a CA certificate.
    pub fn read_all(pem: &[u8]) -> Vec<Certificate> {
        const END: &str = "-----END CERTIFICATE-----\n";
        let text = String::from_utf8_lossy(pem);
        text.split_inclusive(END).filter_map(|one| Certificate::read(one.as_bytes()).ok()).collect()
    }

    /// Returns the certificate as PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the validity period of the certificate.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Parses one PEM certificate of a CA, and returns it with its public key.
    fn read_with_key(pem: &[u8]) -> Result<(Certificate, Vec<u8>), Unusable> {
        let text = std::str::from_utf8(pem)?;
        let der = CertificateDer::from_pem_slice(pem)?;
        let (_, parsed) =
            x509_parser::parse_x509_certificate(&der).map_err(|error| Unusable::Certificate(error.to_string()))?;
        if !parsed.is_ca() {
            return Err(Unusable::NotACa);
        }
        let second = |time: x509_parser::time::ASN1Time| {
            Timestamp::from_second(time.timestamp()).map_err(|error| Unusable::Certificate(error.to_string()))
        };
        let validity =
            Validity { from: second(parsed.validity().not_before)?, until: second(parsed.validity().not_after)? };
        let key = parsed.public_key().raw.to_vec();
        Ok((Certificate { pem: text.to_owned(), der, validity }, key))
    }
}

impl Ca {
    /// Creates a CA with a new key, valid from `now` minus the clock skew.
    ///
    /// # Errors
    ///
    /// Fails if the key or the certificate cannot be generated.
    pub fn create(now: Timestamp, lifetimes: &Lifetimes) -> Result<Ca, rcgen::Error> {
        let key = KeyPair::generate()?;
        let validity = Validity::new(now, lifetimes.ca, lifetimes.skew).in_seconds();
        let mut params = params(validity);
        // Each CA has a distinct name, so that a client that trusts two CAs picks the right one.
        params.distinguished_name.push(DnType::CommonName, format!("Remora webhook {}", now.as_second()));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, &key)?;
        let certificate = Certificate { pem: issuer.pem(), der: issuer.der().clone(), validity };
        drop(issuer);
        Ok(Ca { certificate, key })
    }

    /// Parses a CA that [`Ca::create`] created, from the PEM of its certificate and of its key.
    ///
    /// # Errors
    ///
    /// Fails if [`Certificate::read`] fails, if the key is not PEM, or if the key belongs to another certificate.
    pub fn read(certificate: &[u8], key: &[u8]) -> Result<Ca, Unusable> {
        let (certificate, public_key) = Certificate::read_with_key(certificate)?;
        let key = KeyPair::from_pem(std::str::from_utf8(key)?)?;
        if key.subject_public_key_info() != public_key {
            return Err(Unusable::OtherKey);
        }
        Ok(Ca { certificate, key })
    }

    /// Returns the certificate of this CA.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Returns the private key as PEM.
    pub(super) fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Generates a key and signs a serving certificate for it, valid for this server name.
    ///
    /// # Errors
    ///
    /// Fails if `server` is not a valid DNS name, if the key or the certificate cannot be generated, or if rustls
    /// rejects the key.
    pub fn sign(&self, server: &str, now: Timestamp, lifetimes: &Lifetimes) -> Result<Leaf, SignError> {
        let mut validity = Validity::new(now, lifetimes.leaf, lifetimes.skew).in_seconds();
        // A certificate that outlives its CA would fail verification before it looks expired.
        validity.until = validity.until.min(self.certificate.validity.until);
        let mut params = params(validity);
        params.distinguished_name.push(DnType::CommonName, "Remora webhook");
        params.subject_alt_names = vec![rcgen::SanType::DnsName(server.try_into()?)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let issuer = Issuer::from_ca_cert_der(&self.certificate.der, &self.key)?;
        let key = KeyPair::generate()?;
        let signed = params.signed_by(&key, &issuer)?;
        let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(Leaf {
            key: CertifiedKey::new(vec![signed.der().clone()], any_supported_type(&private)?),
            validity,
            signed_by: self.certificate.clone(),
        })
    }
}

/// Error: a serving certificate cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// rcgen cannot generate the certificate.
    #[error(transparent)]
    Make(#[from] rcgen::Error),
    /// rustls rejects the key.
    #[error(transparent)]
    Use(#[from] rustls::Error),
}

impl Validity {
    /// Truncates both ends to whole seconds, because certificates have no fractions of a second.
    fn in_seconds(self) -> Validity {
        let whole = |time: Timestamp| Timestamp::from_second(time.as_second()).unwrap_or(time);
        Validity { from: whole(self.from), until: whole(self.until) }
    }
}

fn params(validity: Validity) -> CertificateParams {
    let time = |time: Timestamp| {
        // A time before 1970 becomes 1970: no certificate is older.
        let since = u64::try_from(time.as_second()).unwrap_or_default();
        date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(since)
    };
    let mut params = CertificateParams::default();
    params.not_before = time(validity.from);
    params.not_after = time(validity.until);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn lifetimes() -> Lifetimes {
        Lifetimes::default()
    }

    #[test]
    fn created_ca_is_read_back() {
        let created = Ca::create(Timestamp::now(), &lifetimes()).unwrap();
        let read = Ca::read(created.certificate().pem().as_bytes(), created.key_pem().as_bytes()).unwrap();
        assert_eq!(read.certificate(), created.certificate());
        let life = created.certificate().validity();
        assert_eq!(life.until.duration_since(life.from).as_secs(), 365 * 86_400 + 300);
    }

    #[test]
    fn damaged_ca_is_an_error_that_names_the_damage() {
        let now = Timestamp::now();
        let one = Ca::create(now, &lifetimes()).unwrap();
        let other = Ca::create(now, &lifetimes()).unwrap();
        let (pem, key) = (one.certificate().pem().to_owned(), one.key_pem());
        let read = |pem: &str, key: &str| Ca::read(pem.as_bytes(), key.as_bytes()).err();
        assert!(matches!(read(&pem, &other.key_pem()), Some(Unusable::OtherKey)));
        assert!(matches!(read(&pem, "no key"), Some(Unusable::Key(_))));
        assert!(matches!(read("", &key), Some(Unusable::Pem(_))));
        assert!(matches!(read(&pem[..pem.len() / 2], &key), Some(Unusable::Pem(_))));
        assert!(matches!(Ca::read(b"\xff", key.as_bytes()).err(), Some(Unusable::Text(_))));
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(read(garbage, &key), Some(Unusable::Certificate(_))));
    }

    #[test]
    fn leaf_is_trusted_through_its_ca_and_expires_with_it() {
        let now = Timestamp::now();
        let short = Lifetimes { ca: Duration::from_secs(3600), ..lifetimes() };
        let ca = Ca::create(now, &short).unwrap();
        let leaf = ca.sign("remora-webhook.remora-system.svc", now, &short).unwrap();
        assert_eq!(leaf.validity.until, ca.certificate().validity().until);

        let mut roots = rustls::RootCertStore::empty();
        roots.add(ca.certificate().der.clone()).unwrap();
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            rustls::client::WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
        let verify = |server: &str| {
            use rustls::client::danger::ServerCertVerifier;
            let time = Duration::from_secs(now.as_second().try_into().unwrap());
            verifier.verify_server_cert(
                &leaf.key.cert[0],
                &[],
                &server.to_owned().try_into().unwrap(),
                &[],
                rustls::pki_types::UnixTime::since_unix_epoch(time),
            )
        };
        assert!(verify("remora-webhook.remora-system.svc").is_ok());
        assert!(verify("remora-webhook.elsewhere.svc").is_err());
    }
}
