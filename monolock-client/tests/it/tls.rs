//! Both clients over TLS: all that TLS could break of what they promise.

use std::io;
use std::sync::{Arc, LazyLock, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use monolock_client::clock::Clock;
use monolock_client::{Builder, Cancel, Client, Error, ErrorCode, ErrorKind, Held, LossReason, blocking};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use tokio::runtime::Runtime;

use crate::certificates::Authority;
use crate::server::{PATIENCE, Play, Server, StandingClock, WAITING, acquired, error};

/// Long enough for nothing to happen by itself within a test.
const LONG: Duration = Duration::from_mins(1);

/// A lease by a clock that stands still until a test moves it: however brief, no machine is too busy to keep it.
const BRIEF: Duration = Duration::from_millis(200);

/// The host of the addresses here.
const HOST: &str = "127.0.0.1";

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());

#[derive(Clone, Copy, Debug)]
enum Driver {
    Async,
    Blocking,
}

const DRIVERS: [Driver; 2] = [Driver::Async, Driver::Blocking];

/// What a test may set.
struct Settings {
    addresses: Vec<String>,
    tls: ClientConfig,
    server_name: Option<ServerName<'static>>,
    connect_timeout: Duration,
    clock: Option<Arc<dyn Clock>>,
    cancel: Cancel,
}

impl Settings {
    fn new(play: &Play, tls: ClientConfig) -> Self {
        let addresses = vec![play.address.clone()];
        let (connect_timeout, cancel) = (LONG, Cancel::new());
        Self { addresses, tls, server_name: None, connect_timeout, clock: None, cancel }
    }

    fn by(clock: &StandingClock, play: &Play, tls: ClientConfig) -> Self {
        Self { clock: Some(Arc::new(clock.clone())), ..Self::new(play, tls) }
    }

    fn builder<C>(self, begin: fn(String) -> Builder<C>) -> Builder<C> {
        let mut addresses = self.addresses.into_iter();
        let mut builder = begin(addresses.next().unwrap()).tls(self.tls).connect_timeout(self.connect_timeout);
        for address in addresses {
            builder = builder.address(address);
        }
        if let Some(name) = self.server_name {
            builder = builder.tls_server_name(name);
        }
        match self.clock {
            Some(clock) => builder.clock(clock),
            None => builder,
        }
    }

    fn acquire(self, driver: Driver, lease: Duration) -> Result<Guard, Error> {
        let cancel = self.cancel.clone();
        match driver {
            Driver::Async => {
                let client = self.builder(Client::builder).build().unwrap().cancel_on(&cancel);
                RUNTIME.block_on(client.acquire("jobs", lease)).map(Guard::Async)
            }
            Driver::Blocking => {
                let client = self.builder(blocking::Client::builder).build().unwrap().cancel_on(&cancel);
                client.acquire("jobs", lease).map(Guard::Blocking)
            }
        }
    }
}

enum Guard {
    Async(monolock_client::LockGuard),
    Blocking(blocking::LockGuard),
}

impl Guard {
    fn held(&self) -> Held {
        match self {
            Self::Async(guard) => guard.held(),
            Self::Blocking(guard) => guard.held(),
        }
    }

    #[track_caller]
    fn lost(&self) -> LossReason {
        self.held().wait_lost(PATIENCE).expect("the lock is lost")
    }
}

/// Why a client with this configuration cannot be had by a server with that one.
#[track_caller]
fn refusal(driver: Driver, server: ServerConfig, client: ClientConfig) -> String {
    let play = Server::bind_tls(server).play(|server| {
        let mut peer = server.accept();
        assert!(peer.shakes_hands().is_err());
        peer.drains();
    });
    let error = Settings::new(&play, client).acquire(driver, LONG).err().expect("TLS fails");
    assert_eq!((error.kind(), error.server_code()), (ErrorKind::Unreachable, None));
    assert!(error.is_retryable() && error.to_string().contains(&play.address), "{error}");
    play.finish();
    error.to_string()
}

#[test]
fn a_lock_is_held_and_released_with_a_farewell() {
    let authority = Authority::new();
    for driver in DRIVERS {
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let (clock, (answered, all_answered)) = (StandingClock::default(), mpsc::channel());
            let play = Server::bind_tls(authority.server(HOST)).play({
                let clock = clock.clone();
                move |server| {
                    let mut peer = server.accept();
                    assert_eq!(peer.reads_acquire(), (200, "jobs".to_owned()));
                    peer.sends(WAITING);
                    peer.answers_beats(&clock, BRIEF, 2, WAITING);
                    peer.sends(&acquired(41));
                    peer.answers_beats(&clock, BRIEF, 8, &acquired(41));
                    answered.send(()).unwrap();
                    peer.reads_to_the_farewell();
                }
            });
            let builder = ClientConfig::builder_with_protocol_versions(&[version]);
            let tls = builder.with_root_certificates(authority.roots()).with_no_client_auth();
            let guard = Settings::by(&clock, &play, tls).acquire(driver, BRIEF).unwrap();
            assert_eq!(guard.held().token().get(), 41);
            all_answered.recv().unwrap();
            assert_eq!(guard.held().loss(), None);
            drop(guard);
            play.finish();
        }
    }
}

#[test]
fn b38_records_come_cut_and_glued() {
    let authority = Authority::new();
    for driver in DRIVERS {
        let clock = StandingClock::default();
        let play = Server::bind_tls(authority.server(HOST)).play({
            let clock = clock.clone();
            move |server| {
                let mut peer = server.accept_claim();
                let waiting = peer.encrypts(WAITING);
                for byte in waiting {
                    peer.sends_raw(&[byte]);
                }
                peer.reads_beat(&clock, BRIEF);
                // The answer and the push in one go, each in records of its own, the push cut within its token.
                let push = acquired(41);
                let records = [peer.encrypts(WAITING), peer.encrypts(&push[..4]), peer.encrypts(&push[4..])].concat();
                let (head, tail) = records.split_at(records.len() - 3);
                peer.sends_raw(head);
                thread::sleep(Duration::from_millis(20));
                peer.sends_raw(tail);
                peer.reads_to_the_farewell();
            }
        });
        let guard = Settings::by(&clock, &play, authority.client()).acquire(driver, BRIEF).unwrap();
        assert_eq!(guard.held().token().get(), 41);
        drop(guard);
        play.finish();
    }
}

#[test]
fn b03_a_late_reply_revives_nothing() {
    let authority = Authority::new();
    for driver in DRIVERS {
        let clock = StandingClock::default();
        let play = Server::bind_tls(authority.server(HOST)).play({
            let clock = clock.clone();
            move |server| {
                let mut peer = server.accept_claim();
                peer.sends(&acquired(41));
                peer.reads_beat(&clock, BRIEF);
                // Had the reply counted, the end would be 1.05 leases from the beginning.
                clock.advance(BRIEF * 11 / 20);
                peer.sends(&acquired(41));
                peer.reads_to_the_end();
            }
        });
        let guard = Settings::by(&clock, &play, authority.client()).acquire(driver, BRIEF).unwrap();
        assert_eq!(guard.lost(), LossReason::Timeout);
        assert!(!guard.held().is_held());
        play.finish();
    }
}

#[test]
fn b07_a_record_that_never_ends_holds_no_loss_off() {
    let authority = Authority::new();
    for driver in DRIVERS {
        let clock = StandingClock::default();
        let play = Server::bind_tls(authority.server(HOST)).play({
            let clock = clock.clone();
            move |server| {
                let mut peer = server.accept_claim();
                peer.sends(&acquired(41));
                // The head of a record of 16 KiB, and then its body, byte by byte.
                peer.sends_raw(&[0x17, 3, 3, 0x40, 0]);
                peer.reads_beat(&clock, BRIEF);
                clock.advance(BRIEF);
                while peer.sends_raw(&[0]) {
                    thread::sleep(Duration::from_millis(5));
                }
            }
        });
        let guard = Settings::by(&clock, &play, authority.client()).acquire(driver, BRIEF).unwrap();
        // The record would take longer than this waits.
        assert_eq!(guard.lost(), LossReason::Timeout);
        play.finish();
    }
}

#[test]
fn every_end_of_the_connection_is_a_loss() {
    type Part = fn(&mut crate::server::Peer);
    let parts: [(Part, Option<io::ErrorKind>); 3] = [
        (|peer| peer.half_closes(), None),
        (|peer| peer.says_farewell(), None),
        (|peer| assert!(peer.sends_raw(&[0x17, 3, 3, 0, 4, 1, 2, 3, 4])), Some(io::ErrorKind::InvalidData)),
    ];
    let authority = Authority::new();
    for driver in DRIVERS {
        for (part, error) in parts {
            let play = Server::bind_tls(authority.server(HOST)).play(move |server| {
                let mut peer = server.accept_claim();
                peer.sends(&acquired(41));
                part(&mut peer);
                peer.drains();
            });
            let guard = Settings::new(&play, authority.client()).acquire(driver, LONG).unwrap();
            assert_eq!(guard.lost(), LossReason::Closed { error });
            play.finish();
        }
    }
}

#[test]
fn the_last_word_before_the_farewell_is_heard() {
    let authority = Authority::new();
    for driver in DRIVERS {
        // Said before the claim was read, and said to a holder.
        let play = Server::bind_tls(authority.server(HOST)).play(|server| {
            let mut stopping = server.accept();
            stopping.shakes_hands().unwrap();
            stopping.sends(&error(0x01));
            stopping.says_farewell();
            stopping.drains();
            let mut peer = server.accept_claim();
            let word = [peer.encrypts(&acquired(41)), peer.encrypts(&error(0x02))].concat();
            peer.sends_raw(&word);
            peer.says_farewell();
            peer.drains();
        });
        let refused = Settings::new(&play, authority.client()).acquire(driver, LONG).err().unwrap();
        assert_eq!((refused.kind(), refused.server_code()), (ErrorKind::Unreachable, Some(ErrorCode(0x01))));
        let guard = Settings::new(&play, authority.client()).acquire(driver, LONG).unwrap();
        assert_eq!(guard.lost().server_code(), Some(ErrorCode(0x02)));
        play.finish();
    }
}

#[test]
fn a_word_that_comes_with_the_handshake_is_heard() {
    const ROUNDS: usize = 8;

    let authority = Authority::new();
    for driver in DRIVERS {
        // The client reads in pieces: in some rounds the word shares one with the end of the handshake.
        let mut config = authority.server(HOST);
        config.send_half_rtt_data = true;
        let play = Server::bind_tls(config).play(|server| {
            for _ in 0..ROUNDS {
                let mut stopping = server.accept();
                stopping.shakes_hands_saying(&error(0x01));
                stopping.drains();
            }
        });
        for _ in 0..ROUNDS {
            let refused = Settings::new(&play, authority.client()).acquire(driver, LONG).err().unwrap();
            assert_eq!((refused.kind(), refused.server_code()), (ErrorKind::Unreachable, Some(ErrorCode(0x01))));
        }
        play.finish();
    }
}

#[test]
fn b46_an_address_that_fails_tls_leaves_the_turn_to_the_next() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    for driver in DRIVERS {
        let mute = Server::bind().play(|server| server.accept().drains());
        let plaintext = Server::bind().play(|server| {
            let mut peer = server.accept();
            peer.sends(&error(0x13));
            peer.half_closes();
            peer.drains();
        });
        let hanging_up = Server::bind().play(|server| drop(server.accept()));
        let strange = Server::bind_tls(stranger.server(HOST)).play(|server| {
            assert!(server.accept().shakes_hands().is_err());
        });
        let living = Server::bind_tls(authority.server(HOST)).play(|server| {
            let mut peer = server.accept_claim();
            peer.sends(&acquired(41));
            peer.reads_to_the_farewell();
        });
        let mut settings = Settings { connect_timeout: PATIENCE, ..Settings::new(&mute, authority.client()) };
        for next in [&plaintext, &hanging_up, &strange, &living] {
            settings.addresses.push(next.address.clone());
        }
        let begun = Instant::now();
        let guard = settings.acquire(driver, LONG).unwrap();
        assert!(begun.elapsed() < PATIENCE);
        assert_eq!(guard.held().token().get(), 41);
        drop(guard);
        for play in [mute, plaintext, hanging_up, strange, living] {
            play.finish();
        }
    }
}

#[test]
fn a_server_must_prove_who_it_is() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    for driver in DRIVERS {
        let unknown = refusal(driver, stranger.server(HOST), authority.client());
        assert!(unknown.contains("TLS") && unknown.contains("UnknownIssuer"), "{unknown}");
        let another = refusal(driver, authority.server("locks.example.org"), authority.client());
        assert!(another.contains("TLS") && another.contains("not valid for"), "{another}");

        let play = Server::bind_tls(authority.server("locks.example.org")).play(|server| {
            let mut peer = server.accept_claim();
            assert_eq!(peer.tls().server_name(), Some("locks.example.org"));
            peer.sends(&acquired(41));
            peer.reads_to_the_farewell();
        });
        let server_name = Some(ServerName::try_from("locks.example.org").unwrap());
        let settings = Settings { server_name, ..Settings::new(&play, authority.client()) };
        drop(settings.acquire(driver, LONG).unwrap());
        play.finish();
    }
}

#[test]
fn a_client_can_prove_who_it_is() {
    let authority = Authority::new();
    for driver in DRIVERS {
        let play = Server::bind_tls(authority.mutual_server(HOST)).play(|server| {
            let mut peer = server.accept_claim();
            assert_eq!(peer.tls().peer_certificates().map(<[_]>::len), Some(1));
            peer.sends(&acquired(41));
            peer.reads_to_the_farewell();
        });
        let settings = Settings::new(&play, authority.mutual_client("worker-1"));
        drop(settings.acquire(driver, LONG).unwrap());
        play.finish();

        let unnamed = refusal(driver, authority.mutual_server(HOST), authority.client());
        assert!(unnamed.contains("TLS") && unnamed.contains("CertificateRequired"), "{unnamed}");
        let mut strange = authority.client();
        strange.client_auth_cert_resolver = Authority::new().mutual_client("worker-1").client_auth_cert_resolver;
        let unknown = refusal(driver, authority.mutual_server(HOST), strange);
        assert!(unknown.contains("TLS"), "{unknown}");
    }
}

#[test]
fn b50_a_call_is_cancelled_in_the_handshake() {
    let authority = Authority::new();
    for driver in DRIVERS {
        let (reached, stage) = mpsc::channel();
        let play = Server::bind().play(move |server| {
            let mut mute = server.accept();
            mute.reads_client_hello();
            reached.send(()).unwrap();
            mute.drains();
        });
        let settings = Settings::new(&play, authority.client());
        let cancel = settings.cancel.clone();
        let acquiring = thread::spawn(move || (settings.acquire(driver, LONG).err(), Instant::now()));
        stage.recv().unwrap();
        let cancelled_at = Instant::now();
        cancel.cancel();
        let (error, returned_at) = acquiring.join().unwrap();
        assert_eq!(error.unwrap().kind(), ErrorKind::Cancelled);
        // 100 ms are promised; a busy test machine gets more.
        assert!(returned_at - cancelled_at < PATIENCE);
        play.finish();
    }
}

#[test]
fn b08_whoever_is_told_of_the_loss_may_let_go_there() {
    let authority = Authority::new();
    for driver in DRIVERS {
        let (registered, ready) = mpsc::channel();
        let play = Server::bind_tls(authority.server(HOST)).play(move |server| {
            let mut peer = server.accept_claim();
            peer.sends(&acquired(41));
            ready.recv().unwrap();
            peer.sends(&error(0x02));
            peer.drains();
        });
        let guard = Settings::new(&play, authority.client()).acquire(driver, LONG).unwrap();
        let held = guard.held();
        let (told, telling) = mpsc::channel();
        let kept = Mutex::new(Some(guard));
        held.on_lost(move |reason| {
            drop(kept.lock().unwrap().take());
            told.send(reason).unwrap();
        });
        registered.send(()).unwrap();
        assert_eq!(telling.recv_timeout(PATIENCE).unwrap().server_code(), Some(ErrorCode(0x02)));
        play.finish();
    }
}

#[test]
fn what_is_missing_for_tls_is_found_before_dialling() {
    let authority = Authority::new();
    let nameless = Client::builder("not a name:7070").tls(authority.client()).build().unwrap_err();
    assert_eq!(nameless.kind(), ErrorKind::Invalid);
    let name = || ServerName::try_from("locks.example.org").unwrap();
    let without = blocking::Client::builder("127.0.0.1:7070").tls_server_name(name()).build().unwrap_err();
    assert_eq!(without.kind(), ErrorKind::Invalid);
    for address in ["not a name:7070", "[::1]:7070", "localhost:7070"] {
        Client::builder(address).tls(authority.client()).tls_server_name(name()).build().unwrap();
    }
    Client::builder("[::1]:7070").tls(authority.client()).build().unwrap();
}
