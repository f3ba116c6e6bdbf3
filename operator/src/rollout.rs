//! Brings a published revision to the pods: notifies them, and observes which revision they serve.
pub mod nudge;
pub mod observe;
mod pace;
mod pods;

pub use self::pods::{RunningPods, RunningPodsFeed, follow, running_pods};
