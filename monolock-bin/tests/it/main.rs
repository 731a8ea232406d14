//! The command as its users meet it: the real executable, real signals, real sockets.

mod access_list;
mod audit;
mod command_line;
mod demo;
mod limits;
mod restart;
mod run;
mod serve;
mod support;
