//! Lets the conformance suite drive this client: operations come as JSON objects on standard input, one a line, and
//! events go out on standard output likewise.
//!
//! It uses the client's public API alone. The async client is driven, or with `--blocking` the blocking one.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::io::{self, BufRead, Write};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use monolock_client::rustls::pki_types::pem::PemObject;
use monolock_client::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use monolock_client::rustls::{ClientConfig, RootCertStore};
use monolock_client::{Builder, Cancel, Client, Error, Held, LockGuard, LossReason, WithLockError, blocking};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

type Failure = Box<dyn StdError + Send + Sync>;

/// How often blocking work looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(5);

fn main() -> Result<(), Failure> {
    let is_blocking = std::env::args().any(|argument| argument == "--blocking");
    let runtime = Arc::new(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?);
    let mut driver =
        Driver { is_blocking, runtime, jobs: HashMap::new(), clients: HashMap::new(), threads: Vec::new() };
    let client = if is_blocking { "monolock-rust-blocking" } else { "monolock-rust" };
    emit(&json!({"event": "ready", "client": client, "version": env!("CARGO_PKG_VERSION")}));
    for line in io::stdin().lock().lines() {
        let operation: Value = serde_json::from_str(&line?)?;
        if operation["op"] == "exit" {
            break;
        }
        driver.handle(&operation)?;
    }
    driver.exit();
    Ok(())
}

struct Driver {
    is_blocking: bool,
    runtime: Arc<Runtime>,
    jobs: HashMap<u64, Arc<Job>>,
    /// Those that several operations share.
    clients: HashMap<String, AnyClient>,
    threads: Vec<JoinHandle<()>>,
}

/// One `acquire` or `do`.
struct Job {
    id: u64,
    cancel: Cancel,
    guard: Mutex<Option<AnyGuard>>,
    finish: mpsc::Sender<Ended>,
    /// Taken by the work.
    finished: Mutex<Option<mpsc::Receiver<Ended>>>,
}

/// What work comes to.
type Ended = Result<(), WorkFailed>;

#[derive(Debug)]
struct WorkFailed;

#[derive(Clone)]
enum AnyClient {
    Async(Client),
    Blocking(blocking::Client),
}

enum AnyGuard {
    Async(LockGuard),
    Blocking(blocking::LockGuard),
}

impl AnyGuard {
    fn held(&self) -> Held {
        match self {
            Self::Async(guard) => guard.held(),
            Self::Blocking(guard) => guard.held(),
        }
    }
}

#[derive(Clone, Copy)]
enum Mode {
    Wait,
    Try,
    Retry,
}

/// A claim as it was asked for.
struct Request {
    client: AnyClient,
    name: String,
    lease: Duration,
    mode: Mode,
}

impl Driver {
    fn handle(&mut self, operation: &Value) -> Result<(), Failure> {
        let id = operation["id"].as_u64().unwrap_or(0);
        let job = self.jobs.get(&id).cloned();
        match operation["op"].as_str() {
            Some("acquire") => self.start(id, operation, acquire, |id, error| {
                json!({"event": "error", "id": id, "kind": error.kind().as_str(), "code": code(error)})
            }),
            Some("do") => self.start(id, operation, do_work, |id, error| {
                let kind = error.kind().as_str();
                json!({"event": "done", "id": id, "outcome": "error", "kind": kind, "work_failed": false, "lost": null, "code": null})
            }),
            Some("release") => {
                if let Some(job) = job {
                    self.release(&job);
                }
                emit(&json!({"event": "released", "id": id}));
            }
            Some("is_held") => {
                let held = job.and_then(|job| lock(&job.guard).as_ref().map(AnyGuard::held));
                emit(&json!({"event": "is_held", "id": id, "held": held.is_some_and(|held| held.is_held())}));
            }
            Some("cancel") => {
                if let Some(job) = job {
                    job.cancel.cancel();
                }
            }
            Some("finish") => {
                if let Some(job) = job {
                    // Where it fails, the work has ended.
                    let _ = job.finish.send(if operation["result"] == "fail" { Err(WorkFailed) } else { Ok(()) });
                }
            }
            // There is no loop to block.
            Some("block") => emit(&json!({"event": "unblocked"})),
            Some(_) | None => return Err(format!("no such operation: {operation}").into()),
        }
        Ok(())
    }

    fn start(
        &mut self,
        id: u64,
        operation: &Value,
        run: fn(&Runtime, &Arc<Job>, Request),
        refused: fn(u64, &Error) -> Value,
    ) {
        let (finish, finished) = mpsc::channel();
        let (cancel, guard, finished) = (Cancel::new(), Mutex::new(None), Mutex::new(Some(finished)));
        let job = Arc::new(Job { id, cancel, guard, finish, finished });
        self.jobs.insert(id, Arc::clone(&job));
        match self.request(operation, &job.cancel) {
            Ok(request) => {
                let runtime = Arc::clone(&self.runtime);
                self.threads.push(thread::spawn(move || run(&runtime, &job, request)));
            }
            Err(error) => emit(&refused(id, &error)),
        }
    }

    fn request(&mut self, operation: &Value, cancel: &Cancel) -> Result<Request, Error> {
        let wait = millis(&operation["wait_ms"]);
        let client = match self.client(operation)? {
            AnyClient::Async(client) => {
                let client = client.cancel_on(cancel);
                AnyClient::Async(wait.map_or(client.clone(), |wait| client.wait_limit(wait)))
            }
            AnyClient::Blocking(client) => {
                let client = client.cancel_on(cancel);
                AnyClient::Blocking(wait.map_or(client.clone(), |wait| client.wait_limit(wait)))
            }
        };
        let mode = match operation["mode"].as_str() {
            Some("try") => Mode::Try,
            Some("retry") => Mode::Retry,
            Some(_) | None => Mode::Wait,
        };
        let name = operation["name"].as_str().unwrap_or_default().to_owned();
        Ok(Request { client, name, lease: lease(&operation["lease_ms"]), mode })
    }

    fn client(&mut self, operation: &Value) -> Result<AnyClient, Error> {
        let key = operation["client"].as_str();
        if let Some(known) = key.and_then(|key| self.clients.get(key)) {
            return Ok(known.clone());
        }
        let client = if self.is_blocking {
            AnyClient::Blocking(configured(operation, blocking::Client::builder).build()?)
        } else {
            AnyClient::Async(configured(operation, Client::builder).build()?)
        };
        if let Some(key) = key {
            self.clients.insert(key.to_owned(), client.clone());
        }
        Ok(client)
    }

    fn release(&self, job: &Job) {
        let guard = lock(&job.guard).take();
        match guard {
            Some(AnyGuard::Async(guard)) => self.runtime.block_on(guard.release()),
            Some(AnyGuard::Blocking(guard)) => guard.release(),
            None => {}
        }
    }

    fn exit(&mut self) {
        for job in self.jobs.values() {
            job.cancel.cancel();
            // Where it fails, the work has ended.
            let _ = job.finish.send(Ok(()));
        }
        for thread in self.threads.drain(..) {
            thread.join().expect("no job panics");
        }
        for job in self.jobs.values() {
            self.release(job);
        }
    }
}

fn acquire(runtime: &Runtime, job: &Arc<Job>, request: Request) {
    let Request { client, name, lease, mode } = request;
    let acquired = match client {
        AnyClient::Async(client) => runtime.block_on(async {
            match mode {
                Mode::Wait => client.acquire(name.as_str(), lease).await,
                Mode::Try => client.try_acquire(name.as_str(), lease).await,
                Mode::Retry => client.acquire_with_retry(name.as_str(), lease).await,
            }
            .map(AnyGuard::Async)
        }),
        AnyClient::Blocking(client) => match mode {
            Mode::Wait => client.acquire(name.as_str(), lease),
            Mode::Try => client.try_acquire(name.as_str(), lease),
            Mode::Retry => client.acquire_with_retry(name.as_str(), lease),
        }
        .map(AnyGuard::Blocking),
    };
    let id = job.id;
    match acquired {
        Ok(guard) => {
            let held = guard.held();
            *lock(&job.guard) = Some(guard);
            emit(&json!({"event": "acquired", "id": id, "token": held.token().to_string()}));
            held.on_lost(move |reason| {
                let code = reason.server_code().map(|code| code.0);
                emit(&json!({"event": "lost", "id": id, "reason": reason.as_str(), "code": code}));
            });
        }
        Err(error) => {
            eprintln!("{error}");
            emit(&json!({"event": "error", "id": id, "kind": error.kind().as_str(), "code": code(&error)}));
        }
    }
}

fn do_work(runtime: &Runtime, job: &Arc<Job>, request: Request) {
    let Request { client, name, lease, mode } = request;
    let done = match client {
        AnyClient::Async(client) => runtime.block_on(async {
            let work = |held| work(job, held);
            match mode {
                Mode::Wait => client.with_lock(name.as_str(), lease, work).await,
                Mode::Try => client.try_with_lock(name.as_str(), lease, work).await,
                Mode::Retry => client.with_lock_retry(name.as_str(), lease, work).await,
            }
        }),
        AnyClient::Blocking(client) => {
            let work = |held: Held| blocking_work(job, &held);
            match mode {
                Mode::Wait => client.with_lock(name.as_str(), lease, work),
                Mode::Try => client.try_with_lock(name.as_str(), lease, work),
                Mode::Retry => client.with_lock_retry(name.as_str(), lease, work),
            }
        }
    };
    let id = job.id;
    let Err(error) = done else { return emit(&json!({"event": "done", "id": id, "outcome": "ok"})) };
    let code = error.loss().and_then(LossReason::server_code).or(error.client_error().and_then(Error::server_code));
    emit(&json!({
        "event": "done",
        "id": id,
        "outcome": "error",
        "kind": error.client_error().map(|error| error.kind().as_str()),
        "work_failed": matches!(error, WithLockError::Work { .. }),
        "lost": error.loss().map(LossReason::as_str),
        "code": code.map(|code| code.0),
    }));
}

/// Async work: a loss drops it, so of a loss it can only say that it came.
async fn work(job: &Job, held: Held) -> Ended {
    emit(&json!({"event": "started", "id": job.id, "token": held.token().to_string()}));
    let finished = lock(&job.finished).take().expect("work runs once");
    let finished = tokio::task::spawn_blocking(move || finished.recv());
    tokio::pin!(finished);
    tokio::select! {
        biased;
        ended = &mut finished => return ended.expect("the wait does not panic").expect("the job has the sender"),
        _ = held.lost() => {}
        () = held.cancelled() => {}
    }
    emit(&json!({"event": "stop_requested", "id": job.id}));
    finished.await.expect("the wait does not panic").expect("the job has the sender")
}

fn blocking_work(job: &Job, held: &Held) -> Ended {
    emit(&json!({"event": "started", "id": job.id, "token": held.token().to_string()}));
    let finished = lock(&job.finished).take().expect("work runs once");
    loop {
        match finished.recv_timeout(LOOK) {
            Ok(ended) => return ended,
            Err(RecvTimeoutError::Timeout) if held.is_held() && !held.is_cancelled() => {}
            Err(_) => break,
        }
    }
    emit(&json!({"event": "stop_requested", "id": job.id}));
    finished.recv().expect("the job has the sender")
}

fn configured<C>(operation: &Value, begin: fn(String) -> Builder<C>) -> Builder<C> {
    let mut addresses = operation["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut builder = begin(addresses.next().unwrap_or_default().to_owned());
    for address in addresses {
        builder = builder.address(address);
    }
    if let Some(timeout) = millis(&operation["connect_timeout_ms"]) {
        builder = builder.connect_timeout(timeout);
    }
    if let Some(max_hold) = millis(&operation["max_hold_ms"]) {
        builder = builder.max_hold(max_hold);
    }
    if operation["tls"].is_object() {
        builder = builder.tls(tls(&operation["tls"]).expect("the suite's files are whole"));
        if let Some(name) = operation["tls"]["server_name"].as_str() {
            builder = builder.tls_server_name(ServerName::try_from(name.to_owned()).expect("the suite names a host"));
        }
    }
    builder
}

fn tls(files: &Value) -> Result<ClientConfig, Failure> {
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

fn millis(value: &Value) -> Option<Duration> {
    value.as_u64().map(Duration::from_millis)
}

/// The lease as a program would have it. What no [`Duration`] can be is as wrong as a lease of nothing.
fn lease(value: &Value) -> Duration {
    match (value.as_u64(), value.as_f64()) {
        (Some(millis), _) => Duration::from_millis(millis),
        (None, Some(millis)) => Duration::try_from_secs_f64(millis / 1e3).unwrap_or(Duration::ZERO),
        (None, None) => Duration::ZERO,
    }
}

fn code(error: &Error) -> Option<u8> {
    error.server_code().map(|code| code.0)
}

fn emit(event: &Value) {
    let mut out = io::stdout().lock();
    // Where nobody reads any more, the end of the operations comes next.
    let _ = writeln!(out, "{event}").and_then(|()| out.flush());
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
