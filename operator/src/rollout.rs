//! Brings a published revision to the pods: notifies them, and observes which revision they serve. Brings back how often
//! their applications used flags.
mod injected_pod;
pub mod nudge;
pub mod observe;
mod pace;
mod places;
mod pods;
pub mod usage;

pub use self::{
    injected_pod::InjectedPod,
    pods::{RunningPods, RunningPodsFeed, follow, running_pods},
};
