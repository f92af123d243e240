//! Tasks of a manager that start and stop together.

use tokio::{
    task::{self, JoinSet},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::Left;

/// Parts that start and stop together. Dropping it drops all of them.
#[derive(Default)]
pub(super) struct Stage {
    /// Cancelled to stop them.
    pub(super) stop: CancellationToken,
    tasks: JoinSet<Vec<Left>>,
    /// What to report of each task that does not end in time.
    running: Vec<(task::Id, Left)>,
}

impl Stage {
    /// Starts a task, to be reported as `unless_ended` if it does not end in time.
    pub(super) fn spawn<F>(&mut self, unless_ended: Left, run: F)
    where
        F: Future<Output = Vec<Left>> + Send + 'static,
    {
        let id = self.tasks.spawn(run).id();
        self.running.push((id, unless_ended));
    }

    /// Stops all tasks and returns what was left at the deadline.
    pub(super) async fn stop(&mut self, deadline: Instant) -> Vec<Left> {
        self.stop.cancel();
        let mut left = Vec::new();
        while let Ok(Some(ended)) = timeout_at(deadline, self.tasks.join_next_with_id()).await {
            let id = match ended {
                Ok((id, reported)) => {
                    left.extend(reported);
                    id
                }
                Err(error) => {
                    error!(%error, "manager task panicked or was aborted");
                    error.id()
                }
            };
            self.running.retain(|(running, _)| *running != id);
        }
        self.tasks.abort_all();
        left.extend(self.running.drain(..).map(|(_, left)| left));
        left
    }
}
