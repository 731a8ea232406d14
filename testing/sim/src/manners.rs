//! Clients with bad manners: they send what the protocol forbids, and look at what they are told.

use monolock_core::Lease;
use monolock_core::wire::{ClientFrame, ErrorClass, ServerFrame, decode_server};

use crate::client::Outcome;
use crate::marks::mark;
use crate::network::{CLIENT, ConnId};
use crate::oracle::Oracle;
use crate::plan::{Profile, SlotPlan};
use crate::watch::Expected;
use crate::world::World;

impl World {
    /// A client with bad manners: it says what is forbidden, and looks at what it is told.
    pub(crate) fn bad_client_turn(&mut self, slot: usize, id: ConnId) {
        let end = &self.conns[id].ends[CLIENT];
        if end.failed.is_some() || end.ended && end.inbox.len() < 3 {
            self.bad_client_is_done(slot, id);
            return;
        }
        if end.established && self.conns[id].watch.armed.is_none() {
            self.conns[id].watch.armed = Some(monolock_core::Timestamp::ORIGIN);
            let (bytes, expected, shuts) = self.bad_words(slot);
            self.conns[id].watch.expects = Some(expected);
            self.send_bytes(id, CLIENT, &bytes);
            if shuts {
                self.shut_sending(id, CLIENT);
            }
        } else if end.ended {
            self.bad_client_is_done(slot, id);
        }
    }

    fn bad_words(&mut self, slot: usize) -> (Vec<u8>, Expected, bool) {
        let SlotPlan { lock, lease_ms, .. } = self.slots[slot].plan;
        let lease = Lease::from_millis(lease_ms).expect("no lease is 0");
        let mut acquire = Vec::new();
        ClientFrame::Acquire { lease, name: self.names[lock].as_name_ref() }.encode(&mut acquire);
        let too_long = self.plan.server.max_lease_ms.is_some_and(|most| lease_ms > most);
        let mut junk = vec![0x7f];
        junk.extend((0..600).map(|_| 0x02));
        match self.rng.below(10) {
            0 => (vec![2], Expected::Code(0x11), false),
            1 => (vec![1, 2], Expected::Code(0x10), false),
            2 => (junk, Expected::Code(0x13), false),
            3 => (vec![1, 1, 0, 0, 0, 0], Expected::Code(0x17), false),
            4 => (vec![1, 1, 0, 0, 0, 1, 0, 0], Expected::Code(0x14), false),
            5 => (vec![1, 1, 0, 0, 0, 1, 1, 0], Expected::Code(0x15), false),
            6 => (vec![1, 1, 0, 0, 0, 1, 0, 1, 0xff], Expected::Code(0x16), false),
            7 => {
                let twice = [acquire.as_slice(), acquire.as_slice()].concat();
                (twice, Expected::Code(if too_long { 0x19 } else { 0x12 }), false)
            }
            8 => (Vec::new(), Expected::Silence, false),
            _ => (acquire[..acquire.len() - 1].to_vec(), Expected::Silence, true),
        }
    }

    pub(crate) fn bad_client_is_done(&mut self, slot: usize, id: ConnId) {
        let mut said = Vec::new();
        self.conns[id].ends[CLIENT].read(usize::MAX, &mut said);
        let mut rest = said.as_slice();
        let mut code = None;
        while let Ok(Some((frame, length))) = decode_server(rest) {
            if let ServerFrame::Error { code: told, .. } = frame {
                code = Some(told);
            }
            rest = &rest[length..];
        }
        let who = self.who(id);
        self.tell(who, 28, || match code {
            Some(code) => format!("broke the protocol, and is told {code}"),
            None => "broke the protocol, and is told nothing".into(),
        });
        let expected = self.conns[id].watch.expects;
        let was_asked = self.conns[id].watch.armed.is_some();
        let calm = self.plan.profile == Profile::Calm && self.conns[id].ends[CLIENT].ended;
        match (code, expected) {
            (Some(code), Some(Expected::Code(expected))) if code.0 == expected => {
                self.marks.hit(mark!("protocol error told"));
            }
            // What a server says to anybody.
            (Some(code), _) if code.class() == ErrorClass::ServerCondition => {}
            (Some(code), _) => self.breach(Oracle::Protocol, format!("a client was told {code} for {expected:?}")),
            (None, Some(Expected::Code(expected))) if calm && was_asked => {
                self.breach(Oracle::Protocol, format!("an ERROR {expected:#04x} did not arrive"));
            }
            (None, _) => {}
        }
        self.ends_attempt(slot, Outcome::WaitedLong);
    }
}
