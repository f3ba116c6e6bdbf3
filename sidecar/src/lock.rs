//! A lock that a panic does not poison.
//!
//! The standard library's mutex is enough, and `parking_lot` would be one more crate in every pod: the thread that answers
//! takes the locks of this crate, and the thread that follows the volumes takes one of them for the moment of a swap. So
//! locks are hardly ever contended. In images, a panic ends the process (`panic = "abort"` in the profile `ship`). In other
//! builds, a value stays usable after a panic of the thread that had it, because each change under a lock leaves it valid.

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
