//! One file for each command. Each returns the exit code, or the failure with its own.

pub(crate) mod acl;
pub(crate) mod acquire;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod enter;
pub(crate) mod extend;
mod follow;
pub(crate) mod force;
pub(crate) mod generate;
pub(crate) mod init;
#[cfg(test)]
mod lab;
pub(crate) mod list;
pub(crate) mod marks;
mod once;
mod permits;
mod prior;
mod refusals;
pub(crate) mod release;
pub(crate) mod run;
pub(crate) mod status;
