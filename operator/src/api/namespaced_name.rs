//! Names of objects with their namespaces.

use std::{fmt, sync::Arc};

use kube::{Resource, ResourceExt};

/// Namespace and name of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespacedName {
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl NamespacedName {
    /// Creates the name of an object.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Returns the name of this object.
    #[must_use]
    pub fn of(object: &impl Resource) -> Self {
        Self { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
    }

    /// Returns the name of another object in the same namespace.
    #[must_use]
    pub fn sibling(&self, name: &str) -> Self {
        Self::new(&self.namespace, name)
    }
}

/// UID of an object. Unlike a name, a UID is never used again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Uid(Arc<str>);

impl Uid {
    /// Returns the UID of this object.
    #[must_use]
    pub fn of(object: &impl Resource) -> Self {
        Self(object.uid().unwrap_or_default().into())
    }

    /// Returns the UID as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Uid {
    fn from(uid: &str) -> Self {
        Self(uid.into())
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
