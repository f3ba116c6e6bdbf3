//! Command `webhook`: serves the admission webhook.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, builder::PossibleValuesParser};

use super::process::{self, ProcessArguments};
use crate::injection::{self, Defaults, certificates, webhook};

/// Inject the sidecar into pods: serve the admission webhook.
#[derive(Debug, Args)]
pub struct Webhook {
    #[command(flatten)]
    pub(crate) process: ProcessArguments,
    /// Address and port on which the webhook listens for HTTPS.
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:8443")]
    webhook_listen: SocketAddr,
    /// Container image of the sidecar.
    #[arg(long, value_name = "IMAGE")]
    sidecar_image: String,
    /// Image pull policy of the sidecar's container.
    #[arg(long, value_name = "POLICY", default_value = "IfNotPresent", value_parser = PossibleValuesParser::new(["IfNotPresent", "Always", "Never"]))]
    sidecar_pull_policy: String,
    /// Options of sidecars whose pod and namespace have no annotation.
    #[command(flatten)]
    sidecar_defaults: Defaults,
    /// Name of the Service through which the API server calls the webhook.
    #[arg(long, value_name = "NAME", default_value = "remora-webhook")]
    webhook_service: String,
    /// Name of the MutatingWebhookConfiguration that the operator keeps its CA certificate in.
    #[arg(long, value_name = "NAME", default_value = "remora")]
    webhook_configuration: String,
    /// Name of the Secret that holds the CA of the webhook's certificates.
    #[arg(long, value_name = "NAME", default_value = "remora-webhook-authority")]
    certificate_secret: String,
    /// Serve the webhook with `tls.crt` and `tls.key` from this directory, and check every 5 s whether they changed.
    /// Default: the operator issues its own certificates and writes the CA to the MutatingWebhookConfiguration.
    #[arg(long, value_name = "DIRECTORY")]
    certificate_directory: Option<PathBuf>,
}

impl Webhook {
    /// Serves the webhook until SIGTERM or SIGINT, and for some seconds more, until every node knows that this replica is
    /// not ready.
    ///
    /// # Errors
    /// If two defaults of sidecars contradict each other, there is no usable cluster configuration, or a port cannot be
    /// served.
    pub fn run(self) -> anyhow::Result<()> {
        self.sidecar_defaults.check()?;
        process::run(&self.process, |process| {
            let ready = process.gate("webhook");
            let metrics = process.metrics.register_part(webhook::Metrics::register);
            let (client, stopping) = (process.client.clone(), process.stopping.clone());
            Ok(async { Ok(webhook::run(client, self.options(), metrics, ready, stopping).await?) })
        })
    }

    fn options(&self) -> webhook::Options {
        let namespace = &self.process.namespace;
        webhook::Options {
            listen: self.webhook_listen,
            inject: injection::Config {
                sidecar_image: self.sidecar_image.clone(),
                sidecar_pull_policy: self.sidecar_pull_policy.clone(),
                own_namespace: namespace.clone(),
                defaults: self.sidecar_defaults.clone(),
            },
            certificates: match &self.certificate_directory {
                Some(directory) => certificates::Source::Directory(directory.clone()),
                None => certificates::Source::SelfManaged(certificates::Names {
                    namespace: namespace.clone(),
                    service: self.webhook_service.clone(),
                    configuration: self.webhook_configuration.clone(),
                    secret: self.certificate_secret.clone(),
                }),
            },
        }
    }
}
