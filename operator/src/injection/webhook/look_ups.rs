//! Bounds requests to the API server about objects that the cache does not have. A caller who names objects that do not
//! exist may delay such requests of others, but none about cached objects.

use std::{sync::Arc, time::Duration};

use tokio::sync::Semaphore;

use crate::api_call::{CallError, within};

/// Longest time of one look-up, including the wait for its permit. An admission request must be answered within seconds.
pub(super) const LOOK_UP_TIMEOUT: Duration = Duration::from_millis(500);

/// Largest number of look-ups of one kind at one time.
const LOOK_UPS_MAX: usize = 16;

/// The look-ups of one kind.
#[derive(Clone)]
pub(super) struct LookUps(Arc<Semaphore>);

impl Default for LookUps {
    fn default() -> LookUps {
        LookUps(Arc::new(Semaphore::new(LOOK_UPS_MAX)))
    }
}

impl LookUps {
    /// Runs a look-up when it has a permit.
    ///
    /// # Errors
    ///
    /// Fails if the API server refuses the look-up, or it has no result within [`LOOK_UP_TIMEOUT`].
    pub(super) async fn run<T>(&self, look_up: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
        within(LOOK_UP_TIMEOUT, async {
            let _permit = self.0.acquire().await;
            look_up.await
        })
        .await
    }
}
