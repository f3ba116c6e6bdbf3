//! Brings a published revision to the pods: notifies them, and observes which revision they serve. Brings back how often
//! their applications used flags.
pub mod nudge;
pub mod observe;
mod pace;
mod pods;
pub mod usage;

pub use self::pods::{RunningPods, RunningPodsFeed, follow, running_pods};
