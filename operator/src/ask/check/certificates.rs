//! Findings about the certificates with which the webhook answers the API server. Pure.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    facts::{Fault, Given, Leaf, Registration, Replica, Serving},
    finding::{Finding, Level},
};

/// Time before the expiry of a certificate from which on it is a fault that nothing has renewed it.
const EXPIRES_SOON: Duration = Duration::from_secs(24 * 3600);

/// Derives the findings.
pub(super) fn findings(serving: &Serving, registrations: &[Registration], now: Timestamp) -> Vec<Finding> {
    let trusted: Vec<Timestamp> = registrations.iter().flat_map(|own| own.certificates.iter().copied()).collect();
    match serving {
        Serving::Given(given) => vec![of_secret(given, now)],
        Serving::Own(replicas) => replicas.iter().map(|replica| of_replica(replica, &trusted, now)).collect(),
    }
}

/// Returns true if a certificate is valid for less than a day.
pub(super) fn expires_soon(until: Timestamp, now: Timestamp) -> bool {
    Duration::try_from(until.duration_since(now)).unwrap_or_default() < EXPIRES_SOON
}

fn of_secret(given: &Given, now: Timestamp) -> Finding {
    let Given { secret, server, leaf } = given;
    let subject = format!("webhook's certificate, Secret {secret}");
    let Some(Leaf { names, issuer, from, until, fault }) = leaf else {
        let remedy = "let cert-manager or the administrator write a certificate and its key (tls.crt, tls.key) into it";
        return Finding::new(Level::Error, subject, "it has no certificate", remedy);
    };
    let message = format!("for {}, issued by {issuer:?}, valid from {from} until {until}", names.join(", "));
    let error = |wrong: &str, remedy: &str| {
        Finding::new(Level::Error, subject.clone(), format!("{wrong}: it is {message}"), remedy)
    };
    match fault {
        Some(Fault::Dates) => error(
            "it is not valid now",
            "renew the certificate, or see why cert-manager did not: kubectl describe certificate in that namespace",
        ),
        Some(Fault::Name) => {
            error(&format!("it is not for {server}"), "issue it for that name, which the API server connects to")
        }
        Some(Fault::Untrusted) => error(
            "the CA bundle of the registration does not verify it",
            "set webhook.certificates.caBundle to the certificate of the CA that issued it, or see cert-manager's CA injector",
        ),
        Some(Fault::Other(reason)) => {
            error(&format!("the API server does not accept it ({reason})"), "issue it again, for server authentication")
        }
        None if expires_soon(*until, now) => {
            let remedy = "see why nothing has renewed it: the issuer should have done so long ago";
            Finding::new(Level::Warning, subject, format!("it expires soon: it is {message}"), remedy)
        }
        None => Finding::ok(subject, format!("{message}; the CA bundle of the registration verifies it")),
    }
}

fn of_replica(replica: &Replica, trusted: &[Timestamp], now: Timestamp) -> Finding {
    let Replica { pod, certificate, authority, failures, problem } = replica;
    let subject = format!("webhook's certificate, pod {pod}");
    let log = format!("kubectl logs {pod} in Remora's namespace says why");
    if let Some(problem) = problem {
        return Finding::new(Level::Unknown, subject, format!("not checked: {problem}"), "");
    }
    let Some(until) = certificate else {
        return Finding::new(Level::Error, subject, "it has no certificate yet", log);
    };
    if *until <= now {
        return Finding::new(Level::Error, subject, format!("it expired at {until}"), log);
    }
    if let Some(authority) = authority.filter(|authority| !trusted.contains(authority)) {
        let message = format!("its CA, which expires at {authority}, is not in the CA bundle of the registration");
        let remedy = format!("the webhook registers its CA within seconds: if this stays, {log}");
        return Finding::new(Level::Error, subject, message, remedy);
    }
    let message = format!("valid until {until}, and its CA is in the CA bundle of the registration");
    match (expires_soon(*until, now), failures) {
        (true, _) => Finding::new(Level::Warning, subject, format!("it expires soon: {message}"), log),
        (false, 0) => Finding::ok(subject, message),
        (false, failures) => Finding::new(
            Level::Note,
            subject,
            format!("{message}; {failures} attempts to renew or register failed"),
            log,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn each_fault_of_given_certificate_has_its_remedy() {
        let level = |fault: Option<Fault>, until| {
            let leaf =
                Leaf { names: vec!["a.b.svc".to_owned()], issuer: "CN=x".to_owned(), from: at(-1), until, fault };
            let given =
                Given { secret: "remora-system/tls".to_owned(), server: "a.b.svc".to_owned(), leaf: Some(leaf) };
            let finding = of_secret(&given, at(0));
            assert_eq!(finding.level == Level::Ok, finding.remedy.is_empty(), "{finding:?}");
            assert!(finding.message.contains("a.b.svc") && finding.message.contains("CN=x"), "{finding:?}");
            (finding.level, finding.message)
        };
        assert_eq!(level(None, at(1_000_000)).0, Level::Ok);
        assert_eq!(level(None, at(3600)).0, Level::Warning);
        for (fault, says) in [
            (Fault::Dates, "not valid now"),
            (Fault::Name, "not for a.b.svc"),
            (Fault::Untrusted, "does not verify it"),
            (Fault::Other("odd".to_owned()), "(odd)"),
        ] {
            let (level, message) = level(Some(fault), at(1_000_000));
            assert!(level == Level::Error && message.contains(says), "{message}");
        }
        let empty = Given { secret: "a/b".to_owned(), server: String::new(), leaf: None };
        assert_eq!(of_secret(&empty, at(0)).level, Level::Error);
    }

    #[test]
    fn certificate_of_replica_is_judged_by_its_dates_and_its_ca() {
        let replica = |certificate, authority, failures| Replica {
            pod: "web".to_owned(),
            certificate,
            authority,
            failures,
            problem: None,
        };
        let level = |replica: &Replica| of_replica(replica, &[at(9_000_000)], at(0)).level;
        let good = replica(Some(at(600_000)), Some(at(9_000_000)), 0);
        assert_eq!(level(&good), Level::Ok);
        assert_eq!(level(&Replica { failures: 2, ..good.clone() }), Level::Note);
        assert_eq!(level(&Replica { certificate: Some(at(60)), ..good.clone() }), Level::Warning);
        assert_eq!(level(&Replica { certificate: Some(at(-60)), ..good.clone() }), Level::Error);
        assert_eq!(level(&Replica { certificate: None, ..good.clone() }), Level::Error);
        assert_eq!(level(&Replica { authority: Some(at(8_000_000)), ..good.clone() }), Level::Error);
        assert_eq!(level(&Replica { problem: Some("late".to_owned()), ..good }), Level::Unknown);
    }
}
