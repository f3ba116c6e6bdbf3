//! Access to the cluster: most cases run in parallel, some need the whole cluster exclusively.

use std::fs::File;

use anyhow::Context as _;

/// Access that a case holds while it runs. The lock is on a file, so it also applies between test programs.
pub(super) struct ClusterLock(#[expect(dead_code, reason = "dropping it releases the lock")] File);

impl ClusterLock {
    /// Waits until no case has exclusive access.
    pub(super) async fn shared() -> anyhow::Result<Self> {
        Self::take(File::lock_shared).await
    }

    /// Waits until no other case runs.
    pub(super) async fn alone() -> anyhow::Result<Self> {
        Self::take(File::lock).await
    }

    async fn take(lock: fn(&File) -> std::io::Result<()>) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join("remora-e2e.lock");
        let taken = tokio::task::spawn_blocking(move || {
            let file = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)
                .with_context(|| path.display().to_string())?;
            lock(&file).with_context(|| format!("cannot lock {}", path.display()))?;
            anyhow::Ok(Self(file))
        });
        taken.await.context("waiting for a turn")?
    }
}
