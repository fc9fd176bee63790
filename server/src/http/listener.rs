//! The connections of a server.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// The most connections at once.
const MOST_CONNECTIONS: usize = 1024;
/// How often it is asked whether to stop.
const STOP_CHECK: Duration = Duration::from_millis(50);
/// How long it waits where the system refuses a connection, as for want of file descriptors.
const REFUSED_PAUSE: Duration = Duration::from_millis(200);

/// Serves connections until one of `stops` is set. Then no more are accepted, and it returns when
/// every request that was begun is answered. A connection that is silent for longer than `silence`
/// before or within the head of a request is closed.
pub(crate) fn serve_connections(
    listener: std::net::TcpListener,
    router: Router,
    silence: Duration,
    stops: [&AtomicBool; 2],
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(accept_until(listener, router, silence, stops))
}

async fn accept_until(
    listener: std::net::TcpListener,
    router: Router,
    silence: Duration,
    stops: [&AtomicBool; 2],
) -> io::Result<()> {
    // A listener of this runtime can only be made inside it.
    let listener = TcpListener::from_std(listener)?;
    let (graceful, places) = (GracefulShutdown::new(), Arc::new(Semaphore::new(MOST_CONNECTIONS)));
    while !stops.iter().any(|stop| stop.load(Ordering::Acquire)) {
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tokio::time::sleep(STOP_CHECK).await;
            continue;
        };
        let stream = match tokio::time::timeout(STOP_CHECK, listener.accept()).await {
            Err(_) => continue,
            Ok(Ok((stream, _))) => stream,
            Ok(Err(_)) => {
                tokio::time::sleep(REFUSED_PAUSE).await;
                continue;
            }
        };
        // Tokens are small packets that nothing follows for a while.
        let _ = stream.set_nodelay(true);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(silence)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // A client that breaks off ends its requests, and concerns nobody else.
            let _ = connection.await;
            drop(place);
        });
    }
    drop((listener, router));
    graceful.shutdown().await;
    Ok(())
}
