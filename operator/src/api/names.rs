//! Names that the parts of Remora share: labels, annotations, objects, volumes.
//!
//! The name of a published object is a pure function of environment, format and file, so the webhook writes a pod's
//! volumes without a request.

use std::{collections::BTreeMap, fmt, str::FromStr};

pub use remora_compile::name::{ENVIRONMENT_MAX, InvalidEnvironmentName};
use remora_compile::{digest::Digest, name::environment_name};
use remora_snapshot::files;

use super::Revision;

/// API group, and prefix of all labels and annotations.
pub const GROUP: &str = "remora.dev";

/// Field manager of all objects that the controller applies.
pub const FIELD_MANAGER: &str = "remora-controller";

/// Name of the controller in Events.
pub const CONTROLLER: &str = "remora-controller";

/// Name of the controller's Lease, unless the option `--lease` names another one.
pub const LEASE: &str = "remora-controller";

/// Format of the snapshots that this version publishes and that its sidecars read.
pub const FORMAT: Format = Format(remora_snapshot::FORMAT_MAJOR);

/// Type of the Secrets that carry snapshots. The chart's admission policy lets the controller write no other type.
pub const SNAPSHOT_TYPE: &str = "remora.dev/snapshot";

/// Largest length of a revision in an annotation, in bytes. Longer texts are not a revision of any format.
pub(crate) const REVISION_MAX: usize = 64;
/// Largest length of the text that notifies a pod, in bytes: a revision, and the number of a repeated notification.
pub(crate) const NOTIFICATION_MAX: usize = REVISION_MAX + 8;

/// Keys of annotations.
pub mod annotation {
    /// On pods: names of the environments to serve, separated by commas, or `false`, which opts the pod out.
    pub const INJECT: &str = "remora.dev/inject";
    /// On pods: the sidecar's data port. The admin port is the next port.
    pub const PORT: &str = "remora.dev/port";
    /// On pods: the sidecar's CPU request.
    pub const CPU_REQUEST: &str = "remora.dev/cpu-request";
    /// On pods: the sidecar's memory request.
    pub const MEMORY_REQUEST: &str = "remora.dev/memory-request";
    /// On pods: the sidecar's CPU limit.
    pub const CPU_LIMIT: &str = "remora.dev/cpu-limit";
    /// On pods: the sidecar's memory limit.
    pub const MEMORY_LIMIT: &str = "remora.dev/memory-limit";
    /// On pods: longest time that the application waits for its first snapshot, at most 1 h.
    pub const AWAIT: &str = "remora.dev/await";
    /// On pods: if true, the sidecar also serves flags on a Unix socket that all containers share.
    pub const UNIX_SOCKET: &str = "remora.dev/unix-socket";
    /// On pods: the sidecar's log level.
    pub const LOG_LEVEL: &str = "remora.dev/log-level";
    /// On pods: if true, the sidecar's log is JSON, and if false, text.
    pub const LOG_JSON: &str = "remora.dev/log-json";
    /// On pods: environment variables that the application's containers get, separated by commas, or `none`.
    pub const ENV: &str = "remora.dev/env";
    /// On pods: flags that the pod's sidecar answers with another state or value, as JSON. Only in namespaces with the
    /// label [`super::label::ALLOW_OVERRIDES`].
    pub const OVERRIDES: &str = "remora.dev/overrides";
    /// On pods: name of a Secret of the namespace. Its key [`super::sidecar::OVERRIDE_KEY`] signs headers by which
    /// requests override flags for themselves. Only in namespaces with the label [`super::label::ALLOW_OVERRIDES`].
    pub const OVERRIDE_KEY: &str = "remora.dev/override-key";
    /// On injected pods: description of the injected parts as JSON, for people.
    pub const INJECTED: &str = "remora.dev/injected";
    /// On the core object: revision of the snapshot. On pods, with the suffix `.ENVIRONMENT`: the revision that the pod
    /// should serve, followed by a space and the number of notifications if there was more than one.
    pub const REVISION: &str = "remora.dev/revision";
    /// On the core object of a core in parts: set of objects that holds the parts, `a` or `b`.
    pub const CORE_SET: &str = "remora.dev/core-set";
    /// On the core object: time of publication, summary of the document, digests of the files, changed flags, and the earlier
    /// revisions that are kept, as JSON. The guard compares the next document with the summary.
    pub const RECORD: &str = "remora.dev/record";
    /// On the CustomResourceDefinition: version of Remora that it belongs to.
    pub const VERSION: &str = "remora.dev/version";
    /// On FeatureEnvironments: the held-back revision that is approved for publication.
    pub const CONFIRM: &str = "remora.dev/confirm";
    /// On FeatureEnvironments: request for a fetch now. Each new value is one request.
    pub const REFRESH: &str = "remora.dev/refresh";
    /// On published cores and overrides objects: number of overrides files of the revision.
    pub const OVERRIDES_FILES: &str = "remora.dev/overrides-files";
    /// On published objects: SHA-256 of the file that the object carries.
    pub const CONTENT: &str = "remora.dev/content";
}

/// Names of the parts that the webhook adds to a pod.
pub mod sidecar {
    /// Name of the sidecar's container.
    pub const CONTAINER: &str = "remora";
    /// Directory with one volume per environment.
    pub const SNAPSHOTS: &str = "/var/run/remora";
    /// Name of the empty volume that keeps the service account's token out of the sidecar's container. No environment's
    /// volume has this name.
    pub const NO_TOKEN_VOLUME: &str = "no-token-remora";
    /// Name of the volume with the socket. No environment's volume has this name.
    pub const SOCKET_VOLUME: &str = "socket-remora";
    /// Mount path of the socket's volume in every container.
    pub const SOCKET_DIRECTORY: &str = "/var/run/remora-socket";
    /// Path of the socket.
    pub const SOCKET: &str = "/var/run/remora-socket/remora.sock";
    /// Default of the data port. The admin port is the next port.
    pub const DATA_PORT: u16 = 4777;
    /// Option of the sidecar's program with the flags that it overrides.
    pub const OVERRIDES_OPTION: &str = "--overrides";
    /// Option of the sidecar's program with the file of the key that signs overrides.
    pub const OVERRIDE_KEY_OPTION: &str = "--override-key";
    /// Name of the volume with this key. No environment's volume has this name.
    pub const OVERRIDE_KEY_VOLUME: &str = "override-key-remora";
    /// Mount path of this volume in the sidecar. No other container has it.
    pub const OVERRIDE_KEY_DIRECTORY: &str = "/var/run/remora-override-key";
    /// Key of the Secret, and name of the file.
    pub const OVERRIDE_KEY: &str = "key";
    /// Name of the admin port.
    pub const ADMIN_PORT: &str = "remora-admin";
    /// Environment variable with the address of an OFREP server, which OpenFeature's providers read.
    pub const OFREP_ENDPOINT: &str = "OFREP_ENDPOINT";
    /// Environment variable with the address of Flagsmith's API, which applications read.
    pub const FLAGSMITH_API_URL: &str = "FLAGSMITH_API_URL";

    /// Returns the admin port among the named ports of the sidecar's container.
    pub fn admin_port<'a>(ports: impl IntoIterator<Item = (Option<&'a str>, i32)>) -> Option<u16> {
        let admin = ports.into_iter().find(|(name, _)| *name == Some(ADMIN_PORT));
        admin.and_then(|(_, number)| u16::try_from(number).ok())
    }
}

/// Keys and values of labels.
pub mod label {
    /// On published objects and on the webhook's objects.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// Value of [`MANAGED_BY`].
    pub const REMORA: &str = "remora";
    /// On published objects: name of the environment that they belong to.
    pub const ENVIRONMENT: &str = "remora.dev/environment";
    /// On published objects: major version of the snapshot format.
    pub const FORMAT: &str = "remora.dev/format";
    /// On injected pods, with the value [`INJECTED`].
    pub const SIDECAR: &str = "remora.dev/sidecar";
    /// Value of [`SIDECAR`].
    pub const INJECTED: &str = "injected";
    /// On namespaces, with the value [`DISABLED`]: no pod of the namespace is injected.
    pub const ADMISSION: &str = "remora.dev/admission";
    /// Value of [`ADMISSION`].
    pub const DISABLED: &str = "disabled";
    /// On namespaces, with the value `true`: pods of the namespace may override flags.
    pub const ALLOW_OVERRIDES: &str = "remora.dev/allow-overrides";
    /// On Secrets, with the value `true`: the owner of the Secret allows Remora to read it.
    pub const CONSENT: &str = "remora.dev/environment-key";
}

/// True if an object's labels have this value under this key.
pub fn has_label(labels: Option<&BTreeMap<String, String>>, key: &str, value: &str) -> bool {
    labels.and_then(|labels| labels.get(key)).is_some_and(|found| found == value)
}

/// Major version of a snapshot format, as it appears in names and labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Format(u16);

impl Format {
    /// Lists the formats of earlier versions, latest first.
    pub fn earlier(self) -> impl Iterator<Item = Self> {
        (1..self.0).rev().map(Self)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// Form of the name of a ConfigMap or Secret: a DNS-1123 subdomain.
pub const OBJECT_NAME: &str = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$";
/// Largest length of such a name in bytes.
const OBJECT_NAME_MAX: usize = 253;

/// True if the text is a DNS-1123 subdomain: it has the form [`OBJECT_NAME`], and each part between its dots has this form.
/// Any other text in the path of a request to the API server may make it another request, for example a list.
pub fn is_object_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label =
        |label: &str| label.chars().all(|c| plain(c) || c == '-') && label.starts_with(plain) && label.ends_with(plain);
    text.len() <= OBJECT_NAME_MAX && text.split('.').all(is_label)
}

/// Name of a FeatureEnvironment: a DNS-1123 label of at most [`ENVIRONMENT_MAX`] characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnvironmentName(String);

impl EnvironmentName {
    /// Returns the name as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of the object that carries `file` in the current format.
    pub fn object(&self, file: &str) -> String {
        self.object_in(FORMAT, file)
    }

    /// Returns the name of the object that carries `file` in `format`.
    pub fn object_in(&self, format: Format, file: &str) -> String {
        format!("{}{format}-{file}", self.prefix())
    }

    /// Parses format and file from the name of an object. `None` if the object is not one of this environment.
    pub fn format_and_file<'a>(&self, object: &'a str) -> Option<(Format, &'a str)> {
        let (major, file) = object.strip_prefix(&self.prefix())?.strip_prefix('v')?.split_once('-')?;
        Some((Format(major.parse().ok()?), file))
    }

    fn prefix(&self) -> String {
        format!("remora-{self}-")
    }

    /// Returns the name of the object that keeps a file of an earlier revision. Revisions share the object of an
    /// unchanged file, except the core, whose object is found by the revision.
    pub fn past_object(&self, file: &str, revision: &Revision, digest: &Digest) -> String {
        let name =
            if file == files::CORE { format!("{revision}-{file}") } else { format!("{}-{file}", digest.short()) };
        self.past_prefix() + &name
    }

    /// Returns the common prefix of the names of objects that keep earlier revisions.
    pub fn past_prefix(&self) -> String {
        self.object("history-")
    }

    /// Returns the key of the annotation with the revision of this environment that a pod should serve.
    pub fn revision_annotation(&self) -> String {
        format!("{}.{self}", annotation::REVISION)
    }

    /// Returns the revision in the annotation that notifies a pod.
    #[must_use]
    pub fn notified_revision<'a>(&self, annotations: &'a BTreeMap<String, String>) -> Option<&'a str> {
        notified_revision(annotations.get(&self.revision_annotation())?)
    }

    /// Returns the name of the pod's volume for this environment.
    pub fn volume(&self) -> String {
        format!("remora-{self}")
    }
}

/// Returns the revision in the text of a notification, which the number of a repeated notification may follow. The text in
/// a pod that was not notified may be any.
#[must_use]
pub fn notified_revision(text: &str) -> Option<&str> {
    let revision = text.split_whitespace().next()?;
    (revision.len() <= REVISION_MAX).then_some(revision)
}

impl fmt::Display for EnvironmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for EnvironmentName {
    type Err = InvalidEnvironmentName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        environment_name(name).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_name_is_no_other_part_of_url() {
        for name in ["a", "0", "flags", "a.b-c.d", &"a".repeat(OBJECT_NAME_MAX)] {
            assert!(is_object_name(name), "{name}");
        }
        for name in [
            "",
            "?x",
            "a?watch=1",
            "a/b",
            "..",
            "a..b",
            "a.-b",
            "a.",
            "-a",
            "A",
            "a%2f",
            "a#b",
            "ä",
            &"a".repeat(OBJECT_NAME_MAX + 1),
        ] {
            assert!(!is_object_name(name), "{name}");
        }
    }

    #[test]
    fn object_and_volume_names_fit_what_kubernetes_allows() {
        let longest: EnvironmentName = "x".repeat(40).parse().unwrap();
        assert!(longest.object(&files::overrides(99)).len() <= 253);
        assert!(longest.volume().len() <= 63);
        let short: EnvironmentName = "storefront".parse().unwrap();
        assert_eq!(short.object(files::CORE), "remora-storefront-v3-core");
        assert_eq!(short.object(&files::overrides(3)), "remora-storefront-v3-overrides-03");
        let (revision, digest) = (&Revision::new("0123456789ab"), &Digest::of(b""));
        assert_eq!(short.past_object(files::CORE, revision, digest), "remora-storefront-v3-history-0123456789ab-core");
        assert_eq!(
            short.past_object(&files::overrides(3), revision, digest),
            "remora-storefront-v3-history-e3b0c44298fc1c14-overrides-03"
        );
        assert!(longest.past_object(&files::overrides(99), revision, digest).len() <= 253);
    }

    #[test]
    fn object_name_gives_format_and_file() {
        let environment: EnvironmentName = "storefront".parse().unwrap();
        let read = |object: &str| {
            environment.format_and_file(object).map(|(format, file)| (format.to_string(), file.to_owned()))
        };
        let told = |format: &str, file: &str| Some((format.to_owned(), file.to_owned()));
        assert_eq!(read(&environment.object(&files::overrides(3))), told(&FORMAT.to_string(), "overrides-03"));
        assert_eq!(read("remora-storefront-v1-core"), told("v1", "core"));
        for other in [
            "remora-storefront-core",
            "remora-storefront-v-core",
            "remora-storefront-vx-core",
            "remora-store-v1-core",
            "v1-core",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
        assert!(FORMAT.earlier().all(|earlier| earlier < FORMAT));
    }
}
