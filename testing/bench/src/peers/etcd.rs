//! etcd: its lock service, by gRPC, with a lease for each session.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{Command, Stdio};

use prost::Message;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::{SETTLING, find, free_port, version, wait_for};
use crate::contest::Contender;
use crate::process::Kept;
use crate::target::scratch;

/// The shortest that outlives any contest, in seconds.
const LEASE_S: i64 = 3600;

#[derive(Debug)]
pub(super) struct Etcd {
    program: PathBuf,
    port: u16,
    process: Kept,
    _directory: TempDir,
}

impl Etcd {
    pub(super) fn start() -> io::Result<Self> {
        let program = find("etcd", "etcd-server", &[])?;
        let directory = scratch()?;
        let (port, peer) = (free_port()?, format!("http://127.0.0.1:{}", free_port()?));
        let client = format!("http://127.0.0.1:{port}");
        let mut command = Command::new(&program);
        command.arg("--data-dir").arg(directory.path().join("data"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = Kept(command.spawn()?);
        wait_for("etcd", port, &mut process)?;
        Ok(Self { program, port, process, _directory: directory })
    }

    pub(super) fn version(&self) -> String {
        debug_assert!(self.process.0.id() > 0, "it runs");
        version(&self.program)
    }

    pub(super) fn contender(&self) -> io::Result<Box<dyn Contender>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let address = format!("http://127.0.0.1:{}", self.port);
        let endpoint = Endpoint::from_shared(address).map_err(io::Error::other)?.tcp_nodelay(true);
        let (channel, lease) = runtime.block_on(async {
            let channel = endpoint.connect().await.map_err(io::Error::other)?;
            let request = LeaseGrantRequest { ttl: LEASE_S, id: 0 };
            let granted: LeaseGrantResponse = call(channel.clone(), "/etcdserverpb.Lease/LeaseGrant", request).await?;
            Ok::<_, io::Error>((channel, granted.id))
        })?;
        Ok(Box::new(Session { runtime, channel, lease, asked: None, key: Vec::new() }))
    }
}

type Asked = Pin<Box<dyn Future<Output = io::Result<LockResponse>> + Send>>;

struct Session {
    runtime: Runtime,
    channel: Channel,
    lease: i64,
    asked: Option<Asked>,
    key: Vec<u8>,
}

impl Contender for Session {
    fn ask(&mut self) -> io::Result<()> {
        let request = LockRequest { name: b"bench".to_vec(), lease: self.lease };
        let mut asked: Asked = Box::pin(call(self.channel.clone(), "/v3lockpb.Lock/Lock", request));
        let early = self.runtime.block_on(async { tokio::time::timeout(SETTLING, &mut asked).await });
        self.asked = Some(match early {
            Ok(granted) => Box::pin(std::future::ready(granted)),
            Err(_elapsed) => asked,
        });
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        let asked = self.asked.take().ok_or_else(|| io::Error::other("it was not asked for"))?;
        self.key = self.runtime.block_on(asked)?.key;
        Ok(())
    }

    fn release(&mut self) -> io::Result<()> {
        let request = UnlockRequest { key: std::mem::take(&mut self.key) };
        let UnlockResponse {} = self.runtime.block_on(call(self.channel.clone(), "/v3lockpb.Lock/Unlock", request))?;
        Ok(())
    }
}

async fn call<Q, A>(channel: Channel, method: &'static str, request: Q) -> io::Result<A>
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
{
    let mut client = Grpc::new(channel);
    client.ready().await.map_err(io::Error::other)?;
    let codec = ProstCodec::<Q, A>::default();
    let answer = client.unary(Request::new(request), PathAndQuery::from_static(method), codec).await;
    answer.map(tonic::Response::into_inner).map_err(io::Error::other)
}

#[derive(Clone, PartialEq, Message)]
struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LockRequest {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LockResponse {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct UnlockRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct UnlockResponse {}
