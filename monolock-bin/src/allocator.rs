//! The allocator: jemalloc where `build.rs` says so, elsewhere that of the system.
//!
//! It gives memory back when those who used it have left, which the C library's hardly does: sessions come and leave in
//! any order, and one that stays keeps the memory of all that lay beside it. `c/allocator.c` says how soon.

#[cfg(jemalloc)]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Lets a thread of the allocator's own give memory back. A server that nobody calls any more allocates no more, and no
/// other thread would come by.
///
/// For the server alone. A process whose first thread is not its last may seem to die twice to its children, and the
/// command of `monolock run` would be told so twice.
#[cfg(jemalloc)]
pub(crate) fn give_back_unasked() {
    if let Err(error) = tikv_jemalloc_ctl::background_thread::write(true) {
        tracing::warn!(%error, "memory is given back late: the allocator has no thread of its own");
    }
}

#[cfg(not(jemalloc))]
pub(crate) const fn give_back_unasked() {}
