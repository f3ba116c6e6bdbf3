//! Test harness of the cases in `tests/`.
//!
//! A case begins with [`with_namespace`]: it gets its own namespace, an installed Remora and an upstream that serves
//! its documents. A case waits on conditions, never for a fixed time, and prints the state of the cluster when it
//! fails. All access goes through the API server, so a case runs on any cluster that `KUBECONFIG` names. Only cases that
//! stop processes of the local cluster reach pods without it.
//!
//! | variable | meaning |
//! |---|---|
//! | `KUBECONFIG` | the cluster |
//! | `REMORA_IMAGE_PREFIX`, `REMORA_IMAGE_TAG` | registry prefix and tag of the images (`remora.local`, `dev`) |
//! | `REMORA_PREVIOUS_CHART`, `REMORA_PREVIOUS_TAG` | chart of the previous version, and the tag of its images under the same prefix (`previous`); `e2e/cluster/previous.sh` sets both |
//! | `REMORA_E2E_CREATIONS` | number of pod creations while certificates rotate (2000); from 10000 on, until a rotation ends |
//! | `REMORA_E2E_KEEP` | if set, a case's namespace is kept |
//! | `REMORA_CONFORMANCE_DIR` | directory with a real document and a real server's answers to it |
//!
//! The installation and the upstream stay between runs, so that they can be inspected. These commands remove everything
//! that the tests created:
//!
//! ```sh
//! helm uninstall remora --namespace remora-system
//! kubectl delete namespace --selector remora.dev/e2e
//! ```

mod applications;
mod case;
mod cluster;
mod cluster_lock;
mod commands;
mod documents;
mod dump;
mod nested;
mod operator;
mod pod_http;
mod publish;
mod release;
mod restoration;
mod shared_upstream;
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
pub use restoration::and_restoration;
pub use shared_upstream::SharedUpstream;
pub use wait::{eventually, until};
pub use workload::App;
