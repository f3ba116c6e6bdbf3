//! A lock that a panic does not poison.
//!
//! It is the standard library's mutex, and not `parking_lot`: only the thread that answers takes the locks of this crate,
//! so they are never contended, and another lock would only add a crate to what every pod carries. Images abort on a
//! panic. In other builds, a value whose owner panicked stays usable: each change under a lock leaves it valid.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value that one thread at a time can use.
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    /// Waits until no other thread uses the value.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_of_a_thread_that_panicked_stays_usable() {
        let lock = Lock(Mutex::new(1));
        std::thread::scope(|scope| {
            let panicking = scope.spawn(|| {
                let mut value = lock.lock();
                *value = 2;
                panic!("with the lock held");
            });
            assert!(panicking.join().is_err());
        });
        assert_eq!(*lock.lock(), 2);
    }
}
