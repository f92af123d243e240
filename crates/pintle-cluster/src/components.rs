//! The health of the control plane, as `kubectl get componentstatuses` shows it.

use pintle_apiserver::ApiServer;

use crate::loop_set::Loops;

/// Reports the control plane components that the loops replace as healthy until dropped.
#[derive(Debug)]
pub(crate) struct Components {
    server: ApiServer,
    names: Vec<&'static str>,
}

impl Components {
    pub(crate) fn new(server: &ApiServer, loops: Loops) -> Self {
        let mut names = Vec::new();
        if loops.contains(Loops::PODS) {
            names.push("scheduler");
        }
        // Nodes register themselves; all other loops belong to the controller manager.
        if loops.without(Loops::PODS | Loops::NODES) != Loops::NONE {
            names.push("controller-manager");
        }
        for name in &names {
            server.report_component(name, Ok(()));
        }
        Self {
            server: server.clone(),
            names,
        }
    }
}

impl Drop for Components {
    fn drop(&mut self) {
        for name in &self.names {
            let stopped = Err("stopped".to_owned());
            self.server.report_component(name, stopped);
        }
    }
}
