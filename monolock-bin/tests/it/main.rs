//! The command as its users meet it: the real executable, real signals, real sockets.

mod command_line;
mod demo;
mod run;
mod serve;
mod support;
