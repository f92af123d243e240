//! The lock and the timers used wherever tasks synchronize.
//!
//! Synchronization must be correct under every interleaving of the tasks involved, and ordinary
//! tests exercise only a few of them. In the library this module is the mutex of `parking_lot` and
//! the timers of tokio. In unit tests `check` puts shuttle in charge: every lock and every
//! [`yield_point`] is then a place where another task may run, and timers fire whenever they are
//! polled again. Tests that do not use `check` get the real lock and timers.

#[cfg(not(test))]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(not(test))]
pub(crate) use tokio::time::{Sleep, sleep, timeout};

#[cfg(test)]
pub(crate) use self::model::{Mutex, MutexGuard, Sleep, check, sleep, timeout, yield_point};

/// Marks a place between two locks where another task may run.
#[cfg(not(test))]
#[inline]
pub(crate) fn yield_point() {}

#[cfg(test)]
mod model {
    use std::{
        cell::Cell,
        future::Future,
        pin::Pin,
        sync::Arc,
        task::{Context, Poll},
        time::Duration,
    };

    pub(crate) use parking_lot::MutexGuard;
    use tokio::time::error::Elapsed;

    thread_local! {
        /// Whether shuttle schedules this thread.
        static CHECKING: Cell<bool> = const { Cell::new(false) };
    }

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(parking_lot::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            while CHECKING.get() {
                yield_point();
                if let Some(guard) = self.0.try_lock() {
                    return guard;
                }
            }
            self.0.lock()
        }
    }

    pub(crate) fn yield_point() {
        if CHECKING.get() {
            shuttle::thread::yield_now();
        }
    }

    /// A tokio timer, or one that fires the second time it is polled.
    #[derive(Debug)]
    pub(crate) enum Sleep {
        Tokio(Pin<Box<tokio::time::Sleep>>),
        Model { polled: bool },
    }

    pub(crate) fn sleep(duration: Duration) -> Sleep {
        if CHECKING.get() {
            Sleep::Model { polled: false }
        } else {
            Sleep::Tokio(Box::pin(tokio::time::sleep(duration)))
        }
    }

    impl Future for Sleep {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            match &mut *self {
                Self::Tokio(sleep) => sleep.as_mut().poll(cx),
                Self::Model { polled: true } => Poll::Ready(()),
                Self::Model { polled } => {
                    *polled = true;
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            }
        }
    }

    /// Under shuttle the deadline never passes.
    pub(crate) async fn timeout<F: Future>(
        deadline: Duration,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        if CHECKING.get() {
            Ok(future.await)
        } else {
            tokio::time::timeout(deadline, future).await
        }
    }

    /// Runs `scenario` under many interleavings, half of them random, half with few preemptions. A
    /// task that waits forever is reported as a deadlock, with the schedule that led to it.
    pub(crate) fn check(scenario: impl Fn() + Send + Sync + 'static) {
        const SCHEDULES: usize = 600;
        let scenario = Arc::new(scenario);
        let again = scenario.clone();
        CHECKING.set(true);
        shuttle::check_random(move || again(), SCHEDULES / 2);
        shuttle::check_pct(move || scenario(), SCHEDULES / 2, 3);
        CHECKING.set(false);
    }
}
