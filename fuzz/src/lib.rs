//! Every reader of what strangers make, as a function of bytes that says whether they were read. It
//! panics where the reader does something wrong: the reader itself panics, or what it has read
//! cannot be written and read again.
//!
//! The programs in `fuzz_targets/` run them for hours; the command's tests run them on the seeds
//! and on some thousand changes of each.

use hwprofiles::{MeasuredPoints, Operations, Profile, Seconds};
use planner::{Plan, PlanTable, Trace};
use scenarios::published::{BenchRun, Publication};
use scenarios::{Document, Gguf, Model, RequestTrace, SweepAxis};
use server::{ChatTemplate, ServedModel};
use sim::serving::{
    Batch, LayerRanks, LayerTables, LayerTimes, PrefillChunk, RecordedRun, StepPrices, TableText,
};
use std::collections::BTreeMap;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// A reader, and the folder of its seeds.
pub type Reader = (&'static str, fn(&[u8]) -> bool);

/// All readers, in the order of their names.
pub const READERS: [Reader; 25] = [
    ("axes", axes),
    ("chat_template", chat_template),
    ("config", config),
    ("engine", engine),
    ("gguf", gguf),
    ("http_body", http_body),
    ("layer_times", layer_times),
    ("llama_bench", llama_bench),
    ("machine", machine),
    ("machine_words", machine_words),
    ("operations", operations),
    ("plan", plan),
    ("plan_table", plan_table),
    ("planned", planned),
    ("points", points),
    ("publication", publication),
    ("recorded_run", recorded_run),
    ("request_trace", request_trace),
    ("requests", requests),
    ("results", results),
    ("safetensors", safetensors),
    ("scenario", scenario),
    ("shard", shard),
    ("tokenizer", tokenizer),
    ("trace", trace),
];

/// What `read` makes of a text and `write` makes a text of is the same when it is read again.
fn same_again<T: PartialEq + std::fmt::Debug, E: std::fmt::Debug>(
    text: &str,
    read: impl Fn(&str) -> Result<T, E>,
    write: impl Fn(&T) -> Option<String>,
) -> bool {
    let Ok(value) = read(text) else { return false };
    if let Some(written) = write(&value) {
        assert_eq!(read(&written).expect("what was written can be read"), value, "{written}");
    }
    true
}

fn text(bytes: &[u8]) -> &str {
    // What is no UTF-8 is refused before any of these readers sees it.
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// The parts of an input for readers of several files: a line `---` divides them.
fn parts<const N: usize>(bytes: &[u8]) -> [&str; N] {
    let mut parts = text(bytes).split("\n---\n");
    [(); N].map(|()| parts.next().unwrap_or_default())
}

thread_local! {
    /// The folder of this thread's files.
    static SCRATCH: PathBuf = {
        let thread = format!("{:?}", std::thread::current().id());
        let number: String = thread.chars().filter(char::is_ascii_digit).collect();
        let folder = std::env::temp_dir().join(format!("fulcrum-readers-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for temporary files");
        folder
    };
}

/// A file for readers that take none but files: its own for each process and thread.
fn scratch(name: &str, bytes: &[u8]) -> PathBuf {
    let path = SCRATCH.with(|folder| folder.join(name));
    std::fs::write(&path, bytes).expect("room for temporary files");
    path
}

pub fn machine(bytes: &[u8]) -> bool {
    let read = |text: &str| match Profile::from_yaml(text, "machine.yaml") {
        Ok(Profile::Machine(machine)) => Ok(machine),
        other => Err(format!("{other:?}")),
    };
    same_again(text(bytes), read, |machine| Some(machine.to_yaml()))
}

pub fn machine_words(bytes: &[u8]) -> bool {
    fulcrum::AdvisedMachine::from_words(text(bytes)).is_ok()
}

/// Points that are read have times above zero, and none is lost in folds.
pub fn points(bytes: &[u8]) -> bool {
    let mut points = MeasuredPoints::default();
    if points.read(bytes, "points.csv").is_err() {
        return false;
    }
    for (_, device) in points.devices() {
        assert!(!device.is_empty() && device.spread() >= 0.0);
        assert!(device.operations().all(|(_, time)| time > Seconds::ZERO));
        assert!(device.transfers().iter().all(|transfer| transfer.time > Seconds::ZERO));
        let (test, rest) = device.fold(0, 5);
        assert_eq!(test.len() + rest.len(), device.len());
    }
    true
}

/// A row that is read asks for the same when it stands alone.
pub fn operations(bytes: &[u8]) -> bool {
    let Ok(mut operations) = Operations::new(bytes, "operations.csv") else { return false };
    let header = operations.rows().text().to_vec();
    loop {
        let operation = match operations.advance() {
            Ok(Some(operation)) => operation,
            end => return end.is_ok(),
        };
        let alone = [&header, &b"\n"[..], operations.rows().text()].concat();
        let mut again = Operations::new(&alone[..], "alone").expect("the same header");
        assert_eq!(again.advance(), Ok(Some(operation)));
        let _ = operations.measured();
    }
}

pub fn config(bytes: &[u8]) -> bool {
    // The formats of published weights are not written: what is written is for the model's own.
    let read = |text: &str| {
        Model::from_config_json("fuzz", "config.json", text).map(|model| Model { published: None, ..model })
    };
    same_again(text(bytes), read, |model| model.to_config_json().ok())
}

pub fn gguf(bytes: &[u8]) -> bool {
    // The tensors of a header may lie in a hole of the file.
    let read = |length| Gguf::from_reader("model.gguf", bytes, length);
    let _ = read(bytes.len() as u64);
    read(bytes.len() as u64 + (1 << 24))
        .is_ok_and(|gguf| Model::from_gguf("fuzz", "model.gguf", &gguf).is_ok())
}

pub fn scenario(bytes: &[u8]) -> bool {
    Document::from_yaml("scenario.yaml", text(bytes)).and_then(|document| document.scenario()).is_ok()
}

pub fn engine(bytes: &[u8]) -> bool {
    let file = scratch("engine.yaml", bytes);
    let scenario = format!(
        "{{machine: h100-sxm, model: opt-125m, engine: {{file: '{}'}}, \
         workload: {{batch: 1, prompt_tokens: 8, output_tokens: 8}}}}",
        file.display()
    );
    let document = Document::from_yaml("scenario.yaml", &scenario).expect("YAML");
    document.scenario().is_ok()
}

pub fn axes(bytes: &[u8]) -> bool {
    SweepAxis::from_csv(bytes, "rows.csv").is_ok()
}

pub fn publication(bytes: &[u8]) -> bool {
    Publication::from_yaml(text(bytes), "publication.yaml").is_ok()
}

pub fn request_trace(bytes: &[u8]) -> bool {
    RequestTrace::new(bytes, "trace.csv").is_ok_and(|mut trace| trace.all(|request| request.is_ok()))
}

pub fn plan(bytes: &[u8]) -> bool {
    // What is written again is as it was written.
    let read = |text: &str| Plan::from_yaml(text, "plan.yaml").map(|plan| Plan { edited: false, ..plan });
    same_again(text(bytes), read, |it| Some(it.to_yaml()))
}

/// A plan that fits its machine and its model can be simulated, or says why not.
pub fn planned(bytes: &[u8]) -> bool {
    let planned = fulcrum::ResolvedPlan::from_yaml(text(bytes), "plan.yaml");
    planned.is_ok_and(|planned| fulcrum::simulate(&planned).is_ok())
}

pub fn plan_table(bytes: &[u8]) -> bool {
    let read =
        |text: &str| PlanTable::from_yaml(text, "table.yaml").map(|it| PlanTable { edited: false, ..it });
    same_again(text(bytes), read, |it| Some(it.to_yaml()))
}

pub fn trace(bytes: &[u8]) -> bool {
    same_again(text(bytes), |text| Trace::from_json("trace.json".as_ref(), text), |it| Some(it.to_json()))
}

/// A table of `llama-bench`, and the scenario of each of its rates.
pub fn llama_bench(bytes: &[u8]) -> bool {
    static MODEL: LazyLock<Model> = LazyLock::new(|| Model::preset("qwen3-30b-a3b").expect("a preset"));
    let Ok(runs) = BenchRun::read(text(bytes), "bench") else { return false };
    // Further runs of a file are read in the same way.
    for run in runs.iter().take(3) {
        let (_, kind) = run.named();
        assert!(run.point.rate > 0.0 && !run.test().is_empty());
        let kind = kind.unwrap_or_else(|| "q8_0".to_owned());
        let scenario = run.scenario("rtx4090-desktop".into(), &MODEL, "qwen3-30b-a3b", &kind);
        let Ok(mut scenario) = scenario else { continue };
        scenario["workload"] = serde_json::json!({"batch": 1, "prompt_tokens": 1, "output_tokens": 1});
        // The scenario's reader refuses characters that YAML lacks, and numbers out of range.
        let document = Document::from_yaml("bench", &scenario.to_string());
        document.and_then(|document| document.scenario()).ok();
    }
    true
}

/// What is read as any kind of result makes a page.
pub fn results(bytes: &[u8]) -> bool {
    let page = unpanicked(|| fulcrum::report(&[scratch("result", bytes)]));
    page.is_ok_and(|page| !page.report.to_html().expect("a page of what was read").is_empty())
}

/// One shard of one: its table, and the stamp beside it.
pub fn shard(bytes: &[u8]) -> bool {
    let [table, stamp] = parts(bytes);
    let path = scratch("shard.csv", table.as_bytes());
    scratch("shard.csv.stamp", stamp.as_bytes());
    fulcrum::merge_shards(std::slice::from_ref(&path), &path.with_file_name("merged.csv")).is_ok()
}

pub fn layer_times(bytes: &[u8]) -> bool {
    let texts = parts::<4>(bytes);
    let table = |index: usize| TableText { file: "layers.csv", text: texts[index] };
    let [dense, per_sequence, attention] = [0, 1, 2].map(table);
    let tables = LayerTables { dense, per_sequence, attention, experts: None, all_reduce: Some(table(3)) };
    static MODEL: LazyLock<Model> = LazyLock::new(|| Model::preset("llama-3.1-8b").expect("a preset"));
    let ranks = LayerRanks { tensor: if texts[3].is_empty() { 1 } else { 2 }, experts: 1 };
    let Ok(mut times) = LayerTimes::read(&tables, &MODEL, ranks) else { return false };
    let chunks = [PrefillChunk { new: 100, past: 16 }];
    let batch = Batch { chunks: &chunks, decodes: 3, decode_tokens: 700, sampled: 4 };
    times.step(&batch).expect("its tables have every size");
    let line = times.decode(3, 700).expect("its tables have every size");
    assert!(line.from <= 700 && 700 < line.until);
    true
}

pub fn recorded_run(bytes: &[u8]) -> bool {
    let [engine, requests] = parts(bytes).map(|text| TableText { file: "run", text });
    RecordedRun::read(engine, requests).is_ok()
}

/// The header of weights for a small model: the rest of the file is holes, as long as it says.
pub fn safetensors(bytes: &[u8]) -> bool {
    let ends = text(bytes).split([',', ']']).filter_map(|word| word.trim().parse::<u64>().ok());
    let data = ends.filter(|end| *end < 1 << 30).max().unwrap_or(0);
    let length = 8 + bytes.len() as u64;
    let file = [&(bytes.len() as u64).to_le_bytes(), bytes].concat();
    let path = scratch("model.safetensors", &file);
    let opened = std::fs::OpenOptions::new().write(true).open(&path).expect("it was written");
    opened.set_len(length + data).expect("a hole");
    let folder = path.parent().expect("it has a folder");
    if !folder.join("config.json").exists() {
        scratch("config.json", include_bytes!("../../scenarios/models/fulcrum-tiny.json"));
    }
    fulcrum::Checkpoint::open(folder).is_ok()
}

/// What the libraries below do where a file contradicts itself: they panic, and Fulcrum catches it.
/// Nobody must hear of it, and a fuzzer must not take it for an end.
fn unpanicked<T>(work: impl FnOnce() -> T) -> T {
    static QUIET: LazyLock<()> = LazyLock::new(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            let file = panicked.location().map_or("", panic::Location::file);
            if !["/tokenizers-", "/parquet-", "/thrift-"].iter().any(|name| file.contains(name)) {
                loud(panicked);
            }
        }));
    });
    LazyLock::force(&QUIET);
    work()
}

/// A tokenizer with one token for each byte.
static BYTE_TOKENIZER: LazyLock<Arc<fulcrum::Tokenizer>> = LazyLock::new(|| {
    let json = include_bytes!("../seeds/tokenizer/bytes.json");
    Arc::new(fulcrum::Tokenizer::from_json("tokenizer.json".as_ref(), json).expect("a tokenizer"))
});

/// The model that requests are for.
fn served(template: Option<ChatTemplate>) -> ServedModel {
    ServedModel {
        name: "fulcrum-tiny".to_owned(),
        tokenizer: Arc::clone(&BYTE_TOKENIZER),
        template,
        ends: vec![2],
        most_tokens: 4096,
        vocab: 512,
        slots: 4,
    }
}

fn template(text: &str) -> fulcrum::Result<ChatTemplate> {
    let tokens = [("bos_token", "<s>"), ("eos_token", "</s>")];
    let tokens = tokens.map(|(name, text)| (name.to_owned(), text.to_owned()));
    ChatTemplate::from_text("chat_template.jinja".as_ref(), text.to_owned(), BTreeMap::from(tokens))
}

/// A tokenizer that is read makes tokens of texts and texts of tokens, or says why not.
pub fn tokenizer(bytes: &[u8]) -> bool {
    unpanicked(|| {
        let read = fulcrum::Tokenizer::from_json(Path::new("tokenizer.json"), bytes);
        let Ok(tokenizer) = read else { return false };
        for text in ["", "a lever and \u{5e73}\u{8861}", "<s>[INST] 12 </s>\n"] {
            if let Ok(tokens) = tokenizer.encode(text) {
                let _ = tokenizer.decode(&tokens);
            }
            let _ = tokenizer.encode_formatted(text);
        }
        for token in [0, 7, 511, u32::MAX] {
            let _ = tokenizer.token_text(token);
        }
        true
    })
}

/// A template of any text writes a conversation, or says why not.
pub fn chat_template(bytes: &[u8]) -> bool {
    let body = br#"{"messages": [{"role": "system", "content": "Be short."},
        {"role": "user", "content": [{"type": "text", "text": "Why?"}]}]}"#;
    template(text(bytes))
        .is_ok_and(|template| server::check_body(&served(Some(template)), true, body).is_ok())
}

/// The body of a request: as a completion, and as a conversation.
pub fn http_body(bytes: &[u8]) -> bool {
    static MODEL: LazyLock<ServedModel> = LazyLock::new(|| {
        let plain = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
        served(Some(template(plain).expect("Jinja")))
    });
    let checked = [false, true].map(|conversation| server::check_body(&MODEL, conversation, bytes));
    for error in checked.iter().filter_map(|checked| checked.as_ref().err()) {
        assert!(error.contains("\"error\""), "{error}");
    }
    checked.iter().any(Result::is_ok)
}

/// A file of requests.
pub fn requests(bytes: &[u8]) -> bool {
    let defaults = fulcrum::BatchDefaults {
        tokenizer: Some(&BYTE_TOKENIZER),
        output_tokens: 16,
        stops: &[],
        sampling: fulcrum::Sampling::Greedy,
        most_tokens: 4096,
        vocab: 512,
    };
    fulcrum::read_batch(&scratch("requests.jsonl", bytes), &defaults).is_ok()
}
