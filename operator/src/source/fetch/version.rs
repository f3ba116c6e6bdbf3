//! Versions of a document: of the one that arrived, and of the cached one, which makes the next fetch conditional.

use jiff::Timestamp;

use super::{key::EnvironmentKey, validator::Validator};

/// Version of the cached document, which makes the next fetch conditional.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedVersion(pub(super) Version);

#[cfg(test)]
impl CachedVersion {
    /// Creates the version of an object with this `resourceVersion`.
    pub(crate) fn of_object(version: &str) -> Self {
        Self(Version::Object { version: version.to_owned() })
    }

    /// Creates the version of a server that accepted this key.
    pub(crate) fn of_server(key: EnvironmentKey) -> Self {
        Self(Version::Server { key, validator: None, entity_tag: None })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// A server, with the key of the request: another key belongs to another environment.
    Server { key: EnvironmentKey, validator: Option<Validator>, entity_tag: Option<String> },
    /// An object, with its `resourceVersion`.
    Object { version: String },
}

impl CachedVersion {
    /// Returns the key that the server answered, if a server has this version.
    #[must_use]
    pub fn key(&self) -> Option<&EnvironmentKey> {
        match &self.0 {
            Version::Server { key, .. } => Some(key),
            Version::Object { .. } => None,
        }
    }
}

/// Source of a document, and its version or time.
#[derive(Clone, Debug)]
pub enum Arrival {
    /// A server.
    Server {
        /// Key of the request.
        key: EnvironmentKey,
        /// Time at which the fetch began, by the server's clock.
        began: Timestamp,
        /// Entity tag of the document, if it has one page and the server sent one.
        entity_tag: Option<String>,
    },
    /// An object in the cluster.
    Object {
        /// `resourceVersion` of the object.
        version: String,
    },
}

impl Arrival {
    /// Returns the key of the request, if a server sent the document.
    #[must_use]
    pub fn key(&self) -> Option<&EnvironmentKey> {
        match self {
            Self::Server { key, .. } => Some(key),
            Self::Object { .. } => None,
        }
    }

    /// Returns the version for the next fetch, once the document is cached. `updated_at` is the document's own time of
    /// change.
    #[must_use]
    pub fn cached_version(self, updated_at: Option<&str>) -> CachedVersion {
        CachedVersion(match self {
            Self::Server { key, began, entity_tag } => {
                Version::Server { key, validator: Validator::new(updated_at, began), entity_tag }
            }
            Self::Object { version } => Version::Object { version },
        })
    }

    /// Returns the version for the next fetch if the content is that of the `cached` version. `None` if another key
    /// requested it: the compiled snapshot knows the key.
    #[must_use]
    pub fn confirmed_version(self, cached: &CachedVersion) -> Option<CachedVersion> {
        match (self, &cached.0) {
            (Self::Server { key, began, entity_tag }, Version::Server { key: cached, validator, .. })
                if key == *cached =>
            {
                let validator = validator.as_ref().map(|validator| validator.confirmed(began));
                Some(CachedVersion(Version::Server { key, validator, entity_tag }))
            }
            (Self::Object { version }, Version::Object { .. }) => Some(CachedVersion(Version::Object { version })),
            _ => None,
        }
    }
}
