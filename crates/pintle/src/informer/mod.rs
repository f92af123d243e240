//! One watch per kind and scope, any number of independent handlers.

mod buffer;
mod builder;
mod core;
mod event;
mod factory;
mod filter;
mod handler;
mod metrics;
mod registration;
mod shared;
mod stream;
mod usage;

pub use self::{
    buffer::Backlog,
    builder::InformerBuilder,
    event::{Deleted, Event},
    factory::{InformerFactory, InformerRequest, NotSynced, Unsynced},
    registration::Registration,
    shared::{HandlerBuilder, SharedInformer},
    stream::EventStream,
};

#[cfg(test)]
mod tests;
