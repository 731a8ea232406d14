//! The resource that a lock guards: it keeps the largest token and refuses a smaller one.

use monolock_core::Token;

use crate::broken::Broken;
use crate::marks::mark;
use crate::network::ConnId;
use crate::oracle::Oracle;
use crate::story::Who;
use crate::watch::Grant;
use crate::world::World;

#[derive(Debug, Default)]
pub(crate) struct Resource {
    largest: Option<Token>,
    /// What the oracle remembers by itself: whose write was let in last, in the order of grants.
    last: Option<Grant>,
}

/// A write under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) id: ConnId,
    pub(crate) lock: usize,
    pub(crate) grant: Grant,
}

impl World {
    pub(crate) fn write_lands(&mut self, write: usize) {
        let Write { id, lock, grant } = self.writes[write];
        let broken = self.broken;
        let resource = &mut self.resources[lock];
        let is_taken = resource.largest.is_none_or(|largest| grant.token >= largest);
        if is_taken && broken != Some(Broken::ForgetfulResource) {
            resource.largest = Some(grant.token);
        }
        // Across eras the numbers mean nothing, which the documentation says.
        let last = resource.last.filter(|last| last.era == grant.era);
        let is_stale = last.is_some_and(|last| last.ordinal > grant.ordinal);
        let same_era = resource.last.is_none_or(|last| last.era == grant.era);
        if is_taken {
            resource.last = Some(grant);
        }
        let who = self.who(id);
        self.tell(Who::Resource, 40 + u64::from(is_taken), || {
            format!("a write of {who} with {:?} is {}", grant.token, if is_taken { "let in" } else { "refused" })
        });
        let believes = self.believes(id);
        match (is_taken, is_stale) {
            (true, true) => self.breach(Oracle::Fence, format!("a stale write with {:?} was let in", grant.token)),
            (false, false) if same_era => {
                self.breach(
                    Oracle::Fence,
                    format!("a write with {:?} was refused, and nobody was granted later", grant.token),
                );
            }
            (false, false) => self.marks.hit(mark!("write refused since the clock went back")),
            (false, true) => {
                self.marks.hit(mark!("stale write refused"));
                if believes {
                    self.marks.hit(mark!("stale write of a believer refused"));
                }
            }
            (true, false) => self.marks.hit(mark!("write let in")),
        }
    }
}
