//! The driver of the Rust client on tokio: its public interface on one side, the driver protocol on the other.
//!
//! It runs on one thread, so `block` really blocks what keeps the sessions.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::rc::Rc;
use std::time::Duration;
use std::{error, io, thread};

use monolock_client::rustls::pki_types::pem::PemObject;
use monolock_client::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use monolock_client::rustls::{ClientConfig, RootCertStore};
use monolock_client::{Cancel, Client, Error, Held, LockGuard, LossReason, WithLockError};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{self, LocalSet};

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
    let (sender, mut ops) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let op: Value = serde_json::from_str(&line).expect("the harness sends JSON");
            if sender.send(op).is_err() {
                return;
            }
        }
    });
    say(&json!({"event": "ready", "client": "monolock-client (tokio)", "version": env!("CARGO_PKG_VERSION")}));
    LocalSet::new().block_on(&runtime, async {
        let driver = Rc::new(Driver::default());
        while let Some(op) = ops.recv().await {
            if op["op"] == "exit" {
                break;
            }
            driver.take(op);
        }
        driver.release_all().await;
    });
    runtime.shutdown_background();
}

fn say(event: &Value) {
    let mut out = io::stdout().lock();
    // The harness has gone: so does this process, with its input.
    let _ = writeln!(out, "{event}").and_then(|()| out.flush());
}

#[derive(Default)]
struct Driver {
    clients: RefCell<HashMap<String, Client>>,
    claims: RefCell<HashMap<u64, Claim>>,
}

/// What an id stands for.
#[derive(Default)]
struct Claim {
    cancel: Cancel,
    guard: Option<LockGuard>,
    held: Option<Held>,
    finish: Option<oneshot::Sender<bool>>,
}

impl Driver {
    fn take(self: &Rc<Self>, op: Value) {
        let id = op["id"].as_u64().unwrap_or_default();
        match op["op"].as_str().unwrap_or_default() {
            "acquire" => {
                self.claims.borrow_mut().insert(id, Claim::default());
                task::spawn_local(Rc::clone(self).acquire(id, op));
            }
            "do" => {
                self.claims.borrow_mut().insert(id, Claim::default());
                task::spawn_local(Rc::clone(self).work(id, op));
            }
            "release" => {
                let guard = self.with(id, |claim| claim.guard.take()).flatten();
                task::spawn_local(async move {
                    if let Some(guard) = guard {
                        guard.release().await;
                    }
                    say(&json!({"event": "released", "id": id}));
                });
            }
            "is_held" => {
                let held = self.with(id, |claim| claim.held.as_ref().is_some_and(Held::is_held));
                say(&json!({"event": "is_held", "id": id, "held": held.unwrap_or(false)}));
            }
            "cancel" => {
                self.with(id, |claim| claim.cancel.cancel());
            }
            "finish" => {
                if let Some(finish) = self.with(id, |claim| claim.finish.take()).flatten() {
                    // The work may have been dropped at a loss.
                    let _ = finish.send(op["result"] == "ok");
                }
            }
            "block" => {
                thread::sleep(Duration::from_millis(op["ms"].as_u64().unwrap_or_default()));
                say(&json!({"event": "unblocked"}));
            }
            other => eprintln!("unknown operation {other:?}"),
        }
    }

    fn with<T>(&self, id: u64, change: impl FnOnce(&mut Claim) -> T) -> Option<T> {
        self.claims.borrow_mut().get_mut(&id).map(change)
    }

    /// The client for this operation, bound to its own switch.
    fn client(&self, id: u64, op: &Value) -> Result<Client, Failure> {
        let key = op["client"].as_str();
        let known = key.and_then(|key| self.clients.borrow().get(key).cloned());
        let client = match known {
            Some(client) => client,
            None => build(op)?,
        };
        if let Some(key) = key {
            self.clients.borrow_mut().insert(key.to_owned(), client.clone());
        }
        let cancel = self.with(id, |claim| claim.cancel.clone()).unwrap_or_default();
        let client = client.cancel_on(&cancel);
        Ok(match op["wait_ms"].as_u64() {
            Some(wait_ms) => client.wait_limit(Duration::from_millis(wait_ms)),
            None => client,
        })
    }

    async fn acquire(self: Rc<Self>, id: u64, op: Value) {
        match self.guard(id, &op).await {
            Ok(guard) => {
                say(&json!({"event": "acquired", "id": id, "token": guard.token().to_string()}));
                task::spawn_local(tell_loss(id, guard.held()));
                self.with(id, |claim| {
                    claim.held = Some(guard.held());
                    claim.guard = Some(guard);
                });
            }
            Err(failure) => say(&failure.event(id)),
        }
    }

    async fn guard(&self, id: u64, op: &Value) -> Result<LockGuard, Failure> {
        let (client, lease) = (self.client(id, op)?, lease(op)?);
        let name = op["name"].as_str().unwrap_or_default();
        Ok(match op["mode"].as_str() {
            Some("try") => client.try_acquire(name, lease).await,
            Some("retry") => client.acquire_with_retry(name, lease).await,
            _ => client.acquire(name, lease).await,
        }?)
    }

    async fn work(self: Rc<Self>, id: u64, op: Value) {
        let (client, lease) = match (self.client(id, &op), lease(&op)) {
            (Ok(client), Ok(lease)) => (client, lease),
            (Err(failure), _) | (_, Err(failure)) => return say(&failure.done(id)),
        };
        let (sender, finish) = oneshot::channel();
        self.with(id, |claim| claim.finish = Some(sender));
        let name = op["name"].as_str().unwrap_or_default();
        let body = |held| body(id, held, finish);
        let outcome = match op["mode"].as_str() {
            Some("retry") => client.with_lock_retry(name, lease, body).await,
            _ => client.with_lock(name, lease, body).await,
        };
        say(&done(id, outcome));
    }

    async fn release_all(&self) {
        let claims = std::mem::take(&mut *self.claims.borrow_mut());
        for (_, Claim { cancel, guard, .. }) in claims {
            cancel.cancel();
            if let Some(guard) = guard {
                guard.release().await;
            }
        }
    }
}

async fn tell_loss(id: u64, held: Held) {
    let reason = held.lost().await;
    say(&json!({"event": "lost", "id": id, "reason": reason.as_str(), "code": code(&reason)}));
}

/// The guarded work: it goes on until it is told to finish, or is dropped.
async fn body(id: u64, held: Held, mut finish: oneshot::Receiver<bool>) -> Result<(), &'static str> {
    say(&json!({"event": "started", "id": id, "token": held.token().to_string()}));
    let result = tokio::select! {
        biased;
        result = &mut finish => result,
        () = async { tokio::select! { () = held.cancelled() => {}, _ = held.lost() => {} } } => {
            say(&json!({"event": "stop_requested", "id": id}));
            finish.await
        }
    };
    if result == Ok(true) { Ok(()) } else { Err("the work failed") }
}

fn done(id: u64, outcome: Result<(), WithLockError<&'static str>>) -> Value {
    let Err(error) = outcome else { return json!({"event": "done", "id": id, "outcome": "ok"}) };
    let work_failed = matches!(error, WithLockError::Work { .. });
    let kind = error.client_error().map(|error| error.kind().as_str());
    let code = error.client_error().and_then(Error::server_code).or_else(|| error.loss()?.server_code());
    json!({
        "event": "done", "id": id, "outcome": "error", "kind": kind, "work_failed": work_failed,
        "lost": error.loss().map(LossReason::as_str), "code": code.map(|code| code.0),
    })
}

/// Why an operation came to nothing.
enum Failure {
    Client(Error),
    /// The interface has no way to ask for it.
    Inexpressible,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl Failure {
    fn kind_and_code(&self) -> (&'static str, Option<u8>) {
        match self {
            Self::Client(error) => (error.kind().as_str(), error.server_code().map(|code| code.0)),
            Self::Inexpressible => ("invalid", None),
        }
    }

    fn event(&self, id: u64) -> Value {
        let (kind, code) = self.kind_and_code();
        json!({"event": "error", "id": id, "kind": kind, "code": code})
    }

    fn done(&self, id: u64) -> Value {
        let (kind, code) = self.kind_and_code();
        json!({
            "event": "done", "id": id, "outcome": "error", "kind": kind, "work_failed": false, "lost": null, "code": code,
        })
    }
}

fn build(op: &Value) -> Result<Client, Failure> {
    let mut addresses = op["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut builder = Client::builder(addresses.next().unwrap_or_default());
    for address in addresses {
        builder = builder.address(address);
    }
    if let Some(timeout_ms) = op["connect_timeout_ms"].as_u64() {
        builder = builder.connect_timeout(Duration::from_millis(timeout_ms));
    }
    if let Some(max_hold_ms) = op["max_hold_ms"].as_u64() {
        builder = builder.max_hold(Duration::from_millis(max_hold_ms));
    }
    if op["tls"].is_object() {
        builder = builder.tls(tls_config(&op["tls"]).expect("the harness wrote the files"));
        if let Some(name) = op["tls"]["server_name"].as_str() {
            builder = builder.tls_server_name(ServerName::try_from(name.to_owned()).expect("the harness names a host"));
        }
    }
    Ok(builder.build()?)
}

fn tls_config(files: &Value) -> Result<ClientConfig, Box<dyn error::Error>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(files["ca"].as_str().unwrap_or_default())? {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder().with_root_certificates(roots);
    let (Some(certificate), Some(key)) = (files["cert"].as_str(), files["key"].as_str()) else {
        return Ok(config.with_no_client_auth());
    };
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
    Ok(config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key)?)?)
}

/// The lease as a `Duration`, where there is one: no `Duration` is negative or infinite or no number.
fn lease(op: &Value) -> Result<Duration, Failure> {
    let lease_ms = &op["lease_ms"];
    if let Some(lease_ms) = lease_ms.as_u64() {
        return Ok(Duration::from_millis(lease_ms));
    }
    let lease_ms = lease_ms.as_f64().ok_or(Failure::Inexpressible)?;
    Duration::try_from_secs_f64(lease_ms / 1000.0).map_err(|_| Failure::Inexpressible)
}

fn code(reason: &LossReason) -> Option<u8> {
    reason.server_code().map(|code| code.0)
}
