//! OpenAI's requests, answers and errors as data: no connection is known here.

pub(crate) mod answer;
pub(crate) mod api_error;
pub(crate) mod choice;
pub(crate) mod generation;
pub(crate) mod request_body;
