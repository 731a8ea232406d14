//! Names to addresses, anew at each attempt and without a runtime.
//!
//! The system's resolver blocks and cannot be interrupted, so it runs on a thread of its own and callers wait for its
//! answer as long as they like. There is at most one such thread for each address of a client: an attempt that comes
//! while a look-up is under way waits for that one, so a resolver that hangs collects no threads.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::signal::Signal;

/// What a look-up finds.
pub(crate) type Found = Result<Arc<[SocketAddr]>, Arc<io::Error>>;

/// The look-ups of one client.
#[derive(Default)]
pub(crate) struct Resolver {
    under_way: Mutex<Vec<(String, Arc<Signal<Found>>)>>,
}

impl Resolver {
    /// Looks `address` (`host:port`) up.
    pub(crate) fn look_up(self: &Arc<Self>, address: &str) -> Arc<Signal<Found>> {
        if let Ok(literal) = address.parse::<SocketAddr>() {
            let answer = Signal::new();
            answer.set(Ok(Arc::from([literal])));
            return answer;
        }
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, answer)) = under_way.iter().find(|(other, _)| other == address) {
            return Arc::clone(answer);
        }
        let answer = Signal::new();
        let job = (Arc::clone(self), address.to_owned(), Arc::clone(&answer));
        let spawned = thread::Builder::new().name("monolock-lookup".to_owned()).spawn(move || {
            let (resolver, address, answer) = job;
            let found = address.to_socket_addrs().map(Iterator::collect::<Arc<[SocketAddr]>>).map_err(Arc::new);
            resolver.forget(&address);
            answer.set(found);
        });
        match spawned {
            Ok(_) => under_way.push((address.to_owned(), Arc::clone(&answer))),
            Err(error) => {
                answer.set(Err(Arc::new(error)));
            }
        }
        answer
    }

    fn forget(&self, address: &str) {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.retain(|(other, _)| other != address);
    }
}
