//! Who is connected, so that nobody takes all there is.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use super::serve::Limits;

/// How many connections there are, by address.
#[derive(Default)]
pub(super) struct Callers(Mutex<HashMap<IpAddr, usize>>);

impl Callers {
    /// A place for one more connection, as long as it is held.
    pub(super) fn admit(callers: &Arc<Callers>, address: IpAddr, limits: &Limits) -> Option<Place> {
        let mut by_address = callers.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = by_address.values().sum();
        let same = by_address.get(&address).copied().unwrap_or_default();
        if all >= limits.connections || same >= limits.connections_per_address {
            return None;
        }
        by_address.insert(address, same + 1);
        Some(Place { callers: Arc::clone(callers), address })
    }
}

/// A place among the connections, until it is dropped.
pub(super) struct Place {
    callers: Arc<Callers>,
    address: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut by_address = self.callers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}
