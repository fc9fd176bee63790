//! The tables of `llama-bench`: what an owner of a machine measured, in any of its formats.
//!
//! `-o json`, `-o jsonl` and `-o csv` have a field for each option; the tables that it prints (`-o
//! md`) have columns for those that are not the defaults, under shorter names, and the build in a
//! line below. Field names: llama.cpp, `tools/llama-bench/README.md`.

use crate::model::formats::file_type::GgufFileType;
use crate::model::transformer::Model;
use crate::published::engine_flags::{EngineFlags, Placing};
use crate::published::public_runs::{FUSED_BUILD, PublicMetric, PublicPoint};
use hwprofiles::TableRows;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The short names of printed columns, and the fields that they are.
const COLUMNS: [(&str, &str); 13] = [
    ("model", "model_type"),
    ("backend", "backends"),
    ("ngl", "n_gpu_layers"),
    ("threads", "n_threads"),
    ("fa", "flash_attn"),
    ("ot", "tensor_buft_overrides"),
    ("ts", "tensor_split"),
    ("nkvo", "no_kv_offload"),
    ("nopo", "no_op_offload"),
    ("ncmoe", "n_cpu_moe"),
    ("ubatch", "n_ubatch"),
    ("t/s", "avg_ts"),
    ("test", "test"),
];

/// A build of December 2025, since which `-ngl` counts the output projection first.
const HEAD_FIRST_BUILD: u32 = 7300;

/// One rate of a table, with what it was measured with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BenchRun {
    /// The fields of its row.
    fields: BTreeMap<String, String>,
    /// What was measured: a prompt, or tokens, behind others or not.
    pub point: PublicPoint,
}

impl BenchRun {
    /// Whether a text begins like a table of `llama-bench`, in any of its formats.
    pub fn is_begin(text: &str) -> bool {
        let is_header = |line: &str| line.trim_start().starts_with('|') && line.contains("t/s");
        text.contains("avg_ts") || text.lines().any(is_header)
    }

    /// The rates of a table, without those of a prompt and an answer together. `file` is the name
    /// in messages.
    ///
    /// # Errors
    /// It is no table of `llama-bench`, or a row has no rate.
    pub fn read(text: &str, file: &str) -> Result<Vec<Self>, String> {
        let mut runs = Vec::new();
        for (index, mut fields) in rows(text, file)?.into_iter().enumerate() {
            let place = format!("{file}: row {}", index + 1);
            if let Some(test) = fields.remove("test") {
                fields.extend(numbers_of_test(&test).ok_or_else(|| {
                    format!("{place}: test is '{test}': pp512, tg128 or pp512 @ d4096 is wanted")
                })?);
            }
            let count = |field: &str| fields.get(field).map_or(Ok(0), |text| text.parse::<u64>());
            let counts = ["n_prompt", "n_gen", "n_depth"].map(count);
            let [Ok(prompt), Ok(output), Ok(past)] = counts else {
                return Err(format!("{place}: n_prompt, n_gen and n_depth are whole numbers"));
            };
            let rate = fields.get("avg_ts").and_then(|text| text.split_whitespace().next()?.parse().ok());
            let Some(rate) = rate.filter(|rate: &f64| *rate > 0.0 && rate.is_finite()) else {
                return Err(format!("{place}: no rate: avg_ts (t/s) must be a number above 0"));
            };
            let metric = match (prompt, output) {
                (1.., 0) => PublicMetric::Prompt,
                (0, 1..) => PublicMetric::Decode,
                // A rate of both together tells neither.
                _ => continue,
            };
            let id = (index + 1).to_string();
            runs.push(Self { fields, point: PublicPoint { id, metric, prompt, past, output, rate } });
        }
        match runs.is_empty() {
            true => Err(format!("{file}: it holds no rate of a prompt (pp) or of tokens (tg)")),
            false => Ok(runs),
        }
    }

    /// Its test as it is printed: `pp512 @ d4096`.
    pub fn test(&self) -> String {
        let PublicPoint { prompt, past, output, .. } = self.point;
        let test = if prompt > 0 { format!("pp{prompt}") } else { format!("tg{output}") };
        if past > 0 { format!("{test} @ d{past}") } else { test }
    }

    /// The model and the kind of file that the row names, as far as it does: from the file's name
    /// (`models/Qwen3-8B-Q4_K_M.gguf`), or the kind from the type (`qwen3 8B Q4_K - Medium`).
    pub fn named(&self) -> (Option<String>, Option<String>) {
        let field = |name: &str| self.fields.get(name).map_or("", String::as_str);
        let path = field("model_filename");
        let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
        let stem = file.strip_suffix(".gguf").unwrap_or(file);
        // Parts of a file in several pieces: -00001-of-00002.
        let stem = stem.split("-00001-of-").next().unwrap_or(stem);
        let divided = stem.match_indices(['-', '.']).rev().find_map(|(at, _)| {
            let model = stem[..at].trim_end_matches("-UD");
            Some((model.to_owned(), kind_of_word(&stem[at + 1..])?))
        });
        match divided {
            Some((model, kind)) => (Some(model), Some(kind)),
            None => (None, kind_of_type(field("model_type"))),
        }
    }

    /// Whether a GPU took part.
    pub fn on_gpu(&self) -> bool {
        let backends = self.fields.get("backends").map_or("", String::as_str).to_uppercase();
        let known = ["CUDA", "ROCM", "HIP", "VULKAN", "METAL", "MTL", "SYCL", "MUSA", "OPENCL", "CANN"];
        known.iter().any(|name| backends.contains(name))
    }

    /// Its scenario on a machine, without the workload. `weights` is a kind of file or a format.
    ///
    /// # Errors
    /// An option that is not modelled.
    pub fn scenario(
        &self,
        machine: Value,
        model: &Model,
        name: &str,
        weights: &str,
    ) -> Result<Value, String> {
        let flags = EngineFlags::read(&self.flags())?;
        let build = self.fields.get("build_number").and_then(|text| text.parse::<u32>().ok());
        let gpu = self.on_gpu();
        let placing = Placing {
            gpu,
            head_first: build.is_none_or(|build| build >= HEAD_FIRST_BUILD),
            repacked: false,
            forked: false,
        };
        let mut placement = flags.placement(model, placing);
        if !gpu {
            placement["op_offload"] = json!(false);
        }
        let mut engine = json!({"name": "llama.cpp"});
        if let Some(build) = build {
            engine["version"] = json!(build.to_string());
        }
        let stated = self.fields.contains_key("flash_attn");
        let fused_unasked = !stated && build.is_none_or(|build| build >= FUSED_BUILD);
        let execution: Map<String, Value> = flags.execution(fused_unasked);
        if !execution.is_empty() {
            engine["execution"] = Value::Object(execution);
        }
        Ok(json!({
            "machine": machine,
            "model": name,
            "dtype": {"weights": weights, "kv": flags.kv_format()},
            "engine": engine,
            "placement": placement,
        }))
    }

    /// The options of the row as flags.
    fn flags(&self) -> String {
        let field = |name: &str| self.fields.get(name).map(String::as_str).filter(|text| !text.is_empty());
        let is_on = |name: &str| field(name).is_some_and(|text| matches!(text, "1" | "true" | "on"));
        let number = |name: &str| field(name).and_then(|text| text.parse::<i64>().ok());
        let mut words = Vec::new();
        // A negative number means all.
        words.extend(number("n_gpu_layers").filter(|layers| *layers >= 0).map(|it| format!("-ngl {it}")));
        words.extend(number("n_cpu_moe").filter(|layers| *layers > 0).map(|it| format!("--n-cpu-moe {it}")));
        words.extend(number("n_ubatch").filter(|tokens| *tokens > 0).map(|it| format!("-ub {it}")));
        words.extend(number("n_threads").filter(|threads| *threads > 0).map(|it| format!("-t {it}")));
        words.extend(field("type_k").map(|kind| format!("-ctk {kind}")));
        // It separates patterns by semicolons, and says so where there is none.
        let overrides = field("tensor_buft_overrides").filter(|text| *text != "none");
        words.extend(overrides.map(|text| format!("-ot {}", text.replace(';', ","))));
        let split = field("tensor_split").filter(|text| text.contains(['/', ';']));
        words.extend(split.and_then(whole_split).map(|split| format!("-ts {split}")));
        words.extend(is_on("no_kv_offload").then(|| "-nkvo".to_owned()));
        words.extend(is_on("no_op_offload").then(|| "--no-op-offload".to_owned()));
        words.extend(is_on("flash_attn").then(|| "-fa 1".to_owned()));
        words.join(" ")
    }
}

/// The kind of file that a model's type ends in: `qwen3 8B Q4_K - Medium` is `q4_k_m`.
fn kind_of_type(text: &str) -> Option<String> {
    let plain = text.replace(" - Medium", "_M").replace(" - Small", "_S").replace(" - Large", "_L");
    plain.split_whitespace().rev().find_map(kind_of_word)
}

/// The format of files that names call so: a kind of file, or numbers of 16 or 32 bits. Files with
/// some larger tensors (`_XL`) are nearest to those of medium ones.
fn kind_of_word(word: &str) -> Option<String> {
    let word = word.to_lowercase();
    let word = match word.strip_suffix("_xl") {
        Some(begin) => format!("{begin}_m"),
        None if word == "mxfp4" => GgufFileType::Mxfp4Moe.name().to_owned(),
        None => word,
    };
    let is_wide = matches!(word.as_str(), "bf16" | "f16" | "f32");
    (is_wide || word.parse::<GgufFileType>().is_ok()).then(|| word.replace('-', "_"))
}

/// Shares like `3.00/1.00` as whole numbers of hundredths.
fn whole_split(text: &str) -> Option<String> {
    let parts = text.split(['/', ';']).map(|part| part.trim().parse::<f64>().ok());
    let parts: Vec<_> = parts.collect::<Option<_>>()?;
    let is_split = parts.len() > 1 && parts.iter().sum::<f64>() > 0.0;
    let whole = parts.iter().map(|part| ((part * 100.0).round() as u64).to_string());
    is_split.then(|| whole.collect::<Vec<_>>().join(","))
}

/// `pp512`, `tg128`, `pp512+tg128`, each also `@ d4096`, as fields.
fn numbers_of_test(test: &str) -> Option<Vec<(String, String)>> {
    let (tests, depth) = match test.split_once('@') {
        Some((tests, depth)) => (tests, depth.trim().strip_prefix('d')?),
        None => (test, "0"),
    };
    let mut fields = vec![("n_depth".to_owned(), depth.to_owned())];
    for part in tests.split('+').map(str::trim) {
        let (field, number) = match (part.strip_prefix("pp"), part.strip_prefix("tg")) {
            (Some(number), _) => ("n_prompt", number),
            (_, Some(number)) => ("n_gen", number),
            _ => return None,
        };
        fields.push((field.to_owned(), number.to_owned()));
    }
    Some(fields)
}

/// The rows of a table, each as its fields.
fn rows(text: &str, file: &str) -> Result<Vec<BTreeMap<String, String>>, String> {
    let wrong = || format!("{file}: it is no table of llama-bench, as -o json, -o csv or -o md writes it");
    let begin = text.trim_start();
    let found = match begin.chars().next() {
        Some('[' | '{') => json_rows(begin, file)?,
        _ if begin.lines().any(|line| line.trim_start().starts_with('|')) => printed_rows(begin),
        _ => csv_rows(text, file)?,
    };
    let is_table = |row: &BTreeMap<String, String>| {
        row.contains_key("avg_ts") && (row.contains_key("n_prompt") || row.contains_key("test"))
    };
    if found.is_empty() || !found.iter().all(is_table) { Err(wrong()) } else { Ok(found) }
}

fn json_rows(text: &str, file: &str) -> Result<Vec<BTreeMap<String, String>>, String> {
    let wrong = |error: serde_json::Error| format!("{file}: this is not JSON: {error}");
    let stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let mut all = Vec::new();
    for value in stream {
        match value.map_err(wrong)? {
            Value::Array(rows) => all.extend(rows),
            row => all.push(row),
        }
    }
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let fields = |row: Value| match row {
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, text(value))).collect(),
        _ => BTreeMap::new(),
    };
    Ok(all.into_iter().map(fields).collect())
}

fn csv_rows(text: &str, file: &str) -> Result<Vec<BTreeMap<String, String>>, String> {
    let mut rows = TableRows::new(text.as_bytes(), file).map_err(|error| error.to_string())?;
    let names = rows.names().to_vec();
    let mut all = Vec::new();
    while rows.advance().map_err(|error| error.to_string())? {
        let cell = |at: usize| String::from_utf8_lossy(rows.cell(at)).into_owned();
        all.push(names.iter().enumerate().map(|(at, name)| (name.clone(), cell(at))).collect());
    }
    Ok(all)
}

/// The rows of printed tables: a header, a line of dashes, rows; below them `build: 3e0ba0e6
/// (5575)`.
fn printed_rows(text: &str) -> Vec<BTreeMap<String, String>> {
    let cells = |line: &str| -> Vec<String> {
        line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let field = |name: &String| {
        let known = COLUMNS.iter().find(|(short, _)| short == name);
        known.map_or_else(|| name.clone(), |(_, field)| (*field).to_owned())
    };
    let mut names: Vec<String> = Vec::new();
    let mut all: Vec<BTreeMap<String, String>> = Vec::new();
    let mut without_build = 0;
    for line in text.lines().map(str::trim) {
        if let Some((_, build)) = line.strip_prefix("build:").and_then(|rest| rest.split_once('(')) {
            let build = build.trim_end_matches(')').to_owned();
            for row in &mut all[without_build..] {
                row.insert("build_number".to_owned(), build.clone());
            }
            without_build = all.len();
        }
        if !line.starts_with('|') || line.chars().all(|c| "|-: ".contains(c)) {
            continue;
        }
        let row = cells(line);
        if row.iter().any(|cell| cell == "t/s") {
            names = row.iter().map(field).collect();
        } else {
            all.push(names.iter().cloned().zip(row).collect());
        }
    }
    all
}
