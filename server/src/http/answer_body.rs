//! The body of a streamed answer.

use crate::protocol::answer::{ApiAnswer, sse_event};
use crate::protocol::api_error::ApiError;
use axum::body::Bytes;
use fulcrum::AnswerEvent;
use hyper::body::{Body, Frame};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc::UnboundedReceiver;

/// Events of a request: the number of the choice, and the event.
pub(crate) type AnswerEvents = UnboundedReceiver<(usize, AnswerEvent)>;

/// The body of a streamed answer. A connection that ends drops it, and with it the receiver of the
/// events, which cancels the request.
pub(crate) struct AnswerBody {
    /// `None` when the last event was written.
    events: Option<AnswerEvents>,
    answer: ApiAnswer,
}

impl AnswerBody {
    pub(crate) fn new(events: AnswerEvents, answer: ApiAnswer) -> Self {
        Self { events: Some(events), answer }
    }

    /// Writes an event, and the end behind the last one.
    fn write(&mut self, received: Option<(usize, AnswerEvent)>, text: &mut String) {
        let added = match received {
            Some((index, event)) => {
                self.answer.add(index, event).map(|delta| self.answer.chunk(index, &delta))
            }
            None => Err(ApiError::failed()),
        };
        match added {
            Ok(chunk) => *text += &chunk,
            Err(error) => {
                *text += &sse_event(&error.to_json());
                self.events = None;
            }
        }
        if self.answer.is_finished() {
            *text += &self.answer.stream_end();
            self.events = None;
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut text = String::new();
        while let Some(events) = &mut self.events {
            match events.poll_recv(context) {
                Poll::Ready(received) => self.write(received, &mut text),
                Poll::Pending if text.is_empty() => return Poll::Pending,
                // What has come is sent before more is waited for.
                Poll::Pending => break,
            }
        }
        match text.is_empty() {
            true => Poll::Ready(None),
            false => Poll::Ready(Some(Ok(Frame::data(Bytes::from(text))))),
        }
    }
}
