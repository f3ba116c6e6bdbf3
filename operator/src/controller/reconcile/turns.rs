//! Turns of reconciliations: namespaces share the places, and none of them makes another one wait.
//!
//! An environment without a turn waits in the queue of its namespace, and occupies no place of the runtime meanwhile. When
//! its turn comes, it has a permit and gets a trigger, so that the runtime reconciles it again.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;

use crate::{
    api::NamespacedName,
    fair_semaphore::{FairSemaphore, Permit},
    source::trigger::{Trigger, TriggerSender},
};

/// Largest number of reconciliations at one time; most of them wait for a server.
pub(super) const RECONCILIATIONS: u16 = 128;
/// Time in which an environment begins its turn: the runtime reconciles it within milliseconds, unless it is deleted.
const BEGIN: Duration = Duration::from_secs(10);

/// Places of the reconciliations at one time, which the controllers of all listed namespaces share. A namespace has at
/// most half of them.
#[derive(Clone, Debug)]
pub(super) struct ReconciliationPermits(FairSemaphore);

impl Default for ReconciliationPermits {
    fn default() -> Self {
        Self(FairSemaphore::sparing(RECONCILIATIONS.into()))
    }
}

/// Turns of the environments of one controller.
#[derive(Debug)]
pub(super) struct ReconciliationTurns {
    places: FairSemaphore,
    queue: Arc<Mutex<Queue>>,
    triggers: TriggerSender,
}

#[derive(Debug, Default)]
struct Queue {
    environments: HashMap<NamespacedName, WaitingTurn>,
    /// Number of places so far.
    places: u64,
}

/// Place of an environment in the queue.
#[derive(Debug)]
struct WaitingTurn {
    number: u64,
    /// Permit, once the turn of the environment has come.
    permit: Option<Permit>,
}

impl ReconciliationTurns {
    pub(super) fn new(places: &ReconciliationPermits, triggers: TriggerSender) -> Self {
        Self { places: places.0.clone(), queue: Arc::default(), triggers }
    }

    /// Begins a reconciliation, which ends when the permit is dropped. If the environment has no turn yet, returns `None`:
    /// the environment gets a trigger when its turn comes.
    pub(super) fn begin(&self, environment: &NamespacedName) -> Option<Permit> {
        let mut queue = self.queue.lock();
        if let Some(place) = queue.environments.get_mut(environment) {
            let permit = place.permit.take()?;
            queue.environments.remove(environment);
            return Some(permit);
        }
        if let Some(permit) = self.places.try_acquire(&environment.namespace) {
            return Some(permit);
        }
        queue.places += 1;
        let number = queue.places;
        queue.environments.insert(environment.clone(), WaitingTurn { number, permit: None });
        let (places, queue, triggers) = (self.places.clone(), Arc::clone(&self.queue), self.triggers.clone());
        tokio::spawn(wait(places, queue, triggers, environment.clone(), number));
        None
    }
}

/// Waits for the turn of an environment. Gives it to the next one if the environment does not begin.
async fn wait(
    places: FairSemaphore,
    queue: Arc<Mutex<Queue>>,
    triggers: TriggerSender,
    environment: NamespacedName,
    number: u64,
) {
    let permit = places.acquire(&environment.namespace).await;
    if let Some(place) = queue.lock().environments.get_mut(&environment) {
        place.permit = Some(permit);
    }
    triggers.send(&environment, Trigger::Report).await;
    tokio::time::sleep(BEGIN).await;
    let mut queue = queue.lock();
    // The environment may have begun, and may wait for its next turn.
    if queue.environments.get(&environment).is_some_and(|place| place.number == number) {
        queue.environments.remove(&environment);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::Receiver;

    use super::*;
    use crate::source::trigger::TriggerRequest;

    fn turns(places: &ReconciliationPermits) -> (ReconciliationTurns, Receiver<TriggerRequest>) {
        let (triggers, requests) = TriggerSender::new();
        (ReconciliationTurns::new(places, triggers), requests)
    }

    fn shop(name: &str) -> NamespacedName {
        NamespacedName::new("shop", name)
    }

    /// Begins reconciliations of so many environments of a namespace. Returns those that have a turn.
    fn begin(turns: &ReconciliationTurns, namespace: &str, count: usize) -> Vec<Permit> {
        (0..count).filter_map(|number| turns.begin(&NamespacedName::new(namespace, &number.to_string()))).collect()
    }

    #[tokio::test]
    async fn namespace_has_at_most_half_of_reconciliations_and_others_begin_at_once() {
        let (turns, _requests) = turns(&ReconciliationPermits::default());
        let many = begin(&turns, "many", 1_000);
        assert_eq!(many.len(), usize::from(RECONCILIATIONS) / 2);
        for number in 0..32 {
            assert!(turns.begin(&NamespacedName::new(&format!("n{number}"), "storefront")).is_some());
        }
    }

    #[tokio::test]
    async fn controllers_of_listed_namespaces_share_places() {
        let places = ReconciliationPermits::default();
        let ((one, _), (other, _)) = (turns(&places), turns(&places));
        let _held = begin(&one, "shop", 1_000);
        assert!(other.begin(&shop("storefront")).is_none());
        assert!(other.begin(&NamespacedName::new("payments", "storefront")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn environments_have_their_turns_in_the_order_of_their_arrival() {
        let (turns, mut requests) = turns(&ReconciliationPermits::default());
        let mut held = begin(&turns, "shop", 200);
        let first = held.len();
        for number in first..200 {
            held.pop();
            // One turn, for the environment that waits longest, whatever others ask meanwhile.
            let request = requests.recv().await.unwrap();
            assert_eq!((request.environment, request.trigger), (shop(&number.to_string()), Trigger::Report));
            assert!(turns.begin(&shop("another")).is_none());
            held.push(turns.begin(&shop(&number.to_string())).unwrap());
        }
        assert_eq!(held.len(), first);
    }

    #[tokio::test(start_paused = true)]
    async fn turn_of_deleted_environment_goes_to_next_one() {
        let (turns, mut requests) = turns(&ReconciliationPermits::default());
        let mut held = begin(&turns, "shop", usize::from(RECONCILIATIONS) / 2);
        assert!(turns.begin(&shop("deleted")).is_none() && turns.begin(&shop("next")).is_none());
        held.pop();
        assert_eq!(requests.recv().await.unwrap().environment.name, "deleted");
        assert!(turns.begin(&shop("next")).is_none());
        assert_eq!(requests.recv().await.unwrap().environment.name, "next");
        assert!(turns.begin(&shop("next")).is_some());
        drop(held);
        tokio::time::sleep(2 * BEGIN).await;
        assert!(turns.queue.lock().environments.is_empty(), "environments are not forgotten");
    }
}
