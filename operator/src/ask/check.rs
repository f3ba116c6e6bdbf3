//! `kubectl remora check`: compares the installation, the environments and their pods with what the runbook expects.
//!
//! | modules | what they do |
//! |---|---|
//! | `read`, `rights`, `serving` | read the cluster; a part that cannot be read is a fact, too |
//! | `facts` | what was read, as plain values |
//! | `installation`, `certificates`, `environments`, `workloads` | findings that follow from the facts; pure |
//! | `finding` | a finding, and how the report shows it |

mod certificates;
mod environments;
mod facts;
mod finding;
mod installation;
mod read;
mod rights;
mod serving;
mod workloads;

use jiff::Timestamp;

use self::finding::Report;
pub use self::rights::CONTROLLER_RIGHTS;
use super::{cluster::Cluster, failure::Failure};

/// Check the installation, the environments and their pods, and say what to do about each fault.
///
/// Exit code 1 if there is a fault, 3 if there is none and a part could not be checked.
#[derive(Debug, clap::Args)]
pub(super) struct Check {
    /// Check the environments and pods of one namespace, the one of -n or of the context. Default: all namespaces.
    #[arg(long)]
    only_namespace: bool,
    /// Namespace of Remora's own pods.
    #[arg(long, value_name = "NAME", default_value = "remora-system")]
    system_namespace: String,
    /// Do not ask the API server to admit a pod by a dry run.
    #[arg(long)]
    no_dry_run: bool,
}

/// Reads the cluster and derives the findings.
pub(super) async fn check(cluster: &Cluster, asked: &Check) -> Result<Report, Failure> {
    let now = Timestamp::now();
    let facts = read::facts(cluster, asked, now).await?;
    let mut findings = installation::findings(&facts.installation, now);
    findings.extend(environments::findings(&facts.environments));
    findings.extend(workloads::findings(&facts.workloads, facts.installation.sidecar_image()));
    findings.extend(facts.unread.iter().map(finding::unread));
    Ok(Report::new(findings))
}
