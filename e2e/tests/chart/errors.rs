//! The chart's own errors name the value, the problem, and what to write.

use serde_json::{Value, json};

use super::{at, merged, render_as};

#[test]
fn errors_name_value_fault_and_remedy() {
    let certificates = |value: Value| at("webhook.certificates", &value);
    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (values, message) in [
        (
            at("controller.maxSnapshotBytes", &Value::Null),
            "controller.maxSnapshotBytes is missing, as after an upgrade with --reuse-values from an older chart: upgrade with --reset-then-reuse-values",
        ),
        (
            at("sidecar", &Value::Null),
            "sidecar.await is missing, as after an upgrade with --reuse-values from an older chart: upgrade with --reset-then-reuse-values",
        ),
        (
            at("webhook.replicas", &Value::Null),
            "webhook.replicas is missing, as after an upgrade with --reuse-values from an older chart: upgrade with --reset-then-reuse-values. If \
             your values set it, or its section, to null, remove that line",
        ),
        (
            at("sidecar.resources", &json!({"requests": {"cpu": "0.3"}, "limits": {"cpu": "250m"}})),
            "sidecar.resources.requests.cpu is 0.3, above sidecar.resources.limits.cpu, which is 250m: lower the request, or raise the limit",
        ),
        (
            at("controller.serviceAccount.create", &json!(false)),
            "controller.serviceAccount.name is empty, and controller.serviceAccount.create is false: write the name of an account",
        ),
        (
            certificates(json!({"source": "CertManager"})),
            "webhook.certificates.issuerRef.name is missing, and webhook.certificates.source is CertManager: write the name",
        ),
        (
            certificates(json!({"source": "Secret", "caBundle": pem})),
            "webhook.certificates.secretName is empty, and webhook.certificates.source is Secret: write the name of a Secret",
        ),
        (
            certificates(json!({"source": "Secret", "secretName": "mine"})),
            "webhook.certificates.caBundle is empty, and webhook.certificates.source is Secret: write the certificate of the CA",
        ),
    ] {
        let error = render_as("remora", &values).unwrap_err();
        assert!(error.contains(message) && !error.contains('?'), "{error}");
        if message.starts_with("sidecar") {
            let by_policies = merged(values, &json!({"injection": {"by": "AdmissionPolicy"}}));
            let error = render_as("remora", &by_policies).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
