//! Changes of one flag of an environment with a large core. No pod has it, so etcd writes little else.

use anyhow::Context as _;
use remora_bench::{
    document,
    profile::{LARGE, Profile},
};
use serde_json::json;

use super::{Scene, is_ready};
use crate::{fleet::Environment, requests::Request};

/// Number of changes. Each is a publication of its own.
const CHANGES: usize = 10;
/// Number of segments whose overrides make a core that nearly fills one object.
const FEW: usize = 64;

/// Large core, and the number of earlier revisions that are kept.
struct Case {
    name: &'static str,
    segments: usize,
    history: usize,
}

const CASES: [Case; 3] = [
    Case { name: "core-in-one-object", segments: FEW, history: 3 },
    Case { name: "core-in-parts", segments: LARGE.segments, history: 3 },
    Case { name: "core-without-history", segments: LARGE.segments, history: 0 },
];

impl Scene<'_> {
    /// Changes a flag of environments with large cores.
    pub(super) async fn large_cores(&mut self) -> anyhow::Result<()> {
        for case in CASES {
            self.large_core(&case).await?;
        }
        Ok(())
    }

    async fn large_core(&mut self, case: &Case) -> anyhow::Result<()> {
        let environment = Environment::alone(case.name);
        let only = std::slice::from_ref(&environment);
        let profile = Profile { segments: case.segments, ..LARGE };
        environment.serve(self.upstream, &document::write(&profile))?;
        self.fleet.create_secrets(only).await?;
        let spec = json!({"refresh": {"interval": "1s"}, "revisionHistoryLimit": case.history});
        self.fleet.create_environments(self.upstream, only, &spec).await?;
        self.fleet.all("the environment with a large core is Ready", only, |_, status| is_ready(status)).await?;
        // The copies of the first revisions are written before the changes that count.
        self.settle().await?;

        let status = self.fleet.status(&environment).await?;
        let size = |member: &str| status[member].as_f64().with_context(|| format!("no {member}: {status}"));
        let (core, all) = (size("coreBytes")?, size("bytes")?);
        let what = format!(
            "a flag changes {CHANGES} times, in a core of {:.2} MB of a snapshot of {:.2} MB that keeps {} earlier revisions",
            core / 1e6,
            all / 1e6,
            case.history
        );
        let row = self
            .phase(&what, async |scene| {
                for number in 0..CHANGES {
                    let before = scene.fleet.revisions().await?;
                    // A value that no other revision has, of the same length.
                    environment.flip(scene.upstream, &Profile::feature(2), &format!("value-{number:04}"))?;
                    scene.published(only, &before).await?;
                }
                Ok(())
            })
            .await?;
        let each = |amount: f64| amount / CHANGES as f64;
        let (written, objects) = (each(row.written), each(row.count(writes_object)));
        let copies = if case.history > 0 { 2.0 } else { 1.0 };
        let subject = format!("one flag of a core of {:.2} MB, {} earlier revisions", core / 1e6, case.history);
        self.goals.at_most(&format!("MB that etcd wrote for {subject}"), copies * 1.1 * core / 1e6, written / 1e6);
        // The parts of a core, and the object that names them.
        let parts = (core / 983_040.0).ceil() + 1.0;
        self.goals.at_most(&format!("objects written for {subject}"), copies * parts, objects);
        Ok(())
    }
}

fn writes_object(request: &Request) -> bool {
    request.is("patch", "configmaps")
}
