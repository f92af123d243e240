//! The lock of every hand-off between tasks, and the places where tasks may be interleaved.
//!
//! In the library this is a plain mutex. In tests a model checker may be in charge: then each lock
//! and each [`turn`] is a place where it lets another task go first.

#[cfg(not(test))]
pub(crate) use parking_lot::Mutex;

/// Another task may go first here.
#[cfg(not(test))]
#[inline]
pub(crate) fn turn() {}

#[cfg(test)]
pub(crate) use self::model::{Mutex, check, turn};

#[cfg(test)]
mod model {
    use std::{cell::Cell, sync::Arc};

    thread_local! {
        static CHECKING: Cell<bool> = const { Cell::new(false) };
    }

    pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(parking_lot::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> parking_lot::MutexGuard<'_, T> {
            while CHECKING.get() {
                turn();
                if let Some(guard) = self.0.try_lock() {
                    return guard;
                }
            }
            self.0.lock()
        }
    }

    pub(crate) fn turn() {
        if CHECKING.get() {
            shuttle::thread::yield_now();
        }
    }

    /// Runs `scenario` under many orders of its turns, half of them at random, half with few
    /// preemptions. A task that waits for ever shows as a deadlock.
    pub(crate) fn check(scenario: impl Fn() + Send + Sync + 'static) {
        const ORDERS: usize = 400;
        let scenario = Arc::new(scenario);
        let again = scenario.clone();
        CHECKING.set(true);
        shuttle::check_random(move || again(), ORDERS / 2);
        shuttle::check_pct(move || scenario(), ORDERS / 2, 3);
        CHECKING.set(false);
    }
}
