//! The least that a server can be: what monolock is measured against.
//!
//! Both speak as much of the protocol as the load generator understands, and nothing behind it.

pub(crate) mod echo;
pub(crate) mod relay;
