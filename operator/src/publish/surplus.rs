//! Surplus objects: those of an environment in the current format that belong neither to the published revision nor to an
//! earlier one that is kept. They are deleted after a grace period, because pods that have not switched yet may still
//! read the old core.

use std::{collections::HashSet, time::Duration};

use tokio::time::Instant;

use super::{Error, Publisher, WriteCache, owner::Collection};
use crate::api::names::FORMAT;

/// Time that an object stays once no core names it any more.
pub const SURPLUS_GRACE: Duration = Duration::from_secs(600);
/// Largest number of surplus objects that a publication deletes: whoever may write ConfigMaps decides how many there are.
/// Others are deleted by the next publication. A published environment is reconciled at least once in 66 s.
const DELETIONS: usize = 200;

impl Publisher {
    /// Deletes the objects that are not `needed` and whose grace period has ended, up to [`DELETIONS`] of them.
    pub(super) async fn clear_surplus(
        &self,
        objects: Collection<'_>,
        needed: &HashSet<String>,
        cache: &mut WriteCache,
    ) -> Result<(), Error> {
        let mut surplus = self.last_first(objects, |format| format == FORMAT);
        surplus.retain(|found| !found.name.as_ref().is_some_and(|name| needed.contains(name)));
        let names: HashSet<&str> = surplus.iter().filter_map(|found| found.name.as_deref()).collect();
        cache
            .surplus
            .retain(|(object_kind, name), _| *object_kind != objects.object_kind || names.contains(name.as_str()));
        let (now, mut deletions) = (Instant::now(), 0);
        for found in &surplus {
            let name = found.name.clone().unwrap_or_default();
            let since = *cache.surplus.entry((objects.object_kind, name)).or_insert(now);
            if now.duration_since(since) >= self.grace && deletions < DELETIONS {
                self.delete(objects, found, cache).await?;
                deletions += 1;
            }
        }
        Ok(())
    }
}
