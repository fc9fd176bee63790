//! `fulcrum serve PLAN --model-dir DIR`

use crate::text::interrupt::interrupt_flag;
use crate::text::plan;
use crate::text::terminal::{ProgressDisplay, errln, outln};
use fulcrum::{Checkpoint, Error, LiveOptions, LiveSession, OrError, ProgressEvent, ResolvedPlan, Result};
use serde_json::json;
use server::{ServedModel, ServerOptions, TemplateProgram};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// Serve a plan over HTTP, to clients of OpenAI's protocol, until Ctrl-C: /v1/completions,
/// /v1/chat/completions, /v1/models, /health, /metrics.
#[derive(Debug, clap::Args)]
pub struct ServeArguments {
    /// The plan. Its batch is how many requests run at once, and its prompt and output tokens
    /// together are the longest request.
    plan: PathBuf,
    /// The model's folder (config.json, safetensors, tokenizer.json), or a GGUF file.
    #[arg(long, value_name = "DIR")]
    model_dir: PathBuf,
    /// The address to listen on. One that other machines reach needs --token.
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// The port to listen on; 0 for any that is free.
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Refuse requests without this token (Authorization: Bearer TOKEN).
    #[arg(long)]
    token: Option<String>,
    /// Requests that may wait for a place in the batch. More are turned away with 429.
    #[arg(long, value_name = "REQUESTS", default_value_t = 256)]
    queue: usize,
    /// A Jinja template of conversations, instead of the model's own.
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
    /// Follow another placement when a device becomes slower than planned and that is worth what
    /// must be moved.
    #[arg(long)]
    replan: bool,
}

impl ServeArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        let Self { plan, model_dir, host, port, token, queue, chat_template, replan } = self;
        if !host.is_loopback() && token.is_none() {
            return Err(Error::input(format!(
                "--host {host}: other machines reach this address: give a --token, or leave it out for 127.0.0.1"
            )));
        }
        if token.as_ref().is_some_and(String::is_empty) {
            return Err(Error::input("--token is empty: a text is wanted"));
        }
        let planned = ResolvedPlan::read(&plan)?;
        let checkpoint = Checkpoint::open(&model_dir).or_input()?;
        let program = std::env::current_exe().or_failed()?;
        let renderer = TemplateProgram { program, arguments: vec!["render-conversations".to_owned()] };
        let model =
            ServedModel::new(&planned, &checkpoint, &model_dir, chat_template.as_deref(), Some(&renderer))?;
        let at = |error: std::io::Error| Error::input(format!("{}: {error}", SocketAddr::new(host, port)));
        let listener = TcpListener::bind((host, port)).map_err(at)?;
        let address = listener.local_addr().map_err(at)?;
        let (stop, never, display) = (interrupt_flag(), AtomicBool::new(false), ProgressDisplay::default());
        let progress = |event: ProgressEvent<'_>| display.show(event);
        let options = LiveOptions { replan, interrupted: &never, progress: &progress };
        let mut live = LiveSession::new(&planned, &checkpoint, options)?;
        match json {
            true => outln!("{}", json!({"url": format!("http://{address}/v1"), "model": model.name})),
            false => outln!("{}listening on http://{address}/v1", plan::heading(&planned)),
        }
        server::serve(
            &mut live,
            model,
            listener,
            ServerOptions { token, queue, ..ServerOptions::default() },
            &stop,
        )?;
        errln!("stopped: every request that was begun is answered");
        Ok(())
    }
}
