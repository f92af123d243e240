//! Tests of the crate itself, on small controllers.

mod interference;
mod kinds_of_controllers;
mod rare_faults;
mod replay;
mod strangers;
mod webs;
