//! An object without its type.

use super::{Kind, Object, ObjectKey, OwnerRef};

/// A cached object, whatever its type.
pub(crate) trait Header: Send + Sync {
    fn key(&self) -> &ObjectKey;
    fn uid(&self) -> &str;
    fn resource_version(&self) -> &str;
    #[cfg_attr(not(feature = "inspect"), allow(dead_code))]
    fn generation(&self) -> Option<i64>;
    fn is_being_deleted(&self) -> bool;
    fn controller_owner(&self) -> Option<&OwnerRef>;
    #[cfg_attr(not(feature = "inspect"), allow(dead_code))]
    fn owners(&self) -> &[OwnerRef];
    fn label(&self, name: &str) -> Option<&str>;
    fn bytes(&self) -> &[u8];
}

impl<K: Kind> Header for Object<K> {
    fn key(&self) -> &ObjectKey {
        Object::key(self)
    }

    fn uid(&self) -> &str {
        Object::uid(self)
    }

    fn resource_version(&self) -> &str {
        Object::resource_version(self)
    }

    fn generation(&self) -> Option<i64> {
        Object::generation(self)
    }

    fn is_being_deleted(&self) -> bool {
        Object::is_being_deleted(self)
    }

    fn controller_owner(&self) -> Option<&OwnerRef> {
        Object::controller_owner(self)
    }

    fn owners(&self) -> &[OwnerRef] {
        self.owner_references()
    }

    fn label(&self, name: &str) -> Option<&str> {
        self.labels().get(name)
    }

    fn bytes(&self) -> &[u8] {
        Object::bytes(self)
    }
}
