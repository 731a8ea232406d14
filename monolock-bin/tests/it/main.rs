//! The command as its users meet it: the real executable, real signals, real sockets.
