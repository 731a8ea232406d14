//! What a frame costs in and out, and what a match costs.

use divan::{Bencher, black_box};
use monolock_core::wire::{ClientFrame, Phase, ServerFrame, decode_client};
use monolock_core::{Glob, Lease, LockNameRef, Token};

fn main() {
    divan::main();
}

const NAME: &str = "tenant-0007/nightly-import/eu1";

fn acquire() -> ClientFrame<'static> {
    ClientFrame::Acquire {
        lease: Lease::from_millis(10_000).expect("it is not zero"),
        name: LockNameRef::new(NAME).expect("it has 30 bytes"),
    }
}

#[divan::bench]
fn decode_acquire(bencher: Bencher<'_, '_>) {
    let mut bytes = Vec::new();
    acquire().encode(&mut bytes);
    bencher.bench_local(|| decode_client(Phase::First, black_box(&bytes)).is_ok());
}

#[divan::bench]
fn decode_heartbeat(bencher: Bencher<'_, '_>) {
    bencher.bench_local(|| decode_client(Phase::Later, black_box(&[2])).is_ok());
}

#[divan::bench]
fn encode_acquired(bencher: Bencher<'_, '_>) {
    let mut out = Vec::with_capacity(64);
    let frame = ServerFrame::Acquired { token: Token::new(1 << 50).expect("it is not zero") };
    bencher.bench_local(|| {
        out.clear();
        black_box(frame).encode(&mut out);
    });
}

#[divan::bench(args = ["*", "tenant-0007/*", "*/nightly-*/eu?", "*a*a*a*a*b", "other-*"])]
fn glob(bencher: Bencher<'_, '_>, pattern: &str) {
    let glob = Glob::new(pattern);
    bencher.bench_local(|| glob.matches(black_box(NAME)));
}
