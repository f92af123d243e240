//! The permissions that a whole program needs.

use super::{Manager, component::Election};
use crate::rbac::Rules;

impl Manager {
    /// Returns the permissions that the program needs in its own cluster: those of its controllers,
    /// those that components declare, and those for its elections.
    ///
    /// The permissions to a Lease are for the namespace that the election is configured with.
    /// Unless [`leader_election_with`](super::Builder::leader_election_with) sets one, that is the
    /// client's default, which may differ between a laptop and the cluster.
    ///
    /// Nothing is sent, so a program can print its manifests with a client for any address:
    ///
    /// ```
    /// # use pintle::manager::Manager;
    /// use pintle::rbac::Account;
    ///
    /// # fn example(manager: &Manager) -> serde_json::Result<()> {
    /// let manifests = manager.rules().manifests(&Account::new("shop-operator", "shop"));
    /// for object in manifests.objects()? {
    ///     println!("{object}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn rules(&self) -> Rules {
        let mut rules = Rules::new();
        for component in &self.components {
            rules = rules.and(component.rules.clone());
            if let Election::Named(name) = &component.election
                && !component.is_server()
            {
                rules = rules.elects(self.election.namespace(&self.common), name);
            }
        }
        if self.elector.is_some() {
            rules = rules.elects(self.election.namespace(&self.common), &self.common.name);
        }
        rules
    }
}
