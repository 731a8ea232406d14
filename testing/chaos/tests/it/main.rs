//! Hand-written histories: what must never be is found, and what may be is not.

mod end;
mod guards;
mod holding;
mod order;
mod plan;
mod story;
mod table;
