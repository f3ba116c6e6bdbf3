//! Permissions of a key: which features a request may see.

use crate::format::{
    layout::{Feature, HIDE_DISABLED, SERVER_ONLY, UNSERVED},
    view::View,
};

/// Kind of the API key of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// A client key: server-only features are hidden.
    Client = 0,
    /// A server key (`ser.…`): all features are visible.
    Server = 1,
}

/// Visibility of features for a role.
#[derive(Clone, Copy)]
pub(crate) struct Visibility {
    /// Features with any of these flags are hidden.
    hidden: u32,
    /// True if disabled features are hidden.
    hides_disabled: bool,
}

impl Visibility {
    pub(crate) fn of(view: &View<'_>, role: Role) -> Self {
        let hidden = if role == Role::Server { UNSERVED } else { UNSERVED | SERVER_ONLY };
        Self { hidden, hides_disabled: view.origin().flags & HIDE_DISABLED != 0 }
    }

    /// Returns true if a feature in this state is visible.
    pub(crate) fn sees(self, feature: &Feature, enabled: bool) -> bool {
        feature.flags & self.hidden == 0 && (enabled || !self.hides_disabled)
    }
}
