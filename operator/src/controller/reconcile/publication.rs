//! Steps from the accepted snapshot to the objects that pods mount, and what keeps these objects in place.

pub(super) mod apply;
pub(super) mod choose;
pub(super) mod fit;
pub(super) mod notify;
pub(super) mod recover;
mod replacement;
pub(super) mod restore;
pub(super) mod served;
pub(super) mod withdraw;
