//! Every name that the parts of Remora share: labels, annotations, objects, volumes.
//!
//! Names of published objects are a pure function of environment, format and file, so that the webhook writes a pod's
//! volumes without asking anybody.

use std::{fmt, str::FromStr};

use remora_snapshot::files;

/// The API group, and the prefix of every label and annotation.
pub const GROUP: &str = "remora.dev";

/// The field manager of everything that the controller applies.
pub const FIELD_MANAGER: &str = "remora-controller";

/// The name of the controller in Events.
pub const CONTROLLER: &str = "remora-controller";

/// The format of what this version publishes, and of what its sidecars read.
pub const FORMAT: Format = Format(remora_snapshot::FORMAT_MAJOR);

/// The type of Secrets that carry snapshots. The chart's admission policy lets the controller write no other.
pub const SNAPSHOT_TYPE: &str = "remora.dev/snapshot";

/// The longest name of an environment: names of objects and volumes are made of it.
pub const ENVIRONMENT_MAX: usize = 40;

/// Keys of annotations.
pub mod annotation {
    /// On pods: the environments to serve, separated by commas.
    pub const INJECT: &str = "remora.dev/inject";
    /// On pods: the sidecar's data port.
    pub const PORT: &str = "remora.dev/port";
    /// On pods: the sidecar's CPU request.
    pub const CPU_REQUEST: &str = "remora.dev/cpu-request";
    /// On pods: the sidecar's memory request.
    pub const MEMORY_REQUEST: &str = "remora.dev/memory-request";
    /// On pods: the sidecar's CPU limit.
    pub const CPU_LIMIT: &str = "remora.dev/cpu-limit";
    /// On pods: the sidecar's memory limit.
    pub const MEMORY_LIMIT: &str = "remora.dev/memory-limit";
    /// On pods: how long the application waits for its first snapshot.
    pub const AWAIT: &str = "remora.dev/await";
    /// On pods: whether flags are answered on a socket, too, that all containers share.
    pub const UNIX_SOCKET: &str = "remora.dev/unix-socket";
    /// On pods: the sidecar's log level.
    pub const LOG_LEVEL: &str = "remora.dev/log-level";
    /// On pods: whether the application's containers get environment variables.
    pub const ENV: &str = "remora.dev/env";
    /// On injected pods: what was added, as JSON, for people.
    pub const INJECTED: &str = "remora.dev/injected";
    /// On the core ConfigMap: the revision of the snapshot. On pods, with a dot and the environment's name behind it: the
    /// revision that the pod should have, and behind a space how often it was told, if more than once.
    pub const REVISION: &str = "remora.dev/revision";
    /// On the core ConfigMap: when it was published, and of what document, as JSON. The controller compares what comes next.
    pub const RECORD: &str = "remora.dev/record";
    /// On FeatureEnvironments: the one revision that is published though it was held back.
    pub const CONFIRM: &str = "remora.dev/confirm";
    /// On ConfigMaps: the SHA-256 of the file that they carry.
    pub const CONTENT: &str = "remora.dev/content";
}

/// What the webhook adds to a pod.
pub mod sidecar {
    /// The container.
    pub const CONTAINER: &str = "remora";
    /// The directory that holds one volume per environment.
    pub const SNAPSHOTS: &str = "/var/run/remora";
    /// An empty volume that keeps the service account's token out of the container. No environment's volume has this name.
    pub const NO_TOKEN_VOLUME: &str = "no-token-remora";
    /// The volume of the socket. No environment's volume has this name.
    pub const SOCKET_VOLUME: &str = "socket-remora";
    /// Where that volume is, in every container.
    pub const SOCKET_DIRECTORY: &str = "/var/run/remora-socket";
    /// The socket in it.
    pub const SOCKET: &str = "/var/run/remora-socket/remora.sock";
    /// The port of the data, unless the pod says otherwise. The admin port is the next one.
    pub const DATA_PORT: u16 = 4777;
    /// The name of the admin port.
    pub const ADMIN_PORT: &str = "remora-admin";
    /// Where OpenFeature's providers look for an OFREP server.
    pub const OFREP_ENDPOINT: &str = "OFREP_ENDPOINT";
    /// Where applications look for Flagsmith's API.
    pub const FLAGSMITH_API_URL: &str = "FLAGSMITH_API_URL";
}

/// Keys and values of labels.
pub mod label {
    /// On everything that we make.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// The value of [`MANAGED_BY`].
    pub const REMORA: &str = "remora";
    /// On ConfigMaps: the environment that they belong to.
    pub const ENVIRONMENT: &str = "remora.dev/environment";
    /// On ConfigMaps: the major version of the format.
    pub const FORMAT: &str = "remora.dev/format";
    /// On injected pods.
    pub const SIDECAR: &str = "remora.dev/sidecar";
    /// The value of [`SIDECAR`].
    pub const INJECTED: &str = "injected";
    /// On namespaces, with the value [`DISABLED`]: no pod of theirs is injected.
    pub const ADMISSION: &str = "remora.dev/admission";
    /// The value of [`ADMISSION`].
    pub const DISABLED: &str = "disabled";
    /// On Secrets, with the value `true`: their owner agrees that Remora reads them.
    pub const CONSENT: &str = "remora.dev/environment-key";
}

/// The major version of a snapshot format, as it appears in names and labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Format(u16);

impl Format {
    /// Those of earlier versions, the latest first.
    pub fn earlier(self) -> impl Iterator<Item = Self> {
        (1..self.0).rev().map(Self)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// The name of a FeatureEnvironment: a DNS-1123 label of at most [`ENVIRONMENT_MAX`] characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnvironmentName(String);

/// A string that cannot be the name of an environment.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{0:?} is not the name of a FeatureEnvironment: use at most 40 lower-case letters, digits and '-', with a letter or digit at both ends"
)]
pub struct InvalidEnvironmentName(String);

impl EnvironmentName {
    /// The name as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The object that carries `file` of this environment.
    pub fn object(&self, file: &str) -> String {
        self.object_in(FORMAT, file)
    }

    /// The object that carries `file` of this environment in this format.
    pub fn object_in(&self, format: Format, file: &str) -> String {
        format!("{}{format}-{file}", self.prefix())
    }

    /// The format and the file of an object of this environment; none where its name is none of ours.
    pub fn format_and_file<'a>(&self, object: &'a str) -> Option<(Format, &'a str)> {
        let (major, file) = object.strip_prefix(&self.prefix())?.strip_prefix('v')?.split_once('-')?;
        Some((Format(major.parse().ok()?), file))
    }

    fn prefix(&self) -> String {
        format!("remora-{self}-")
    }

    /// The object that keeps a file of an earlier revision. Revisions share files that are the same, but for the core, which is
    /// found by the revision.
    pub fn past_object(&self, file: &str, revision: &str, digest: &str) -> String {
        let content = digest.get(..16).unwrap_or(digest);
        let name = if file == files::CORE { format!("{revision}-{file}") } else { format!("{content}-{file}") };
        self.past_prefix() + &name
    }

    /// What the names of all of these begin with.
    pub fn past_prefix(&self) -> String {
        self.object("history-")
    }

    /// The annotation that tells a pod which revision of this environment it should have.
    pub fn revision_annotation(&self) -> String {
        format!("{}.{self}", annotation::REVISION)
    }

    /// The pod's volume of this environment.
    pub fn volume(&self) -> String {
        format!("remora-{self}")
    }
}

impl fmt::Display for EnvironmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for EnvironmentName {
    type Err = InvalidEnvironmentName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let valid = name.len() <= ENVIRONMENT_MAX
            && name.chars().all(|c| plain(c) || c == '-')
            && name.starts_with(plain)
            && name.ends_with(plain);
        if valid {
            Ok(Self(name.to_owned()))
        } else {
            // Names come from annotations of anybody's pods: what is echoed stays short.
            Err(InvalidEnvironmentName(name.chars().take(64).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_labels_of_forty_characters() {
        for good in ["a", "storefront", "a-b-0", &"x".repeat(40)] {
            assert!(good.parse::<EnvironmentName>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a/b", "ä", &"x".repeat(41)] {
            assert!(bad.parse::<EnvironmentName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn object_and_volume_names_fit_what_kubernetes_allows() {
        let longest: EnvironmentName = "x".repeat(40).parse().unwrap();
        assert!(longest.object(&files::overrides(99)).len() <= 253);
        assert!(longest.volume().len() <= 63);
        let short: EnvironmentName = "storefront".parse().unwrap();
        assert_eq!(short.object(files::CORE), "remora-storefront-v2-core");
        assert_eq!(short.object(&files::overrides(3)), "remora-storefront-v2-overrides-03");
        let (revision, digest) = ("0123456789ab", "f".repeat(64));
        assert_eq!(short.past_object(files::CORE, revision, &digest), "remora-storefront-v2-history-0123456789ab-core");
        assert_eq!(
            short.past_object(&files::overrides(3), revision, &digest),
            "remora-storefront-v2-history-ffffffffffffffff-overrides-03"
        );
        assert!(longest.past_object(&files::overrides(99), revision, &digest).len() <= 253);
    }

    #[test]
    fn a_name_tells_format_and_file() {
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
