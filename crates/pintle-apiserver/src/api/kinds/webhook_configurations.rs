//! Webhook configurations: they take effect with the write that stores them.

use super::Kind;
use crate::{api::Api, store::Object};

/// `mutatingwebhookconfigurations` or `validatingwebhookconfigurations`.
#[derive(Debug)]
pub(super) struct Configurations {
    mutating: bool,
}

pub(super) const MUTATING: Configurations = Configurations { mutating: true };
pub(super) const VALIDATING: Configurations = Configurations { mutating: false };

impl Kind for Configurations {
    fn knows_plain_finalizers(&self) -> bool {
        false
    }

    fn after_write(&self, api: &Api, object: &Object) {
        let hooks = api.webhooks.hooks(self.mutating);
        hooks.refresh(api, object.name());
    }

    fn after_delete(&self, api: &Api, object: &Object) {
        self.after_write(api, object);
    }
}
