//! What is known of Secrets that carry snapshots. They are neither listed nor watched, as that would need the right to read
//! all Secrets there are: they are looked at by their names, which are known, when the process starts and now and then.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use kube::core::ObjectMeta;
use remora_snapshot::files;

use super::{Error, Ledger, Publisher, object::Owner, write::Calls};
use crate::api::{
    Carrier,
    names::{FORMAT, Format},
};

/// How often it is looked whether somebody deleted or altered them.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Metadata of Secrets as they were last looked at, or written: by namespace and environment, and then by name.
#[derive(Default)]
pub(super) struct Shelf(Mutex<HashMap<(String, String), BTreeMap<String, ObjectMeta>>>);

impl Shelf {
    pub(super) fn get(&self, owner: &Owner, name: &str) -> Option<ObjectMeta> {
        self.lock().get(&place(owner))?.get(name).cloned()
    }

    pub(super) fn all(&self, owner: &Owner) -> Vec<ObjectMeta> {
        self.lock().get(&place(owner)).map(|objects| objects.values().cloned().collect()).unwrap_or_default()
    }

    /// The object is as it was found; none: it is not there.
    pub(super) fn put(&self, owner: &Owner, name: &str, found: Option<ObjectMeta>) {
        let mut places = self.lock();
        let objects = places.entry(place(owner)).or_default();
        match found {
            Some(found) => objects.insert(name.to_owned(), found),
            None => objects.remove(name),
        };
    }

    fn clear(&self, owner: &Owner) {
        self.lock().remove(&place(owner));
    }

    /// Forgets environments that are gone.
    pub(super) fn retain(&self, is_there: impl Fn(&str, &str) -> bool) {
        self.lock().retain(|(namespace, environment), _| is_there(namespace, environment));
    }

    /// A thread that panicked left nothing half done here.
    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), BTreeMap<String, ObjectMeta>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(owner: &Owner) -> (String, String) {
    (owner.namespace.clone(), owner.environment.to_string())
}

impl Publisher {
    /// Looks at the owner's Secrets, if it has or had any and the last look is a while ago. ConfigMaps are watched.
    pub async fn look(&self, owner: &Owner, ledger: &mut Ledger) -> Result<(), Error> {
        let former = owner.former();
        let secrets = [Some(owner), former.as_ref()].into_iter().flatten().find(|one| one.carrier == Carrier::Secret);
        let Some(owner) = secrets else { return Ok(()) };
        match ledger.looked {
            Some(looked) if looked.elapsed() < LOOK_AGAIN => return Ok(()),
            Some(_) => self.look_again(owner).await?,
            None => self.discover(owner).await?,
        }
        ledger.looked = Some(Instant::now());
        Ok(())
    }

    async fn discover(&self, owner: &Owner) -> Result<(), Error> {
        self.shelf.clear(owner);
        self.discover_in(FORMAT, owner).await?;
        for format in FORMAT.earlier() {
            let core = owner.environment.object_in(format, files::CORE);
            // It goes last: where it is not, nothing is.
            if self.calls(owner).metadata(&core).await?.is_some() {
                self.discover_in(format, owner).await?;
            }
        }
        Ok(())
    }

    /// Files of a kind are numbered without a gap, so the first that is missing is the end. Copies of earlier revisions are
    /// looked up when they are needed.
    async fn discover_in(&self, format: Format, owner: &Owner) -> Result<(), Error> {
        let overrides = (0..files::OVERRIDES_SLOTS).map(files::overrides).collect();
        let document = (0..files::DOCUMENT_SLOTS).map(files::document).collect();
        for series in [vec![files::CORE.to_owned()], overrides, document] {
            for file in series {
                let name = owner.environment.object_in(format, &file);
                let Some(found) = self.calls(owner).metadata(&name).await? else { break };
                self.shelf.put(owner, &name, Some(found));
            }
        }
        Ok(())
    }

    async fn look_again(&self, owner: &Owner) -> Result<(), Error> {
        for known in self.shelf.all(owner) {
            let name = known.name.unwrap_or_default();
            let found = self.calls(owner).metadata(&name).await?;
            self.shelf.put(owner, &name, found);
        }
        Ok(())
    }

    pub(super) fn calls<'a>(&'a self, owner: &'a Owner) -> Calls<'a> {
        Calls { client: &self.client, owner }
    }
}
