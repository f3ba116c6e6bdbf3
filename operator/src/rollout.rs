//! Brings a published revision to the pods: notifies them, and observes which revision they serve.
//!
//! | modules | what they do |
//! |---|---|
//! | `pods`, `injected_pod` | watch the injected pods that run, and read what their volumes hold |
//! | `pod_lister`, `volumes` | list the pods of an environment through the API server, and the room in their volumes |
//! | [`sidecar`] | asks one sidecar, over its admin port |
//! | [`nudge`], `pace` | notify pods of a revision, with bounds on the writes |
//! | [`observe`] | asks the sidecars which revision they serve, in rounds |

mod injected_pod;
pub mod nudge;
pub mod observe;
mod pace;
mod pod_lister;
mod pods;
pub mod sidecar;
mod volumes;

pub use self::{
    injected_pod::InjectedPod,
    pod_lister::Lists,
    pods::{RunningPods, RunningPodsFeed, follow, running_pods},
};
pub(crate) use self::{
    pod_lister::{MountingObsolete, PodLister},
    volumes::Volumes,
};
