//! Arguments of the command `run`.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, builder::PossibleValuesParser};

use crate::{
    api::names::LEASE,
    controller::reconcile::SNAPSHOTS_MAX,
    injection::Defaults,
    source::fetch::{DOCUMENT_MAX, Origin, ProxyRule},
};

/// Reconcile FeatureEnvironments and inject the sidecar into pods.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Namespace of the operator itself. Its lease, its certificates and its self-check use this namespace.
    #[arg(long, env = "POD_NAMESPACE", default_value = "remora-system")]
    pub namespace: String,
    /// Name of this replica in the lease and in Events. Default: `remora-operator`. A random suffix makes it unique.
    #[arg(long, env = "POD_NAME")]
    pub instance: Option<String>,
    /// Name of the Lease that the replicas of this controller compete for. Two releases in one namespace need two Leases.
    #[arg(long, value_name = "NAME", default_value = LEASE, conflicts_with = "no_controller")]
    pub lease: String,
    /// Watch this namespace only (repeatable). The operator neither reads nor writes FeatureEnvironments in other
    /// namespaces. Default: all namespaces.
    #[arg(long = "watch-namespace", value_name = "NAME", conflicts_with = "no_controller")]
    pub watch_namespaces: Vec<String>,
    /// Do not run the controller: reconcile no FeatureEnvironment.
    #[arg(long)]
    pub no_controller: bool,
    /// Do not serve the admission webhook: inject no sidecar.
    #[arg(long, conflicts_with = "no_controller")]
    pub no_webhook: bool,
    /// Address and port on which the webhook listens for HTTPS.
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:8443")]
    pub webhook_listen: SocketAddr,
    /// Address and port on which the operator serves `/healthz`, `/readyz` and `/metrics` over HTTP.
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:8080")]
    pub admin_listen: SocketAddr,
    /// Address and port on which the controller accepts signed webhooks of Flagsmith over HTTP. Default: it accepts none.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "no_controller")]
    pub receiver_listen: Option<SocketAddr>,
    /// Container image of the sidecar. Required unless `--no-webhook` is set.
    #[arg(long, value_name = "IMAGE", required_unless_present = "no_webhook")]
    pub sidecar_image: Option<String>,
    /// Image pull policy of the sidecar's container.
    #[arg(long, value_name = "POLICY", default_value = "IfNotPresent", value_parser = PossibleValuesParser::new(["IfNotPresent", "Always", "Never"]))]
    pub sidecar_pull_policy: String,
    /// Options of sidecars whose pod and namespace have no annotation.
    #[command(flatten)]
    pub sidecar_defaults: Defaults,
    /// Name of the Service through which the API server calls the webhook.
    #[arg(long, value_name = "NAME", default_value = "remora-webhook")]
    pub webhook_service: String,
    /// Name of the MutatingWebhookConfiguration that the operator keeps its CA certificate in.
    #[arg(long, value_name = "NAME", default_value = "remora")]
    pub webhook_configuration: String,
    /// Name of the Secret that holds the CA of the webhook's certificates.
    #[arg(long, value_name = "NAME", default_value = "remora-webhook-authority")]
    pub certificate_secret: String,
    /// Serve the webhook with `tls.crt` and `tls.key` from this directory, and check every 5 s whether they changed.
    /// Default: the operator issues its own certificates and writes the CA to the MutatingWebhookConfiguration.
    #[arg(long, value_name = "DIRECTORY")]
    pub certificate_directory: Option<PathBuf>,
    /// Verify every 30 s by a dry run that a new pod gets its sidecar. The replica is ready after the first success.
    #[arg(long, conflicts_with = "no_controller")]
    pub self_check: bool,
    /// Evict pods that ask for a sidecar and have none, if a controller will replace them and the self-check succeeds.
    #[arg(long, requires = "self_check")]
    pub evict_uninjected: bool,
    /// Namespace that the webhook's registration excludes from injection (repeatable). The operator does not look
    /// for pods without a sidecar in it. Default: none.
    #[arg(long = "excluded-namespace", value_name = "NAME")]
    pub excluded_namespaces: Vec<String>,
    /// Origin (scheme, host and port) of a server that FeatureEnvironments may use as their source (repeatable). The
    /// server may be in a private network. Default: only Flagsmith's own service.
    #[arg(long = "allowed-origin", value_name = "URL")]
    pub allowed_origins: Vec<Origin>,
    /// Proxy for connections to servers with https, as a tunnel (CONNECT): a URL, or ORIGIN=URL for one origin, or
    /// ORIGIN=direct for none (repeatable). `,DIRECTORY` after the URL names a directory with the files `username` and
    /// `password`. Default: direct connections; environment variables have no effect.
    #[arg(long = "proxy", value_name = "[ORIGIN=]URL[,DIRECTORY]")]
    pub proxies: Vec<ProxyRule>,
    /// File with CA certificates in PEM that the controller trusts for every server, besides the public CAs and those of
    /// `caBundleRef`. A changed file is in use within a minute. Default: none.
    #[arg(long, value_name = "FILE", conflicts_with = "no_controller")]
    pub ca_bundle: Option<PathBuf>,
    /// Size of the largest document that the operator reads, in bytes, over all its pages. It is also the total size of
    /// the documents that the operator holds in memory at one time. The process that compiles a document may use 64 MiB
    /// plus three times this size.
    #[arg(long, value_name = "BYTES", default_value_t = DOCUMENT_MAX)]
    pub max_document_bytes: usize,
    /// Memory in bytes for the snapshots of all environments, which the controller keeps to restore objects that somebody
    /// deletes. Namespaces share it.
    #[arg(long, value_name = "BYTES", default_value_t = SNAPSHOTS_MAX)]
    pub max_snapshot_bytes: usize,
    /// Publish no Secrets: do not accept FeatureEnvironments with `spec.delivery.as: Secret`. The controller then needs no
    /// right to write Secrets.
    #[arg(long, conflicts_with = "no_controller")]
    pub no_secret_delivery: bool,
    /// Log level: error, warn, info, debug or trace, or directives such as `info,remora_operator=debug`.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
    /// Write the log as JSON, one object per line. Default: text.
    #[arg(long)]
    pub log_json: bool,
}
