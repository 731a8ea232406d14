//! How a server's process begins and ends, what it writes down for the next, and what an operator does to it.

use std::sync::Arc;

use fnv::FnvBuildHasher;
use monolock_core::wire::ErrorCode;
use monolock_core::{LockEngine, ReleaseReason, SessionId, Timestamp, Token, TokenSequence};

use crate::broken::Broken;
use crate::clock::{MS, SECOND};
use crate::ledger::{Asked, Ledger};
use crate::marks::mark;
use crate::network::{CLIENT, SERVER, Stage};
use crate::plan::{LONG_LEASE_MS, TokenFile};
use crate::server::{Engine, Life, Running};
use crate::story::{Who, span};
use crate::world::{Event, World};

/// How often it is looked at whether more tokens are to be reserved.
const TOKEN_CARE_INTERVAL: u64 = SECOND;
/// What a controlled stop may take.
pub(crate) const STOP_TIME: u64 = 1500 * MS;

impl World {
    /// The server's process starts.
    pub(crate) fn boot(&mut self) {
        if self.server.running.is_some() {
            return;
        }
        self.server.powered = true;
        self.server.life += 1;
        self.server.conns.clear();
        self.server.deferred.clear();
        let plan = self.plan.server.clone();
        let wall = self.server.wall.at(self.t);
        let (wall_second, wall_micros) = (wall / SECOND, wall % SECOND / 1000);
        let tokens = match plan.token_file {
            TokenFile::None => TokenSequence::new(),
            TokenFile::Ample | TokenFile::Scarce => {
                let mark = self.server.mark.and_then(Token::new).or(Token::new(1)).expect("1 is not 0");
                TokenSequence::starting_at(mark)
            }
        };
        if self.broken != Some(Broken::TokensBeginAnew) {
            tokens.lift_to(TokenSequence::at_unix_second(wall_second).saturating_add(wall_micros));
        }
        let origin = self.server.clock.at(self.t);
        let grants_from = Timestamp::from_nanos(plan.grace);
        let kept = if self.broken == Some(Broken::NoGrace) { Timestamp::ORIGIN } else { grants_from };
        let tokens = Arc::new(tokens);
        self.server.running = Some(Running {
            engine: LockEngine::new(Arc::clone(&tokens), FnvBuildHasher::default()).granting_from(kept),
            tokens,
            reserved: u64::MAX,
            origin,
            grants_from: kept,
            conns: Vec::new(),
            armed: Timestamp::MAX,
            stopping: false,
        });
        let before = self.lives.iter().map(|life| life.last_wall).max().unwrap_or(0);
        let rises = plan.token_file != TokenFile::None || wall >= before;
        if !rises {
            self.era += 1;
            self.marks.hit(mark!("clock behind its past at a start without a token file"));
        }
        let last_token = if rises { self.ledger.last_token() } else { None };
        self.ledger = Ledger::new(self.plan.locks, last_token);
        self.lives.push(Life { ended: None, grace: plan.grace, last_wall: wall });
        let life = self.server.life;
        self.tell(Who::Server, 2, || match plan.grace {
            0 => format!("starts, life {life}"),
            grace => format!("starts, life {life}, and grants nothing for {}", span(grace)),
        });
        if plan.token_file != TokenFile::None {
            if life > 1 && self.server.mark.is_some() {
                self.marks.hit(mark!("token file used at a restart"));
            }
            // A start that cannot reserve tokens fails; whoever supervises it tries again.
            if !self.reserve() {
                self.server.running = None;
                self.lives.pop();
                self.server.life -= 1;
                self.tell(Who::Server, 3, || "cannot write its token file and exits".into());
                self.schedule(self.t + SECOND, Event::Boot);
                return;
            }
            self.schedule(self.t + TOKEN_CARE_INTERVAL, Event::TokenCare { life });
        }
    }

    /// Writes the next mark down, then lets tokens below it be granted.
    fn reserve(&mut self) -> bool {
        if self.server.disk_is_full > 0 {
            return false;
        }
        let ahead = if self.plan.server.token_file == TokenFile::Scarce { 4 } else { 3600 << 20 };
        let second = self.server.wall.at(self.t) / SECOND;
        let Some(running) = &mut self.server.running else { return false };
        let end = running.tokens.upcoming().max(TokenSequence::at_unix_second(second)) + ahead;
        self.server.mark = Some(end);
        running.reserved = end;
        running.tokens.reserve_below(end);
        true
    }

    pub(crate) fn token_care(&mut self, life: u32) {
        if life != self.server.life {
            return;
        }
        let second = self.server.wall.at(self.t) / SECOND;
        let half = if self.plan.server.token_file == TokenFile::Scarce { 2 } else { 1800 << 20 };
        let Some(running) = &self.server.running else { return };
        let upcoming = running.tokens.upcoming().max(TokenSequence::at_unix_second(second));
        if upcoming + half > running.reserved && !running.stopping {
            let spent = !running.tokens.has_next();
            if self.reserve() {
                if spent {
                    self.marks.hit(mark!("tokens spent, and reserved anew"));
                }
                self.input(Asked::Nothing, Engine::tick);
                self.settled();
            } else {
                self.marks.hit(mark!("token file not written"));
            }
        }
        self.schedule(self.t + TOKEN_CARE_INTERVAL, Event::TokenCare { life });
    }

    /// A controlled stop begins.
    pub(crate) fn stop(&mut self) {
        let Some(running) = &mut self.server.running else { return };
        if running.stopping {
            return;
        }
        running.stopping = true;
        self.tell(Who::Server, 8, || "stops, and tells everybody".into());
        self.input(Asked::Close, Engine::close);
        for id in self.server.conns.clone() {
            if matches!(self.conns[id].stage, Stage::First | Stage::Backlog) {
                self.farewell(id, ErrorCode::SERVER_SHUTTING_DOWN, b"server shutting down");
            }
        }
        self.settled();
        if self.server.mark.is_some()
            && self.server.disk_is_full == 0
            && let Some(running) = &self.server.running
        {
            running.tokens.reserve_below(0);
            self.server.mark = Some(running.tokens.upcoming());
        }
        let life = self.server.life;
        self.schedule(self.t + STOP_TIME, Event::Exit { life });
    }

    pub(crate) fn exit(&mut self, life: u32) {
        if life == self.server.life && self.server.running.is_some() {
            self.die(true);
        }
    }

    /// The process is gone. Its system closes its sockets, unless the machine is off as well.
    pub(crate) fn die(&mut self, has_power: bool) {
        if self.server.running.take().is_none() {
            return;
        }
        let held: Vec<u64> = (0..self.plan.locks).filter_map(|lock| self.ledger.holder(lock)).collect();
        if !held.is_empty() {
            self.marks.hit(mark!("restart under a holder"));
        }
        if let Some(life) = self.lives.last_mut() {
            life.ended = Some(self.t);
        }
        self.marks.hit(if has_power { mark!("server process ended") } else { mark!("server lost its power") });
        self.tell(Who::Server, 9, || if has_power { "is dead".into() } else { "has lost its power".into() });
        for id in std::mem::take(&mut self.server.conns) {
            self.conns[id].stage = Stage::Closed;
            if has_power {
                self.close(id, SERVER);
            } else {
                self.vanish(id, SERVER);
            }
        }
        self.server.deferred.clear();
        self.server.paused = 0;
        self.ledger = Ledger::new(self.plan.locks, self.ledger.last_token());
    }

    /// An operator ends a claim.
    pub(crate) fn operate(&mut self, held: bool) {
        let Some(running) = &self.server.running else { return };
        let mut sessions: Vec<SessionId> = Vec::new();
        for lock in running.engine.locks() {
            if held {
                sessions.extend(lock.holder().map(|holder| holder.id()));
            } else {
                sessions.extend(lock.waiters().map(|waiter| waiter.id()));
            }
        }
        if sessions.is_empty() || self.server.is_stopped() {
            return;
        }
        let session = sessions[self.rng.index(sessions.len())];
        self.tell(
            Who::Operator,
            10,
            || if held { "releases a lock by force".into() } else { "removes a waiter".into() },
        );
        self.end(session, ReleaseReason::Force);
    }

    /// Ends the claims with long leases whose clients are gone: somebody would.
    pub(crate) fn end_abandoned_claims(&mut self) {
        let Some(running) = &self.server.running else { return };
        let sessions = running.engine.locks().flat_map(|lock| lock.holder().into_iter().chain(lock.waiters()));
        let abandoned: Vec<SessionId> = sessions
            .filter(|session| {
                let conn = running.conns[session.id().index()].map(|id| &self.conns[id]);
                let is_long = session.lease().as_millis() > LONG_LEASE_MS;
                is_long && conn.is_some_and(|conn| conn.dark || !conn.ends[CLIENT].open || conn.session.is_none())
            })
            .map(|session| session.id())
            .collect();
        for session in abandoned {
            self.tell(Who::Operator, 11, || "ends a claim whose client is gone".into());
            self.end(session, ReleaseReason::Force);
        }
    }
}
