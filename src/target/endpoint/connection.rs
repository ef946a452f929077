//! Watches the connector of the HTTP client: whether a request opened a connection, and when that was over.
//!
//! A pooled client hides this. The deadline of the first byte must start when the connection stands, and the row says whether a
//! connection was opened for it, so a layer around the connector writes both into a task-local of the request that is polling.
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::sync::Notify;
use tower_layer::Layer;
use tower_service::Service;

tokio::task_local! {
    /// The request on whose behalf the connector is called.
    static REQUEST: Arc<Connecting>;
}

/// What is known about the connection of one request.
#[derive(Debug, Default)]
pub(super) struct Connecting {
    state: Mutex<State>,
    /// Told when a connection attempt is over.
    over: Notify,
}

#[derive(Debug, Default, Clone, Copy)]
struct State {
    started: bool,
    opened: bool,
    over: Option<Instant>,
}

/// Where a request stands before its headers came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// No connection was asked for: one from the pool is used.
    Pooled,
    /// A connection is being opened.
    Connecting,
    /// That was over then.
    Connected(Instant),
}

impl Connecting {
    /// Runs `request` so that the connector reports here.
    pub(super) async fn watch<F: Future>(self: Arc<Self>, request: F) -> F::Output {
        REQUEST.scope(self, request).await
    }

    pub(super) fn stage(&self) -> Stage {
        let state = *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.over {
            Some(t) => Stage::Connected(t),
            None if state.started => Stage::Connecting,
            None => Stage::Pooled,
        }
    }

    /// Whether a connection was opened for this request.
    pub(super) fn opened(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).opened
    }

    /// Returns once a connection attempt is over.
    pub(super) async fn changed(&self) {
        self.over.notified().await;
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct WatchConnections;

/// The connector with the layer around it.
#[derive(Debug, Clone)]
pub(super) struct Watched<S>(S);

impl<S> Layer<S> for WatchConnections {
    type Service = Watched<S>;

    fn layer(&self, connector: S) -> Watched<S> {
        Watched(connector)
    }
}

impl<S, R> Service<R> for Watched<S>
where
    S: Service<R>,
    S::Future: Send + 'static,
    S::Response: 'static,
    S::Error: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, address: R) -> Self::Future {
        let attempt = Attempt(REQUEST.try_with(Arc::clone).ok());
        if let Some(request) = &attempt.0 {
            request.set(|state| state.started = true);
        }
        let connect = self.0.call(address);
        Box::pin(async move {
            let connection = connect.await;
            if let (Some(request), true) = (&attempt.0, connection.is_ok()) {
                request.set(|state| state.opened = true);
            }
            drop(attempt);
            connection
        })
    }
}

/// Ends the attempt also when its future is dropped, as the connect deadline does.
struct Attempt(Option<Arc<Connecting>>);

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(request) = &self.0 {
            request.set(|state| state.over = Some(Instant::now()));
            request.over.notify_one();
        }
    }
}
