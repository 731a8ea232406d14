//! The simulator, seen from outside: that worlds keep what is promised, that they are one history a seed, and that each
//! oracle finds what it is there for.

mod broken;
mod command;
mod ledger;
mod many;
mod worlds;
