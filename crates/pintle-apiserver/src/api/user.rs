//! Who is asking.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Whose members may do everything, and ask as somebody else.
pub(crate) const ADMINISTRATORS: &str = "system:masters";
/// The group of everybody the server knows.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// Tells by which credential somebody was recognized.
pub(crate) const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// Who is asking.
#[derive(Debug, Clone, Default)]
pub(crate) struct User {
    pub(crate) name: String,
    /// Empty if it has none.
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    /// What else is known, by name.
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Who uses the server in process, and who holds its token.
    pub(crate) fn admin() -> Self {
        Self {
            name: "kubernetes-admin".to_owned(),
            groups: vec![ADMINISTRATORS.to_owned(), AUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    pub(crate) fn is_administrator(&self) -> bool {
        self.groups.iter().any(|group| group == ADMINISTRATORS)
    }

    /// As reviews tell it.
    pub(crate) fn info(&self) -> Value {
        let mut info = json!({"username": self.name});
        if !self.uid.is_empty() {
            info["uid"] = self.uid.clone().into();
        }
        if !self.groups.is_empty() {
            info["groups"] = self.groups.clone().into();
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }
}
