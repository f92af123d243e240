//! Metrics without the cargo feature `metrics`: recording does nothing and costs nothing.
//!
//! Stages record with the types of `prometheus-client`. Without the feature, the types here take
//! their place, so that no stage has to know about it.

#![allow(
    dead_code,
    clippy::needless_pass_by_value,
    clippy::trivially_copy_pass_by_ref,
    clippy::unused_self,
    reason = "has the interface of prometheus-client"
)]

use std::{
    fmt,
    marker::PhantomData,
    sync::atomic::{AtomicI64, AtomicU64},
};

/// The metrics of a program. Without the cargo feature `metrics` they record nothing.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    _private: (),
}

impl Metrics {
    /// Returns an empty set of metrics.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn set<S: MetricSet>(&self) -> S {
        S::default()
    }

    pub(crate) fn encode(&self) -> String {
        String::new()
    }
}

pub(crate) trait MetricSet: Clone + Default + Send + Sync + 'static {
    fn register(&self, families: &mut Families);
}

pub(crate) struct Families(());

impl Families {
    pub(crate) fn register<M>(&mut self, _name: impl Into<String>, _help: &str, _metric: M) {}

    pub(crate) fn register_seconds<M>(
        &mut self,
        _name: impl Into<String>,
        _help: &str,
        _metric: M,
    ) {
    }

    pub(crate) fn register_collector<C>(&mut self, _collector: C) {}
}

/// A stand-in without state for a metric or a family of metrics.
macro_rules! stand_in {
    ($name:ident<$($parameter:ident = $default:ty),*>) => {
        pub(crate) struct $name<$($parameter = $default),*>(PhantomData<fn() -> ($($parameter,)*)>);

        impl<$($parameter),*> Clone for $name<$($parameter),*> {
            fn clone(&self) -> Self {
                Self(PhantomData)
            }
        }

        impl<$($parameter),*> Default for $name<$($parameter),*> {
            fn default() -> Self {
                Self(PhantomData)
            }
        }

        impl<$($parameter),*> fmt::Debug for $name<$($parameter),*> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}

stand_in!(Counter<N = u64, A = AtomicU64>);
stand_in!(Gauge<N = i64, A = AtomicI64>);
stand_in!(Histogram<N = f64>);
stand_in!(Family<S = (), M = (), C = fn() -> M>);

impl<N: Default, A> Counter<N, A> {
    pub(crate) fn inc(&self) -> N {
        N::default()
    }

    pub(crate) fn inc_by(&self, _value: N) -> N {
        N::default()
    }
}

impl<N: Default, A> Gauge<N, A> {
    pub(crate) fn inc(&self) -> N {
        N::default()
    }

    pub(crate) fn dec(&self) -> N {
        N::default()
    }

    pub(crate) fn inc_by(&self, _value: N) -> N {
        N::default()
    }

    pub(crate) fn set(&self, _value: N) -> N {
        N::default()
    }
}

impl Histogram {
    pub(crate) fn new(_buckets: impl IntoIterator<Item = f64>) -> Self {
        Self::default()
    }

    pub(crate) fn observe(&self, _value: f64) {}
}

impl<S, M: Default, C> Family<S, M, C> {
    pub(crate) fn new_with_constructor(_constructor: C) -> Self {
        Self::default()
    }

    pub(crate) fn get_or_create(&self, _labels: &S) -> M {
        M::default()
    }

    pub(crate) fn get_or_create_owned(&self, _labels: &S) -> M {
        M::default()
    }
}

pub(crate) fn exponential_buckets(_: f64, _: f64, _: u16) -> impl Iterator<Item = f64> {
    std::iter::empty()
}

/// Declares a struct whose fields are labels.
macro_rules! label_set {
    ($(#[$meta:meta])* $visibility:vis struct $name:ident { $($field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        $visibility struct $name {
            $($field: $type,)*
        }
    };
}
pub(crate) use label_set;
