//! Brings a published revision to the pods: tells them that it is there, and asks them what they serve.
pub mod followers;
pub mod nudge;
