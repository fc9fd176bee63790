//! Fulcrum as WebAssembly: [`fulcrum::PageSession`] for a page's worker.

use fulcrum::PageSession;
use wasm_bindgen::prelude::wasm_bindgen;

/// What the page has looked up so far. Questions and answers are JSON.
#[wasm_bindgen]
#[derive(Default)]
pub struct Planner(PageSession);

#[wasm_bindgen]
impl Planner {
    /// A planner that knows the shipped machines and models.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers a question.
    pub fn answer(&self, question: &str) -> String {
        self.0.answer(question)
    }

    /// Lets scenarios name a model of a `config.json`.
    pub fn add_config(&self, name: &str, text: &str) -> String {
        self.0.add_config(name, text)
    }

    /// Lets scenarios name the model of a GGUF file of `length` bytes, by its first bytes.
    pub fn add_gguf(&self, name: &str, header: &[u8], length: f64) -> String {
        self.0.add_gguf(name, header, length as u64)
    }
}
