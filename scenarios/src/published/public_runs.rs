//! Public single-user runs of engines on machines that are made of shipped parts.
//!
//! A setup is a line of `setups.csv`: parts by their names, a preset, formats and the engine's own
//! flags. Its measurements are lines of `points.csv`. Nothing is fitted to a row. Points of sweeps
//! that are also single runs are left out, so that no measurement counts twice.

use crate::model::transformer::Model;
use crate::published::engine_flags::{EngineFlags, Placing};
use hwprofiles::{Library, Profile, RowsError, TableRows};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// The build of llama.cpp since which attention is one kernel without being asked for.
pub(crate) const FUSED_BUILD: u32 = 6325;

const SETUPS: &str = include_str!("../../public/setups.csv");
const POINTS: &str = include_str!("../../public/points.csv");

/// A machine, a model and the flags that an engine ran it with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicSetup {
    /// The cells of its line, by column; an empty one is what the thread does not say.
    cells: BTreeMap<String, String>,
    /// What was measured of it.
    pub points: Vec<PublicPoint>,
}

/// One measured rate.
#[derive(Debug, Clone, PartialEq)]
pub struct PublicPoint {
    /// Its id.
    pub id: String,
    /// What was measured.
    pub metric: PublicMetric,
    /// Tokens of the prompt that was timed; 0 where tokens were.
    pub prompt: u64,
    /// Tokens that were in the cache before.
    pub past: u64,
    /// Tokens that were written; 0 where a prompt was timed.
    pub output: u64,
    /// The rate, in tokens per second.
    pub rate: f64,
}

impl Eq for PublicPoint {}

/// What a rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PublicMetric {
    /// Tokens of a prompt.
    Prompt,
    /// Tokens that are written, the prompt's time left out.
    Decode,
    /// Tokens that are written, over the time of the whole request.
    Request,
}

impl PublicMetric {
    const ALL: [Self; 3] = [Self::Prompt, Self::Decode, Self::Request];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prompt => "prompt_tok_s",
            Self::Decode => "decode_tok_s",
            Self::Request => "request_tok_s",
        }
    }

    /// The phase that it mostly measures.
    pub fn phase(self) -> &'static str {
        if self == Self::Prompt { "prompt" } else { "decode" }
    }
}

impl fmt::Display for PublicMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl PublicSetup {
    /// The shipped setups with their points.
    ///
    /// # Errors
    /// A table is wrong.
    pub fn shipped() -> Result<Vec<Self>, RowsError> {
        Self::read([SETUPS, POINTS])
    }

    fn read([setups, points]: [&str; 2]) -> Result<Vec<Self>, RowsError> {
        let mut all: Vec<Self> = Vec::new();
        each_row(setups, "setups.csv", |_, cells| {
            all.push(Self { cells, points: vec![] });
            Ok(())
        })?;
        each_row(points, "points.csv", |rows, cells| {
            let refuse = |column: &str, why: &str| {
                let at = rows.names().iter().position(|name| name == column).unwrap_or(0);
                Err(rows.refuse(at, why.to_owned()))
            };
            let Some(setup) = all.iter_mut().find(|setup| setup.cell("setup") == cells["setup"]) else {
                return refuse("setup", "setups.csv has no such setup");
            };
            let Some(metric) = PublicMetric::ALL.into_iter().find(|m| m.name() == cells["metric"]) else {
                return refuse("metric", "prompt_tok_s, decode_tok_s or request_tok_s is wanted");
            };
            let Some(rate) = cells["value"].parse().ok().filter(|rate: &f64| *rate > 0.0) else {
                return refuse("value", "a rate above 0 is wanted");
            };
            let count = |column: &str| cells[column].parse().unwrap_or(0);
            let (prompt, past, output) = (count("prompt"), count("past"), count("output"));
            if (metric == PublicMetric::Prompt) != (prompt > 0) || (prompt > 0) == (output > 0) {
                return refuse("prompt", "prompts have a prompt, others an output");
            }
            let id = cells["id"].clone();
            setup.points.push(PublicPoint { id, metric, prompt, past, output, rate });
            Ok(())
        })?;
        Ok(all)
    }

    /// The cell of a column of `setups.csv`.
    pub fn cell(&self, column: &str) -> &str {
        self.cells.get(column).map_or("", String::as_str)
    }

    /// The same with the first and the last point of each metric.
    pub fn thinned(&self) -> Self {
        let mut points = Vec::new();
        for metric in PublicMetric::ALL {
            let all: Vec<_> = self.points.iter().filter(|point| point.metric == metric).collect();
            let mut kept = vec![0, all.len().saturating_sub(1)];
            kept.dedup();
            points.extend(kept.into_iter().filter_map(|at| all.get(at).map(|&point| point.clone())));
        }
        Self { points, ..self.clone() }
    }

    /// The parts of its machine, joined: `epyc-9355+rtx-4090`.
    pub fn machine(&self) -> String {
        let parts = ["cpu", "gpu"].map(|column| self.cell(column));
        let named: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        named.join("+")
    }

    /// Where its experts or layers are, in a few words.
    pub fn placement_class(&self) -> &'static str {
        let flags = self.cell("flags");
        let has = |words: &[&str]| words.iter().any(|word| flags.contains(word));
        match self.cell("gpu") {
            "" => "all on the CPU",
            _ if has(&["rule:"]) => "streamed",
            _ if has(&["CUDA", "-ot blk", "--n-cpu-moe"]) => "some experts on the CPU",
            _ if has(&["-ot", "-cmoe"]) => "all experts on the CPU",
            _ if has(&["-ngl 0"]) => "all on the CPU, prompts on the GPU",
            _ if has(&["-ngl 99"]) => "all on the GPU",
            _ => "some layers on the CPU",
        }
    }

    /// Whether its prompts are multiplied by a library and not by the engine's own kernels, so that
    /// they say nothing of those: a build with BLAS that computes on the CPU.
    pub fn multiplies_by_library(&self) -> bool {
        self.cell("gpu").is_empty() && self.cell("version").contains("BLAS")
    }

    /// The host on which it ran: CPU and DRAM. Which GPUs take part is a choice of its owner's.
    pub fn host(&self) -> String {
        let cells = ["cpu", "dram", "dram_bandwidth"].map(|column| self.cell(column));
        let named: Vec<_> = cells.into_iter().filter(|cell| !cell.is_empty()).collect();
        named.join(", ")
    }

    /// What its owner chose beside the placement: the format, that of the cache, and the threads of
    /// prompts or of decoding.
    pub fn choice(&self, metric: PublicMetric) -> String {
        let flags = EngineFlags::read(self.cell("flags")).unwrap_or_default();
        format!("{}, {}", self.cell("quant"), flags.choice(metric == PublicMetric::Prompt))
    }

    /// What its thread does not say and its scenario assumes; empty where nothing.
    pub fn assumption(&self) -> &'static str {
        match (self.cell("cpu"), self.cell("dram_bandwidth")) {
            ("", _) => "the CPU is not named: that of the GPU's default server",
            (_, "") => "the DRAM's speed is not stated: the fastest that the CPU supports",
            _ => "",
        }
    }

    /// The CPU, or that of its GPU's default server where it is not named.
    fn cpu(&self) -> Option<String> {
        let stated = self.cell("cpu");
        if !stated.is_empty() {
            return Some(stated.to_owned());
        }
        match Library::default().profile(self.gpu_parts().0) {
            Ok(Profile::Gpu(gpu)) => gpu.server.map(|server| server.cpu),
            _ => None,
        }
    }

    /// Its scenario without the workload.
    ///
    /// # Errors
    /// Why the run cannot be answered: what its thread does not say, or what a flag asks for.
    pub fn scenario(&self) -> Result<Value, String> {
        let cpu = self.cpu().ok_or("the CPU is not named")?;
        if self.cell("model").is_empty() {
            return Err("the model is not named".to_owned());
        }
        let model = Model::preset(self.cell("model")).map_err(|error| error.to_string())?;
        let flags = EngineFlags::read(self.cell("flags"))?;
        let weights: Value = hwprofiles::yaml::read(self.cell("weights"), "setups.csv")
            .map_err(|error| format!("weights: {}", error.message))?;
        let mut scenario = json!({
            "machine": self.parts(&cpu),
            "model": self.cell("model"),
            "dtype": {"weights": weights, "kv": flags.kv_format()},
            "engine": self.engine(&flags),
            "placement": flags.placement(&model, self.placing()),
        });
        if self.gpu_parts().1 > 1 {
            scenario["tensor_parallel"] = json!(1);
        }
        Ok(scenario)
    }

    /// The engine, with its build where the thread of llama.cpp gives one.
    fn engine(&self, flags: &EngineFlags) -> Value {
        let name = self.cell("engine").to_lowercase();
        let build = self.build().filter(|_| name == "llama.cpp");
        let mut engine = json!({"name": name});
        if let Some(build) = build {
            engine["version"] = json!(build.to_string());
        }
        let mut execution = flags.execution(self.fuses_attention());
        execution.extend(self.backend().map(|name| ("backend".to_owned(), json!(name))));
        if !execution.is_empty() {
            engine["execution"] = Value::Object(execution);
        }
        engine
    }

    /// Whether its build computes attention by one kernel without being asked to: llama.cpp since
    /// August 2025; other engines by their own flags or always.
    fn fuses_attention(&self) -> bool {
        let is_late = self.build().is_some_and(|build| build >= FUSED_BUILD) || self.is_of_2026();
        self.cell("engine") != "llama.cpp" || is_late
    }

    fn is_of_2026(&self) -> bool {
        self.cell("version").starts_with("2026")
    }

    /// The interface of its GPU kernels where its version names one: `6077 (Vulkan)`.
    fn backend(&self) -> Option<String> {
        let (_, named) = self.cell("version").split_once('(')?;
        let name = named.trim_end_matches(')').to_lowercase();
        Some(name).filter(|name| matches!(name.as_str(), "rocm" | "vulkan"))
    }

    /// The number of the engine's build.
    pub(crate) fn build(&self) -> Option<u32> {
        self.cell("version").split(' ').next()?.parse().ok()
    }

    /// [`PublicSetup::scenario`] with these values in the place of the engine's own.
    ///
    /// # Errors
    /// Why the run cannot be answered.
    pub fn scenario_with(&self, execution: &BTreeMap<String, Value>) -> Result<Value, String> {
        let mut scenario = self.scenario()?;
        for (key, value) in execution {
            scenario["engine"]["execution"][key] = value.clone();
        }
        Ok(scenario)
    }

    /// What besides its flags decides how the engine places tensors.
    fn placing(&self) -> Placing {
        let quant = self.cell("quant");
        let packed = quant.split_whitespace().any(|word| word.ends_with("_R4") || word.ends_with("_R8"));
        Placing {
            gpu: !self.cell("gpu").is_empty(),
            head_first: self.is_of_2026(),
            repacked: self.cell("engine") == "ik_llama.cpp" && packed,
            forked: self.cell("engine") == "ik_llama.cpp",
        }
    }

    /// The part of its GPUs and their number.
    fn gpu_parts(&self) -> (&str, u64) {
        let gpu = self.cell("gpu");
        let counted = gpu.split_once("x ").and_then(|(count, part)| Some((part, count.parse().ok()?)));
        counted.unwrap_or((gpu, 1))
    }

    fn parts(&self, cpu: &str) -> Value {
        // A run that names no capacity fitted.
        const ENOUGH: &str = "2 TB";
        let stated = |value: &str| {
            let reason = if value == ENOUGH { "not stated: what ran had room" } else { self.cell("source") };
            json!({"value": value, "source": {"estimated": {"reason": reason}}})
        };
        let capacity = Some(self.cell("dram")).filter(|text| !text.is_empty()).unwrap_or(ENOUGH);
        let mut dram = json!({"capacity": stated(capacity)});
        // The part's own fastest memory where the speed is not stated.
        if !self.cell("dram_bandwidth").is_empty() {
            dram["bandwidth"] = stated(self.cell("dram_bandwidth"));
        }
        let mut parts = Map::from_iter([("cpu".to_owned(), json!(cpu)), ("dram".to_owned(), dram)]);
        match self.gpu_parts() {
            ("", _) => {}
            (gpu, 1) => drop(parts.insert("gpu".to_owned(), json!(gpu))),
            (gpu, count) => drop(parts.insert("gpu".to_owned(), json!({"part": gpu, "count": count}))),
        }
        let link = Some(self.cell("link")).filter(|link| !link.is_empty());
        parts.extend(link.map(|link| ("link".to_owned(), json!(link))));
        Value::Object(parts)
    }
}

/// Calls `read` with the cells of each row.
fn each_row(
    text: &str,
    file: &str,
    mut read: impl FnMut(&TableRows<&[u8]>, BTreeMap<String, String>) -> Result<(), RowsError>,
) -> Result<(), RowsError> {
    let mut rows = TableRows::new(text.as_bytes(), file)?;
    let names = rows.names().to_vec();
    while rows.advance()? {
        let cell = |at: usize| String::from_utf8_lossy(rows.cell(at)).replace("\"\"", "\"");
        let cells = names.iter().enumerate().map(|(at, name)| (name.clone(), cell(at))).collect();
        read(&rows, cells)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::document::Document;

    #[test]
    fn every_setup_is_a_scenario_or_says_what_it_lacks() {
        let setups = PublicSetup::shipped().expect("tables");
        let mut unanswered = 0;
        for setup in &setups {
            assert!(!setup.points.is_empty() && !setup.cell("source").is_empty(), "{setup:?}");
            match setup.scenario() {
                Ok(mut scenario) => {
                    scenario["workload"] = json!({"batch": 1, "prompt_tokens": 8, "output_tokens": 8});
                    let read = Document::from_yaml("s.yaml", &scenario.to_string()).expect("YAML").scenario();
                    assert!(read.is_ok_and(|read| read.placement.is_some()), "{scenario}");
                }
                Err(why) => {
                    assert!(why.contains("not named") || why.contains("not stated"), "{why}");
                    unanswered += 1;
                }
            }
        }
        assert!(unanswered < setups.len() / 3, "{unanswered} of {}", setups.len());
    }

    #[test]
    fn no_measurement_is_there_twice() {
        let setups = PublicSetup::shipped().expect("tables");
        let single = setups.iter().filter(|setup| setup.cell("setup").starts_with("run"));
        for (setup, point) in single.flat_map(|setup| setup.points.iter().map(move |point| (setup, point))) {
            let twin = |other: &&PublicSetup| {
                let same = ["cpu", "gpu", "quant"].iter().all(|it| other.cell(it) == setup.cell(it));
                other.cell("setup").starts_with("sweep") && same
            };
            let again = setups.iter().filter(twin).flat_map(|other| &other.points);
            // A sweep counts the cache before the prompt of 512 tokens, other runs behind it.
            let again =
                again.filter(|other| other.metric == point.metric && other.past.abs_diff(point.past) <= 512);
            let again = again.filter(|other| other.rate.to_bits() == point.rate.to_bits());
            assert_eq!(again.map(|other| &other.id).next(), None, "{}", point.id);
        }
        let rates = |setup: &PublicSetup| -> Vec<u64> {
            let mut rates: Vec<_> = setup.points.iter().map(|point| point.rate.to_bits()).collect();
            rates.sort_unstable();
            rates
        };
        let sweeps = setups.iter().filter(|setup| setup.points.len() > 8).map(rates);
        let sweeps: Vec<_> = sweeps.collect();
        assert_eq!(sweeps.iter().collect::<std::collections::BTreeSet<_>>().len(), sweeps.len());
        let ids: Vec<_> = setups.iter().flat_map(|setup| &setup.points).map(|point| &point.id).collect();
        assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), ids.len());
    }

    #[test]
    fn points_that_are_wrong_are_refused_with_their_line() {
        const SETUP: &str = "setup\na\n";
        const HEAD: &str = "setup,id,prompt,past,output,metric,value\n";
        for (line, words) in [
            ("b,1,8,0,,prompt_tok_s,1", "no such setup"),
            ("a,1,8,0,,tok_s,1", "decode_tok_s"),
            ("a,1,8,0,,prompt_tok_s,0", "above 0"),
            ("a,1,,0,,prompt_tok_s,1", "have a prompt"),
            ("a,1,8,0,8,decode_tok_s,1", "have a prompt"),
        ] {
            let error = PublicSetup::read([SETUP, &format!("{HEAD}{line}\n")]).expect_err(line).to_string();
            assert!(error.contains(words) && error.contains("points.csv:2"), "{error}");
        }
    }
}
