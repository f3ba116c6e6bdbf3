//! Order of compilations: namespaces take turns, so that many documents of one namespace do not delay others.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Number of children at one time. The chart's memory limit includes the memory of this many.
const AT_ONCE: usize = 1;

/// Queue of queues. Each namespace has at most one document in the common queue; its other documents wait behind that
/// one.
#[derive(Debug)]
pub(super) struct Turns {
    all: Arc<Semaphore>,
    namespaces: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// Guard that is held while a document is compiled.
#[derive(Debug)]
pub(super) struct Turn {
    _places: [Option<OwnedSemaphorePermit>; 2],
}

impl Default for Turns {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(AT_ONCE)), namespaces: Mutex::default() }
    }
}

impl Turns {
    /// Waits for the turn of a document of this namespace.
    pub(super) async fn enter(&self, namespace: &str) -> Turn {
        let own = self.of(namespace);
        // A semaphore is fair, and these are never closed.
        let first = own.acquire_owned().await.ok();
        let then = Arc::clone(&self.all).acquire_owned().await.ok();
        Turn { _places: [then, first] }
    }

    fn of(&self, namespace: &str) -> Arc<Semaphore> {
        let mut namespaces = self.namespaces.lock();
        // Each permit keeps its semaphore alive, so a semaphore without another reference is not in use.
        namespaces.retain(|_, own| Arc::strong_count(own) > 1);
        Arc::clone(namespaces.entry(namespace.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn namespace_with_one_document_waits_for_one_child_of_namespace_with_many() {
        let turns = Arc::new(Turns::default());
        let (told, mut order) = tokio::sync::mpsc::unbounded_channel();
        let running = turns.enter("many").await;
        let queue = |namespace: &'static str| {
            let (turns, told) = (Arc::clone(&turns), told.clone());
            tokio::spawn(async move {
                let _turn = turns.enter(namespace).await;
                told.send(namespace).unwrap();
            })
        };
        let mut all = Vec::new();
        for namespace in ["many", "many", "many", "one"] {
            all.push(queue(namespace));
            tokio::task::yield_now().await;
        }
        drop(running);
        for one in all {
            one.await.unwrap();
        }
        let mut order: Vec<_> = std::iter::from_fn(|| order.try_recv().ok()).collect();
        assert_eq!(order.len(), 4);
        order.truncate(2);
        assert!(order.contains(&"one"), "{order:?}");
    }

    #[tokio::test]
    async fn permits_of_idle_namespace_are_forgotten() {
        let turns = Turns::default();
        for number in 0..100 {
            drop(turns.enter(&format!("n{number}")).await);
        }
        assert!(turns.namespaces.lock().len() <= 2);
    }

    #[tokio::test]
    async fn abandoned_waiting_document_blocks_nobody() {
        let turns = Turns::default();
        let running = turns.enter("a").await;
        {
            let mut given_up = std::pin::pin!(turns.enter("b"));
            assert!(futures::poll!(&mut given_up).is_pending());
        }
        drop(running);
        drop(turns.enter("b").await);
        drop(turns.enter("a").await);
    }
}
