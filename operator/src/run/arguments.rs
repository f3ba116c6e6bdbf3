use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, builder::PossibleValuesParser};

use crate::source::fetch::{DOCUMENT_MAX, Origin};

/// Reconcile FeatureEnvironments, and put the sidecar into pods.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The operator's own namespace.
    #[arg(long, env = "POD_NAMESPACE", default_value = "remora-system")]
    pub namespace: String,
    /// This replica's name, in the lease and in Events.
    #[arg(long, env = "POD_NAME")]
    pub instance: Option<String>,
    /// Reconcile in this namespace only: others are neither read nor written. Repeatable; in all namespaces without it.
    #[arg(long = "watch-namespace", value_name = "NAME", conflicts_with = "no_controller")]
    pub watch_namespaces: Vec<String>,
    /// Do not reconcile.
    #[arg(long)]
    pub no_controller: bool,
    /// Do not answer admission requests.
    #[arg(long, conflicts_with = "no_controller")]
    pub no_webhook: bool,
    /// Where the webhook listens.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    pub webhook_listen: SocketAddr,
    /// Where health and metrics are served.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    pub admin_listen: SocketAddr,
    /// The sidecar's image.
    #[arg(long, value_name = "IMAGE", required_unless_present = "no_webhook")]
    pub sidecar_image: Option<String>,
    /// When the sidecar's image is pulled.
    #[arg(long, value_name = "POLICY", default_value = "IfNotPresent", value_parser = PossibleValuesParser::new(["IfNotPresent", "Always", "Never"]))]
    pub sidecar_pull_policy: String,
    /// The Service through which the API server calls the webhook.
    #[arg(long, value_name = "NAME", default_value = "remora-webhook")]
    pub webhook_service: String,
    /// The MutatingWebhookConfiguration.
    #[arg(long, value_name = "NAME", default_value = "remora")]
    pub webhook_configuration: String,
    /// The Secret with the authority that signs the webhook's certificates.
    #[arg(long, value_name = "NAME", default_value = "remora-webhook-authority")]
    pub certificate_secret: String,
    /// Serve the webhook with the `tls.crt` and `tls.key` of this directory, and look every few seconds whether they have
    /// changed, instead of making certificates and telling the API server whom to trust.
    #[arg(long, value_name = "DIRECTORY")]
    pub certificate_directory: Option<PathBuf>,
    /// Prove twice a minute, by a dry run, that a pod gets its sidecar; be ready after the first success.
    #[arg(long, conflicts_with = "no_controller")]
    pub self_check: bool,
    /// Evict pods that ask for a sidecar and have none, where a controller makes others, while the self-check succeeds.
    #[arg(long, requires = "self_check")]
    pub evict_uninjected: bool,
    /// A namespace that the registration leaves out. Repeatable.
    #[arg(long = "excluded-namespace", value_name = "NAME")]
    pub excluded_namespaces: Vec<String>,
    /// A server that FeatureEnvironments may name: scheme, host and port. It may be in a private network. Repeatable; only
    /// Flagsmith's own service without it.
    #[arg(long = "allowed-origin", value_name = "URL")]
    pub allowed_origins: Vec<Origin>,
    /// The largest document that is read, in bytes, with all its pages. Documents of so many bytes in all are held at one time; the
    /// process that compiles one may take 64 MiB and three times as much memory.
    #[arg(long, value_name = "BYTES", default_value_t = DOCUMENT_MAX)]
    pub max_document_bytes: usize,
    /// error, warn, info, debug or trace, or directives as in `info,remora_operator=debug`.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
    /// Log in JSON.
    #[arg(long)]
    pub log_json: bool,
}
