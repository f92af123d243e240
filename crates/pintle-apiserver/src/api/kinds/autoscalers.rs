//! `HorizontalPodAutoscalers`: `autoscaling/v1` is a view of the stored `v2`.

use super::Kind;
use crate::registry::convert::Conversion;

/// `autoscaling/horizontalpodautoscalers`.
#[derive(Debug)]
pub(super) struct Autoscalers;

impl Kind for Autoscalers {
    fn conversion(&self, version: &str) -> Option<Conversion> {
        (version == "v1").then_some(Conversion::Autoscalers)
    }
}
