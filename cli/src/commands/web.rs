//! `fulcrum web`

use crate::text::interrupt::interrupt_flag;
use crate::text::terminal::outln;
use fulcrum::{Error, Result};
use serde_json::json;
use std::net::{Ipv4Addr, TcpListener};

/// Show the planner as a page in a browser on this machine, until Ctrl-C. What `fulcrum bench` has
/// measured is there as the machine `this`.
#[derive(Debug, clap::Args)]
pub struct WebArguments {
    /// The port to listen on, of 127.0.0.1 alone; 0 for any that is free.
    #[arg(long, default_value_t = 8080)]
    port: u16,
}

impl WebArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        let at = |error: std::io::Error| Error::input(format!("--port {}: {error}", self.port));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).map_err(at)?;
        let address = listener.local_addr().map_err(at)?;
        match json {
            true => outln!("{}", json!({"url": format!("http://{address}/")})),
            false => outln!("http://{address}/"),
        }
        server::serve_page(listener, &interrupt_flag())
    }
}
