//! What a key may see.

/// Which kind of key a request came with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// A client key: no server-only features.
    Client = 0,
    /// A server key (`ser.…`): everything.
    Server = 1,
}

/// Which segments apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// None of them.
    None,
    /// Those that need no identity to be decided.
    IdentityFree,
    /// All of them.
    All,
}
