//! Order of compilations: namespaces take turns, so that many documents of one namespace do not delay others.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Number of children at one time. The chart's memory limit includes the memory of this many.
const CHILDREN_MAX: usize = 1;

/// Queue of queues. Each namespace has at most one document in the common queue; its other documents wait behind that
/// one.
#[derive(Debug)]
pub(super) struct Limiter {
    all: Arc<Semaphore>,
    namespaces: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// Guard that is held while a document is compiled.
#[derive(Debug)]
pub(super) struct Permit {
    _permits: [Option<OwnedSemaphorePermit>; 2],
}

impl Default for Limiter {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(CHILDREN_MAX)), namespaces: Mutex::default() }
    }
}

impl Limiter {
    /// Waits for the permit of a document of this namespace.
    pub(super) async fn acquire(&self, namespace: &str) -> Permit {
        let own = self.of(namespace);
        // A semaphore is fair, and these are never closed.
        let first = own.acquire_owned().await.ok();
        let then = Arc::clone(&self.all).acquire_owned().await.ok();
        Permit { _permits: [then, first] }
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
        let limiter = Arc::new(Limiter::default());
        let (finished, mut order) = tokio::sync::mpsc::unbounded_channel();
        let running = limiter.acquire("many").await;
        let queue = |namespace: &'static str| {
            let (limiter, finished) = (Arc::clone(&limiter), finished.clone());
            tokio::spawn(async move {
                let _permit = limiter.acquire(namespace).await;
                finished.send(namespace).unwrap();
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
        let limiter = Limiter::default();
        for number in 0..100 {
            drop(limiter.acquire(&format!("n{number}")).await);
        }
        assert!(limiter.namespaces.lock().len() <= 2);
    }

    #[tokio::test]
    async fn abandoned_waiting_document_blocks_nobody() {
        let limiter = Limiter::default();
        let running = limiter.acquire("a").await;
        {
            let mut given_up = std::pin::pin!(limiter.acquire("b"));
            assert!(futures::poll!(&mut given_up).is_pending());
        }
        drop(running);
        drop(limiter.acquire("b").await);
        drop(limiter.acquire("a").await);
    }
}
