//! Scenarios of the kit itself.

mod kinds_of_controllers;
mod rare_faults;
mod replay;
mod webs;
