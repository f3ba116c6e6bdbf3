//! Facts that `check` has read, as plain values.

use jiff::Timestamp;

use crate::{
    api::{FeatureEnvironment, NamespacedName},
    ask::failure::Failure,
};

/// Everything that was read.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) installation: Installation,
    pub(super) environments: Vec<FeatureEnvironment>,
    pub(super) workloads: Workloads,
    /// Parts that could not be read.
    pub(super) unread: Vec<Unread>,
}

/// A part that could not be read.
#[derive(Debug)]
pub(super) struct Unread {
    /// Part that could therefore not be checked.
    pub(super) part: &'static str,
    pub(super) failure: Failure,
}

/// Remora's own objects.
#[derive(Debug, Default)]
pub(super) struct Installation {
    /// Namespace in which Remora's pods were looked for.
    pub(super) namespace: String,
    /// Version of the API server, such as `v1.34.1`.
    pub(super) api_server: Option<String>,
    /// `None` if they could not be read.
    pub(super) deployments: Option<Vec<Deployed>>,
    /// Lease of each controller. `None` if one could not be read.
    pub(super) leases: Option<Vec<LeaseState>>,
    /// `None` if the registrations could not be read.
    pub(super) admission: Option<Vec<Registration>>,
    /// `None` if no webhook is installed, or if they could not be read.
    pub(super) serving: Option<Serving>,
    pub(super) dry_run: Option<DryRun>,
    /// `None` if no controller is installed, if there is no environment, or if they could not be read.
    pub(super) rights: Option<Rights>,
}

impl Installation {
    /// Returns the image of the sidecar that new pods get. An admission policy adds it without a Deployment, and another
    /// policy of the cluster may change it, so the dry run precedes the webhook's argument. `None` if neither is known.
    pub(super) fn sidecar_image(&self) -> Option<&str> {
        let admitted = match &self.dry_run {
            Some(DryRun::Injected { image, .. }) => image.as_deref(),
            _ => None,
        };
        let mut given = self.deployments.iter().flatten().filter_map(|deployment| deployment.sidecar_image.as_deref());
        admitted.or_else(|| given.next())
    }
}

/// Rights of the controller in the namespaces of environments.
#[derive(Clone, Debug)]
pub(super) struct Rights {
    /// The controller's account.
    pub(super) account: NamespacedName,
    /// Number of namespaces that were checked.
    pub(super) namespaces: usize,
    pub(super) denied: Vec<Denied>,
}

/// A right that the controller needs and does not have.
#[derive(Clone, Debug)]
pub(super) struct Denied {
    pub(super) namespace: String,
    pub(super) resource: String,
    pub(super) verb: &'static str,
}

/// A Deployment of the chart.
#[derive(Clone, Debug, Default)]
pub(super) struct Deployed {
    pub(super) name: String,
    /// `controller` or `webhook`.
    pub(super) component: String,
    pub(super) version: String,
    pub(super) wanted: i32,
    pub(super) ready: i32,
    /// Name of the pods' ServiceAccount. `None` for the namespace's default.
    pub(super) account: Option<String>,
    /// Name of the Secret with the webhook's certificate. `None` if each replica signs its own.
    pub(super) certificate_secret: Option<String>,
    /// Name of the controller's Lease. `None` for the default.
    pub(super) lease: Option<String>,
    /// Image of the sidecar that the webhook adds. `None` for other parts.
    pub(super) sidecar_image: Option<String>,
}

/// A Lease by its name.
#[derive(Clone, Debug)]
pub(super) struct LeaseState {
    pub(super) name: String,
    /// `None` if the Lease does not exist.
    pub(super) holder: Option<Holder>,
}

/// Holder of a controller's Lease.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    /// Name of the replica. `None` if the lease was given back.
    pub(super) name: Option<String>,
    pub(super) renewed: Option<Timestamp>,
}

/// A registration with the API server's admission.
#[derive(Clone, Debug)]
pub(super) struct Registration {
    /// Kind and name.
    pub(super) object: String,
    /// Certificates that the API server trusts, by their expiry. Empty for a policy.
    pub(super) certificates: Vec<Timestamp>,
    /// True if the API server calls a server, so it needs certificates.
    pub(super) is_webhook: bool,
    pub(super) fails_closed: bool,
    /// The trusted certificates as PEM.
    pub(super) bundle: Vec<u8>,
    /// Name of the server that the API server connects to.
    pub(super) server: Option<String>,
}

/// The certificates with which the webhook answers the API server.
#[derive(Clone, Debug)]
pub(super) enum Serving {
    /// Another program writes the certificate into a Secret.
    Given(Given),
    /// Each replica signs its own certificate.
    Own(Vec<Replica>),
}

/// A certificate in a Secret.
#[derive(Clone, Debug)]
pub(super) struct Given {
    /// Namespace and name of the Secret.
    pub(super) secret: String,
    /// Name of the server that the API server connects to.
    pub(super) server: String,
    /// `None` if the Secret does not exist or has no certificate.
    pub(super) leaf: Option<Leaf>,
}

/// A serving certificate.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) names: Vec<String>,
    pub(super) issuer: String,
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
    /// Why the API server does not accept the certificate. `None` if it does.
    pub(super) fault: Option<Fault>,
}

/// Why the API server does not accept a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The certificate is expired, or not valid yet.
    Dates,
    /// The certificate is for other names.
    Name,
    /// No certificate of the bundle verifies it.
    Untrusted,
    /// Another reason.
    Other(String),
}

/// A replica of the webhook that signs its own certificate.
#[derive(Clone, Debug, Default)]
pub(super) struct Replica {
    pub(super) pod: String,
    /// Expiry of its certificate. `None` before the first one.
    pub(super) certificate: Option<Timestamp>,
    /// Expiry of the CA that signed it.
    pub(super) authority: Option<Timestamp>,
    /// Number of failed attempts to renew or register certificates.
    pub(super) failures: u64,
    /// Why the replica could not be asked.
    pub(super) problem: Option<String>,
}

/// Outcome of the dry run of a pod that requests flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DryRun {
    /// The pod got its sidecar.
    Injected {
        /// Namespace of the pod.
        namespace: String,
        /// Image of the sidecar.
        image: Option<String>,
    },
    /// The pod was admitted without a sidecar.
    NotInjected {
        /// Namespace of the pod.
        namespace: String,
    },
    /// The pod was refused.
    Refused {
        /// Namespace of the pod.
        namespace: String,
        /// Answer of the API server.
        message: String,
    },
}

/// Pods and the objects around them.
#[derive(Debug, Default)]
pub(super) struct Workloads {
    pub(super) pods: Vec<Requesting>,
    /// Names of all FeatureEnvironments.
    pub(super) environments: Vec<NamespacedName>,
    pub(super) quotas: Vec<Quota>,
    /// NetworkPolicies that select ingress, in namespaces with pods that do not answer the controller.
    pub(super) policies: Vec<NamespacedName>,
}

/// A pod that requests flags.
#[derive(Clone, Debug, Default)]
pub(super) struct Requesting {
    pub(super) namespace: String,
    pub(super) name: String,
    /// Names in the annotation `remora.dev/inject`.
    pub(super) environments: Vec<String>,
    pub(super) has_sidecar: bool,
    /// Image of the sidecar.
    pub(super) image: Option<String>,
    /// Kind, namespace and name of the object that creates the pod, or of the pod itself.
    pub(super) workload: String,
    /// Why the sidecar does not run, if it does not.
    pub(super) waits: Option<String>,
    pub(super) restarts: i32,
}

/// Use of a quota for objects that hold snapshots.
#[derive(Clone, Debug)]
pub(super) struct Quota {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) resource: String,
    pub(super) used: i64,
    pub(super) hard: i64,
}
