//! The blocking driver: sessions on plain threads.

use crate::config::Handle;

/// A client on plain threads.
#[derive(Clone, Debug)]
pub struct Client {
    #[expect(dead_code, reason = "to come")]
    handle: Handle,
}
