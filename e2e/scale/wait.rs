//! Waits for conditions.

use std::time::{Duration, Instant};

/// Waits until the condition holds. An error of the condition counts as not yet.
pub(crate) async fn until(
    what: &str,
    cap: Duration,
    condition: impl AsyncFn() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut last = String::new();
    while began.elapsed() < cap {
        match condition().await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => last = format!("; last error: {error:#}"),
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    anyhow::bail!("not within {} s: {what}{last}", cap.as_secs())
}
