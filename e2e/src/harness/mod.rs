//! What the cases in `tests/` are written with.
//!
//! A case begins with [`with_namespace`]: it gets a namespace of its own, an installed Remora and an upstream that serves its
//! documents; it waits on conditions, never for a time; and when it fails, it says what the cluster looked like. Everything
//! goes through the API server, so a case runs on any cluster that `KUBECONFIG` names.
//!
//! | variable | meaning |
//! |---|---|
//! | `KUBECONFIG` | the cluster |
//! | `REMORA_IMAGE_PREFIX`, `REMORA_IMAGE_TAG` | where the images are (`remora.local`, `dev`) |
//! | `REMORA_PREVIOUS_CHART`, `REMORA_PREVIOUS_TAG` | the chart of the version before, and the tag of its images beside the others (`previous`); `e2e/cluster/previous.sh` sets both |
//! | `REMORA_E2E_CREATIONS` | how many pods ask for a sidecar while certificates rotate (2000); from 10000 on, to the end of a rotation |
//! | `REMORA_E2E_KEEP` | set: a case's namespace stays |
//! | `REMORA_CONFORMANCE_DIR` | a real document and a real server's answers to it |
//!
//! Between runs the installation and the upstream stay, for whoever wants to look. This removes all that was ever made:
//!
//! ```sh
//! helm uninstall remora --namespace remora-system
//! kubectl delete namespace --selector remora.dev/e2e
//! ```

mod applications;
mod case;
mod cluster;
mod commands;
mod documents;
mod dump;
mod nested;
mod operator;
mod pod_http;
mod publish;
mod release;
mod shared_upstream;
mod turn;
mod wait;
mod workload;

pub use case::{Case, alone_in_namespace, with_namespace};
pub use cluster::{Cluster, SYSTEM, say};
pub use commands::{Command, documented, root};
pub use documents::storefront;
pub use nested::{forget_package, program};
pub use pod_http::{Answer, PodPort};
pub use publish::published;
pub use release::Release;
pub use shared_upstream::SharedUpstream;
pub use wait::{eventually, until};
pub use workload::App;
