//! The server as its clients meet it: every test has a server of its own, on a port of its own.

mod answering;
mod page;
mod place;
mod refusing;
