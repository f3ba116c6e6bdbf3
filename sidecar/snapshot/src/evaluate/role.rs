//! Permissions of a key.

/// Kind of the API key of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// A client key: server-only features are hidden.
    Client = 0,
    /// A server key (`ser.…`): all features are visible.
    Server = 1,
}

/// The segments that apply to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// No segments.
    None,
    /// Segments that need no identity.
    IdentityFree,
    /// All segments.
    All,
}
