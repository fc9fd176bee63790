//! What a machine reached of the rates that its parts promise, from its owner's `llama-bench`.

use super::public_run::PublicRun;
use crate::error::{Error, ErrorContext, OrError, Result};
use crate::pipeline::{machine_library, model};
use hwprofiles::statistics::{Prior, least_squares, median};
use hwprofiles::{
    Composition, PartNames, Profile, Ratio, ReachedRates, ReachedShares, Sourced, UnderstoodMachine,
    write_atomically, yaml,
};
use rayon::prelude::*;
use scenarios::Model;
use scenarios::published::BenchRun;
use serde_json::{Value, json};
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

/// How far rates of one model and phase on one machine are from a formula that is right for them.
const NOISE: f64 = 0.04;
/// How far models on one machine differ by what no machine explains: their kernels
/// (`scripts/own_bench.py`). One model alone therefore says half of what it could.
const OF_A_MODEL: f64 = 0.12;
/// How far machines are from what their parts promise: the spread of users' rates, less that of
/// their models.
const PRIOR: f64 = 0.13;
/// The least and the largest share that is believed.
const BELIEVED: [f64; 2] = [0.3, 1.7];
/// A share nearer to 1 than this says nothing.
const WORTH_SAYING: f64 = 0.01;
/// Bytes of a file that tell what it holds.
const BEGIN: u64 = 1 << 16;
/// The most rates of which each is left out and predicted from the others.
const MOST_LEFT_OUT: usize = 12;

/// What to learn from.
#[derive(Debug, Clone, Default)]
pub struct ReachedFitOptions {
    /// Tables of `llama-bench`.
    pub runs: Vec<PathBuf>,
    /// The machine: its parts in words, or the file of a composition.
    pub machine: String,
    /// The model, where a table does not name it.
    pub model: Option<String>,
    /// The kind of file or the number format, where a table does not name it.
    pub format: Option<String>,
    /// The day that files record, `YYYY-MM-DD`.
    pub date: String,
}

/// A machine with what it reached.
#[derive(Debug, Clone)]
pub struct ReachedFit {
    /// The machine, whose parts say what they reached.
    pub machine: Composition,
    /// Each rate.
    pub rates: Vec<FittedRate>,
    /// The median of |ours ÷ measured − 1| of rates that were left out of the fit, where there are
    /// some to spare.
    pub left_out: Option<f64>,
}

/// A measured rate with ours, in tokens per second.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedRate {
    /// Model and format.
    pub model: String,
    /// The test, as `llama-bench` prints it.
    pub test: String,
    /// What was measured.
    pub measured: f64,
    /// What the machine said before: its parts, and what its file says that it reached.
    pub before: f64,
    /// What the fitted machine says.
    pub fitted: f64,
}

/// Whether a file holds what [`fit_reached`] learns from, by its first kilobytes.
///
/// # Errors
/// It cannot be read.
pub fn is_llama_bench(path: &Path) -> Result<bool> {
    let unreadable = || path.display().to_string();
    let file = hwprofiles::open_input(path).or_input().within(unreadable)?;
    let mut begin = Vec::new();
    file.take(BEGIN).read_to_end(&mut begin).or_input().within(unreadable)?;
    Ok(BenchRun::is_begin(&String::from_utf8_lossy(&begin)))
}

fn read(path: &Path) -> Result<String> {
    hwprofiles::read_text(path).or_input().within(|| path.display().to_string())
}

/// The machine with the shares of its parts' rates that explain what `llama-bench` measured there.
///
/// A share changes every rate of a device that reads memory, or that computes. Of several
/// explanations the fit takes the one whose shares are nearest to 1: it is of least squares
/// ([`least_squares`]) in ln(ours ÷ measured), with a noise of 5 %, and in ln(share), with a prior
/// of 25 %.
///
/// # Errors
/// A table is wrong, or says neither model nor format; the machine is not clear, or a run does not
/// fit it.
pub fn fit_reached(options: &ReachedFitOptions) -> Result<ReachedFit> {
    let names = parts(&options.machine)?;
    let mut runs = Vec::new();
    for path in &options.runs {
        let file = path.display().to_string();
        for run in BenchRun::read(&read(path)?, &file).or_input()? {
            runs.push(OwnRun::new(run, &file, options)?);
        }
    }
    let fit = Fit { names, runs };
    let before = fit.rates_on(&fit.names)?;
    let all: Vec<usize> = (0..fit.runs.len()).collect();
    let shares = fit.shares(&all);
    let fitted = fit.rates(&shares)?;
    let left_out = fit.left_out_error(&all)?;
    let files: Vec<_> = options.runs.iter().map(|path| path.display().to_string()).collect();
    let source =
        format!("fitted to {} rates of llama-bench ({}), {}", fit.runs.len(), files.join(", "), options.date);
    let machine = Composition { parts: fit.said(&shares, &source), ..Composition::default() };
    let rates = fit.runs.iter().zip(before).zip(fitted).map(|((run, before), fitted)| FittedRate {
        model: run.title.clone(),
        test: run.run.test(),
        measured: run.run.point.rate,
        before,
        fitted,
    });
    Ok(ReachedFit { rates: rates.collect(), machine, left_out })
}

/// The parts of a machine in words, or of a composition's file.
fn parts(machine: &str) -> Result<PartNames> {
    let path = Path::new(machine);
    if !path.is_file() {
        return Ok(UnderstoodMachine::read(machine).or_input()?.names);
    }
    match machine_library().profile(machine).or_input()? {
        Profile::Composition(composition) => Ok(composition.parts),
        other => Err(Error::input(format!(
            "{machine} is {}: parts in words are wanted, or the file of a composition (parts: …)",
            other.kind()
        ))),
    }
}

/// A rate, and what it is of.
struct OwnRun {
    run: BenchRun,
    model: Model,
    name: String,
    format: String,
    title: String,
}

impl OwnRun {
    fn new(run: BenchRun, file: &str, options: &ReachedFitOptions) -> Result<Self> {
        let (named, kind) = run.named();
        let missing = |what: &str, option: &str, example: &str| {
            Error::input(format!("{file} does not say {what}: --{option} {example}"))
        };
        let known = named.as_deref().map(model);
        let model = match (known, &options.model) {
            (Some(Ok(known)), _) => known,
            (_, Some(name)) => model(name)?,
            (Some(Err(error)), None) => {
                return Err(error.within(&format!("{file} (--model says which model it is)")));
            }
            (None, None) => return Err(missing("which model it is of", "model", "qwen3-8b")),
        };
        let format = kind.or_else(|| options.format.clone());
        let format = format.ok_or_else(|| missing("which kind of file it is", "format", "q4_k_m"))?;
        let title = format!("{} {format}", model.name);
        Ok(Self { run, name: model.name.clone(), model, format, title })
    }
}

/// The runs of one machine.
struct Fit {
    names: PartNames,
    runs: Vec<OwnRun>,
}

/// Reading and computing of the GPU, then of the CPU; and copies between them.
type Shares = [f64; 5];

impl Fit {
    /// The parts with these shares, of which those that are nearly 1 are left out.
    fn said(&self, shares: &Shares, source: &str) -> PartNames {
        let rounded = |share: &f64| match (share - 1.0).abs() >= WORTH_SAYING {
            true => (share * 1000.0).round() / 1000.0,
            false => 1.0,
        };
        self.parts(&shares.each_ref().map(rounded), source)
    }

    /// The parts with these shares.
    fn parts(&self, shares: &Shares, source: &str) -> PartNames {
        let said = |share: f64| {
            let share = Ratio::new(share).filter(|share| *share != Ratio::ONE);
            share.map(|share| Sourced::estimated(share, source))
        };
        let of = |memory: f64, compute: f64| {
            let shares = ReachedShares { memory: said(memory), compute: said(compute) };
            Some(shares).filter(|shares| *shares != ReachedShares::default())
        };
        let (gpu, cpu) = (of(shares[0], shares[1]), of(shares[2], shares[3]));
        let reached = ReachedRates { gpu, cpu, link: said(shares[4]) };
        let reached = Some(reached).filter(|reached| *reached != ReachedRates::default());
        PartNames { reached, ..self.names.clone() }
    }

    /// Our rates on a machine with these shares.
    fn rates(&self, shares: &Shares) -> Result<Vec<f64>> {
        self.rates_on(&self.parts(shares, "tried"))
    }

    /// Our rates on a machine of these parts.
    fn rates_on(&self, parts: &PartNames) -> Result<Vec<f64>> {
        self.runs.par_iter().map(|run| rate(run, parts)).collect()
    }

    /// The shares that explain the runs `kept` best.
    fn shares(&self, kept: &[usize]) -> Shares {
        let prior = Prior { mean: 0.0, deviation: PRIOR };
        // Rates of one model in one phase share what no machine explains, and count as one.
        let alike = |one: &OwnRun, other: &OwnRun| {
            (&one.title, one.run.point.metric) == (&other.title, other.run.point.metric)
        };
        let deviations: Vec<f64> = kept
            .iter()
            .map(|&at| {
                let alike = kept.iter().filter(|&&other| alike(&self.runs[at], &self.runs[other])).count();
                (OF_A_MODEL.powi(2) * alike as f64 + NOISE.powi(2)).sqrt()
            })
            .collect();
        let residuals = |logarithms: &[f64]| -> Vec<f64> {
            let parts = self.parts(&believed(logarithms), "tried");
            let residual = |(&at, deviation): (&usize, &f64)| {
                let run = &self.runs[at];
                // What runs on the machine as promised runs at other shares too.
                let ours = rate(run, &parts).unwrap_or(run.run.point.rate);
                (ours / run.run.point.rate).ln() / deviation
            };
            kept.par_iter().zip(&deviations).map(residual).collect()
        };
        believed(&least_squares(&[prior; 5], residuals))
    }

    /// The median error of each run by the others, where there are three or more, and not too many.
    fn left_out_error(&self, all: &[usize]) -> Result<Option<f64>> {
        if !(3..=MOST_LEFT_OUT).contains(&all.len()) {
            return Ok(None);
        }
        let error = |&at: &usize| {
            let others: Vec<usize> = all.iter().copied().filter(|&other| other != at).collect();
            let run = &self.runs[at];
            let ours = rate(run, &self.parts(&self.shares(&others), "tried"))?;
            Ok((ours / run.run.point.rate - 1.0).abs())
        };
        let errors = all.iter().map(error).collect::<Result<Vec<_>>>()?;
        Ok(median(&errors))
    }
}

/// The shares of these logarithms.
fn believed(logarithms: &[f64]) -> Shares {
    std::array::from_fn(|at| logarithms[at].exp().clamp(BELIEVED[0], BELIEVED[1]))
}

/// Our rate for a run on a machine of these parts.
fn rate(run: &OwnRun, parts: &PartNames) -> Result<f64> {
    let scenario = run.run.scenario(json!(parts), &run.model, &run.name, &run.format).or_input()?;
    let what = || format!("{} of {}", run.run.test(), run.title);
    PublicRun::from_scenario("llama-bench", scenario)
        .and_then(|mut ours| ours.rate(&run.run.point))
        .within(what)
}

impl ReachedFit {
    /// Writes the machine.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_atomically(path, yaml::write(&self.machine)).or_failed()
    }

    /// The rates and the shares as JSON.
    pub fn to_json(&self) -> Value {
        let rate = |rate: &FittedRate| {
            let FittedRate { model, test, measured, before, fitted } = rate;
            json!({"model": model, "test": test, "measured": measured, "before": before, "fitted": fitted})
        };
        json!({
            "rates": self.rates.iter().map(rate).collect::<Vec<_>>(),
            "machine": self.machine,
            "left_out": self.left_out,
        })
    }
}

impl fmt::Display for ReachedFit {
    /// The rates before and after, and the shares.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<40} {:>10} {:>10} {:>10}", "tokens per second", "measured", "before", "fitted")?;
        for FittedRate { model, test, measured, before, fitted } in &self.rates {
            let name: String = format!("{model} {test}").chars().take(40).collect();
            writeln!(f, "{name:<40} {measured:>10.1} {before:>10.1} {fitted:>10.1}")?;
        }
        let reached = self.machine.parts.reached.clone().unwrap_or_default();
        let (gpu, cpu) = (reached.gpu.unwrap_or_default(), reached.cpu.unwrap_or_default());
        let told = [
            ("the GPU reads memory", gpu.memory),
            ("the GPU computes", gpu.compute),
            ("the CPU reads memory", cpu.memory),
            ("the CPU computes", cpu.compute),
            ("the link copies", reached.link),
        ];
        let told: Vec<_> =
            told.into_iter().filter_map(|(what, share)| Some((what, share?.value.get()))).collect();
        for (what, share) in &told {
            writeln!(f, "{what} at {share:.2} of what the parts promise")?;
            if BELIEVED.iter().any(|end| (share - end).abs() < 1e-3) {
                writeln!(f, "  that is as far as is believed: are the parts right?")?;
            }
        }
        if told.is_empty() {
            writeln!(f, "the parts promise what was measured, within 1 %")?;
        }
        let mut models: Vec<_> = self.rates.iter().map(|rate| &rate.model).collect();
        models.dedup();
        if models.len() == 1 && !told.is_empty() {
            writeln!(f, "models on one machine differ by 12 %: two or three tell more of it than one")?;
        }
        if let Some(error) = self.left_out {
            writeln!(
                f,
                "each rate left out and predicted by the others: {:.1} % off (median)",
                error * 100.0
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = "RTX 4070, i7-14700K, 64 GB DDR5-6000";

    fn row(model: &str, layers: i64, experts: u64, test: [u64; 3]) -> Value {
        let [prompt, output, depth] = test;
        json!({
            "build_number": 7500, "backends": "CUDA", "model_filename": format!("m/{model}-Q4_K_M.gguf"),
            "n_gpu_layers": layers, "n_cpu_moe": experts, "n_ubatch": 512, "n_threads": 8, "flash_attn": true,
            "type_k": "f16", "n_prompt": prompt, "n_gen": output, "n_depth": depth, "avg_ts": 1.0,
        })
    }

    /// What a machine with these shares measures.
    fn measured(rows: &[Value], shares: &Shares) -> Vec<Value> {
        let options = ReachedFitOptions::default();
        let runs = BenchRun::read(&Value::from(rows.to_vec()).to_string(), "own.json").expect("runs");
        let runs = runs.into_iter().map(|run| OwnRun::new(run, "own.json", &options).expect("a run"));
        let fit = Fit { names: parts(MACHINE).expect("a machine"), runs: runs.collect() };
        let rates = fit.rates(shares).expect("rates");
        let with = |(row, rate): (&Value, f64)| {
            let mut row = row.clone();
            row["avg_ts"] = json!(rate);
            row
        };
        rows.iter().zip(rates).map(with).collect()
    }

    fn fit(rows: &[Value]) -> ReachedFit {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("own.json");
        std::fs::write(&path, Value::from(rows.to_vec()).to_string()).expect("written");
        assert!(is_llama_bench(&path).expect("read"));
        let machine = MACHINE.to_owned();
        let options = ReachedFitOptions { runs: vec![path], machine, ..ReachedFitOptions::default() };
        fit_reached(&options).expect("a fit")
    }

    fn shares(fit: &ReachedFit) -> Shares {
        let reached = fit.machine.parts.reached.clone().unwrap_or_default();
        let (gpu, cpu) = (reached.gpu.unwrap_or_default(), reached.cpu.unwrap_or_default());
        [gpu.memory, gpu.compute, cpu.memory, cpu.compute, reached.link]
            .map(|share| share.map_or(1.0, |share| share.value.get()))
    }

    #[test]
    fn what_a_machine_reached_is_found_again() {
        let truth = [0.85, 1.2, 0.8, 1.0, 0.75];
        let tests = [[512, 0, 0], [0, 128, 0]];
        let names =
            [("Qwen3-8B", "Qwen3-30B-A3B"), ("Llama-3.1-8B", "Mixtral-8x7B"), ("Qwen2.5-7B", "GPT-OSS-20B")];
        let rows = names.iter().flat_map(|(dense, mixture)| {
            let apart = tests.map(|test| row(mixture, 99, 99, test));
            let on_gpu = tests.map(|test| row(dense, 99, 0, test));
            on_gpu.into_iter().chain(apart).chain([row(dense, 0, 0, [0, 64, 0])])
        });
        let rows = measured(&rows.collect::<Vec<_>>(), &truth);
        let found = [5, 15].map(|measured| fit(&rows[..measured]));
        for rate in found.iter().flat_map(|found| &found.rates) {
            let [before, after] = [rate.before, rate.fitted].map(|ours| (ours / rate.measured - 1.0).abs());
            assert!(after < before, "{rate:?}");
        }
        // One model says half of what it could, and three draw the shares nearer; what nobody
        // measured stays as promised.
        let off = found.map(|found| {
            let off = shares(&found).into_iter().zip(truth);
            off.map(|(found, truth)| (found / truth).ln().abs()).collect::<Vec<_>>()
        });
        for (one, three) in off[0].iter().zip(&off[1]) {
            assert!(*three < 0.1 && *three <= one + 0.01, "{off:?}");
        }
    }

    #[test]
    fn a_machine_that_keeps_its_promise_has_no_shares() {
        let rows = [row("Qwen3-8B", 99, 0, [512, 0, 0]), row("Qwen3-8B", 99, 0, [0, 128, 0])];
        let found = fit(&measured(&rows, &[1.0; 5]));
        assert_eq!(found.machine.parts.reached, None);
        assert!(found.to_string().contains("the parts promise what was measured"), "{found}");
        assert_eq!(found.left_out, None);
    }

    #[test]
    fn a_fitted_machine_is_read_back_from_its_file() {
        let rows = [row("Qwen3-8B", 99, 0, [512, 0, 0]), row("Qwen3-8B", 99, 0, [0, 128, 0])];
        let found = fit(&measured(&rows, &[0.8, 1.0, 1.0, 1.0, 1.0]));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mine.yaml");
        found.write(&path).expect("written");
        let name = path.display().to_string();
        assert_eq!(parts(&name).expect("parts"), found.machine.parts);
        let [own, promised] =
            [name.as_str(), MACHINE].map(|machine| crate::machine(machine).expect("a machine"));
        let hbm = |machine: &hwprofiles::Machine| {
            machine.memory(machine.memory_named("hbm").expect("a GPU")).bandwidth.value.get()
        };
        let (share, truth) = (hbm(&own) / hbm(&promised), shares(&found)[0]);
        assert!((share - truth).abs() < 1e-9 && share < 0.95, "{share}");
    }
}
