//! The answer: what fits, how fast it is, and which is best for the purpose.

use super::advice_row::{AdviceRow, outcome};
use super::advised_engine::AdvisedEngine;
use super::advised_machine::AdvisedMachine;
use super::model_catalog::CataloguedModel;
use super::placing::{EngineOnMachine, NotPlaced};
use super::question::{AdviceQuestion, Purpose};
use super::upgrade::{Upgrade, UpgradePrices, WithoutGpus, upgrades, without_each_kind};
use crate::error::{Error, Result};
use rayon::prelude::*;
use scenarios::Workload;
use serde::Serialize;

/// What a machine can run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// The machine's parts, as understood.
    pub parts: Vec<String>,
    /// What is assumed of it.
    pub assumed: Vec<String>,
    /// The engine.
    pub engine: AdvisedEngine,
    /// What it is for.
    pub purpose: Purpose,
    /// The load whose times are told.
    pub load: Workload,
    /// Tokens for which each sequence has room.
    pub context: u64,
    /// The least tokens per second that were asked for, of all sequences together.
    pub min_rate: f64,
    /// What runs, the best first: with one model asked about, each of its formats, and otherwise
    /// the best format of each model.
    pub rows: Vec<AdviceRow>,
    /// What does not run, and why.
    pub left_out: Vec<LeftOutModel>,
    /// What one upgrade brings, where one model is asked about.
    pub upgrades: Vec<Upgrade>,
    /// What each kind of GPU is worth, where one model is asked about and there are several kinds.
    pub without: Vec<WithoutGpus>,
}

/// A model that does not run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeftOutModel {
    /// The model.
    pub model: String,
    /// The format that comes nearest.
    pub format: String,
    /// Why.
    pub reason: String,
}

/// Says what `machine` can run: models and formats, each placed as the engine can, ranked by what
/// the question wants.
///
/// # Errors
/// [`Error::Input`] where the engine cannot run there or cannot run the one model that is asked
/// about, or where the model or the format is unknown. A model that does not fit is an answer: it
/// is left out.
pub fn advise(machine: &AdvisedMachine, question: &AdviceQuestion, prices: &UpgradePrices) -> Result<Advice> {
    question.format.as_deref().map_or(Ok(()), |word| question.engine.check_format(word))?;
    if question.micro_batch.is_some() && !question.engine.runs_llama_server() {
        let engine = question.engine;
        return Err(Error::input(format!("{engine} has no --micro-batch: llama.cpp and ik_llama.cpp do")));
    }
    question.check_prompt()?;
    let one = question.model.as_deref().map(CataloguedModel::named).transpose()?;
    let shorter = one.as_ref().and_then(|entry| question.within(entry.model.max_positions));
    let short_context =
        shorter.as_ref().map(|it| format!("room for {} tokens, where its context ends", it.room().context()));
    let question = shorter.as_ref().unwrap_or(question);
    let site = EngineOnMachine::new(&machine.machine, question)?;
    let catalog = match &one {
        Some(model) => vec![model.clone()],
        None => CataloguedModel::all()?,
    };
    let newest = CataloguedModel::all()?.iter().filter_map(|entry| entry.year).max().unwrap_or_default();
    let asked = catalog.iter().filter(|entry| one.is_some() || entry.purposes.contains(&question.purpose));
    let cells: Vec<_> = asked
        .flat_map(|entry| {
            let formats = question.formats(entry.own_format());
            formats.into_iter().map(move |format| (entry, format))
        })
        .collect();
    let outcomes: Vec<_> =
        cells.par_iter().map(|(entry, format)| outcome(&site, question, entry, format, newest)).collect();
    let is_short = |outcome: &Result<AdviceRow, NotPlaced>| matches!(outcome, Err(NotPlaced::Short { .. }));
    let (never, short) = (outcomes.iter().all(Result::is_err), outcomes.iter().any(is_short));
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    for ((entry, format), outcome) in cells.iter().zip(outcomes) {
        let (model, format) = (entry.model.name.clone(), format.clone());
        match outcome {
            Ok(row) => rows.push(row),
            Err(reason) => left_out.push(LeftOutModel { model, format, reason: reason.to_string() }),
        }
    }
    rank(&mut rows);
    match &one {
        Some(entry) if never && !short => return Err(impossible(&entry.model.name, question, &left_out)),
        Some(_) => {}
        None => keep_best_formats(&mut rows, &mut left_out),
    }
    let (upgrades, without) = match &one {
        Some(entry) => (
            upgrades(machine, question, entry, &rows, prices, newest),
            without_each_kind(machine, question, entry, newest),
        ),
        None => (vec![], vec![]),
    };
    Ok(Advice {
        parts: machine.parts.clone(),
        assumed: machine.all_assumed().into_iter().chain(short_context).collect(),
        engine: question.engine,
        purpose: question.purpose,
        load: question.load(),
        context: question.room().context(),
        min_rate: question.least_rate(),
        rows,
        left_out,
        upgrades,
        without,
    })
}

/// The best first: those that are fast enough, by score; then the others, the fastest first.
fn rank(rows: &mut [AdviceRow]) {
    let value = |row: &AdviceRow| if row.fast_enough { row.score } else { row.tok_s };
    rows.sort_by(|a, b| {
        b.fast_enough.cmp(&a.fast_enough).then(value(b).total_cmp(&value(a))).then(a.model.cmp(&b.model))
    });
}

/// Keeps the first row of each model, and of each model without one the reason of its smallest
/// format.
fn keep_best_formats(rows: &mut Vec<AdviceRow>, left_out: &mut Vec<LeftOutModel>) {
    let mut seen: Vec<String> = Vec::new();
    rows.retain(|row| {
        let is_new = !seen.contains(&row.model);
        seen.push(row.model.clone());
        is_new
    });
    left_out.reverse();
    left_out.retain(|model| {
        let is_new = !seen.contains(&model.model);
        seen.push(model.model.clone());
        is_new
    });
    left_out.reverse();
}

/// The error of a model that the engine cannot run, whatever the memory.
fn impossible(model: &str, question: &AdviceQuestion, left_out: &[LeftOutModel]) -> Error {
    let why: Vec<_> = left_out.iter().map(|it| format!("\n  {:<10} {}", it.format, it.reason)).collect();
    let engine = question.engine;
    Error::input(format!("{model} does not run with {engine}:{}", why.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::model_places::ModelPlaces;
    use hwprofiles::{Bytes, Seconds};

    fn question(model: Option<&str>) -> AdviceQuestion {
        AdviceQuestion {
            purpose: Purpose::Chat,
            min_rate: None,
            context: None,
            prompt: None,
            micro_batch: None,
            engine: AdvisedEngine::default(),
            model: model.map(str::to_owned),
            format: None,
        }
    }

    fn advice(machine: &str, question: &AdviceQuestion) -> Advice {
        let machine = AdvisedMachine::from_words(machine).expect("a machine");
        advise(&machine, question, &UpgradePrices::usual()).expect("advice")
    }

    #[test]
    fn the_best_come_first_and_each_model_once() {
        let found = advice("RTX 3060, Ryzen 5 5600, 32 GB", &question(None));
        let names: Vec<_> = found.rows.iter().map(|row| &row.model).collect();
        let mut once = names.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), names.len());
        for pair in found.rows.windows(2) {
            assert!(pair[0].fast_enough >= pair[1].fast_enough);
            if pair[0].fast_enough && pair[1].fast_enough {
                assert!(pair[0].score >= pair[1].score);
            }
        }
        for row in &found.rows {
            let [low, high] = row.tok_s_band;
            assert!(low < row.tok_s && row.tok_s < high && row.ttft > Seconds::ZERO, "{row:?}");
        }
    }

    #[test]
    fn every_row_fits_and_more_memory_never_fits_less() {
        let fitting = |machine: &str| -> Vec<String> {
            let machine = AdvisedMachine::from_words(machine).expect("a machine");
            let asked = question(None);
            let site = EngineOnMachine::new(&machine.machine, &asked).expect("a site");
            let all = CataloguedModel::all().expect("a catalogue");
            let cells = all.iter().filter(|entry| entry.own_format().is_none()).map(|entry| {
                let formats = asked.engine.formats_named("q4_k_m", &entry.model).expect("formats");
                match site.place(&entry.model, &formats) {
                    Ok(placed) => {
                        assert!(site.holds(&entry.model, &formats, placed.places), "{}", entry.model.name);
                        Some(entry.model.name.clone())
                    }
                    Err(_) => None,
                }
            });
            cells.flatten().collect()
        };
        for lines in [
            [
                "RTX 3060, Ryzen 5 5600, 16 GB",
                "RTX 3060, Ryzen 5 5600, 32 GB",
                "RTX 3060, Ryzen 5 5600, 128 GB",
            ],
            ["RTX 3060, i7-14700K, 64 GB", "RTX 3090, i7-14700K, 64 GB", "2x RTX 3090, i7-14700K, 64 GB"],
            ["M4 Max, 36 GB", "M4 Max, 64 GB", "M4 Max, 128 GB"],
            ["i7-14700K, 16 GB", "i7-14700K, 24 GB", "RTX 3060, i7-14700K, 24 GB"],
        ] {
            let found = lines.map(fitting);
            for (pair, line) in found.windows(2).zip(&lines[1..]) {
                let lost: Vec<_> = pair[0].iter().filter(|model| !pair[1].contains(model)).collect();
                assert!(lost.is_empty(), "{line} lost {lost:?}");
            }
            assert!(found[2].len() > found[0].len(), "{lines:?}");
        }
    }

    #[test]
    fn a_faster_part_is_never_slower() {
        let rate = |machine: &str| {
            let asked =
                AdviceQuestion { format: Some("q4_k_m".to_owned()), ..question(Some("qwen3-30b-a3b")) };
            advice(machine, &asked).rows[0].tok_s
        };
        assert!(rate("RTX 4070, i7-14700K, 64 GB DDR5-6000") > rate("RTX 4070, i7-14700K, 64 GB DDR5-4800"));
        assert!(rate("RTX 4090, i7-14700K, 64 GB") > rate("RTX 4070, i7-14700K, 64 GB"));
        assert!(rate("RTX 4070, i7-14700K, 64 GB") > rate("i7-14700K, 64 GB"));
    }

    #[test]
    fn what_fits_on_the_gpu_stays_there_and_no_more_experts_are_kept_than_must() {
        let machine = AdvisedMachine::from_words("RTX 4090, i7-14700K, 128 GB").expect("a machine");
        let asked = question(None);
        let site = EngineOnMachine::new(&machine.machine, &asked).expect("a site");
        let placed = |name: &str, format: &str| {
            let entry = CataloguedModel::named(name).expect("a model");
            let formats = asked.engine.formats_named(format, &entry.model).expect("formats");
            (site.place(&entry.model, &formats).expect("it fits").places, entry.model, formats)
        };
        assert!(placed("qwen3-14b", "q8_0").0.all_on_gpu());
        let (places, model, formats) = placed("gpt-oss-120b", "mxfp4_moe");
        assert!(places.cpu_expert_layers > 0 && places.gpu_layers > places.layers, "{places:?}");
        let one_less = ModelPlaces { cpu_expert_layers: places.cpu_expert_layers - 1, ..places };
        assert!(!site.holds(&model, &formats, one_less));
        let (places, model, formats) = placed("llama-3.1-70b", "q4_k_m");
        assert!(places.gpu_layers < places.layers && places.cpu_expert_layers == 0, "{places:?}");
        let one_more = ModelPlaces { gpu_layers: places.gpu_layers + 1, ..places };
        assert!(!site.holds(&model, &formats, one_more));
    }

    #[test]
    fn a_second_gpu_holds_experts_and_the_command_says_how_many_layers() {
        let asked = AdviceQuestion { format: Some("q4_k_m".to_owned()), ..question(Some("glm-4.5-air")) };
        let row = |machine: &str| advice(machine, &asked).rows[0].clone();
        let experts = |row: &AdviceRow| -> u64 {
            row.places.split('/').next().and_then(|kept| kept.parse().ok()).expect("experts in RAM")
        };
        let [one, two] = ["RTX 3090, EPYC 7532, 256 GB", "2x RTX 3090, EPYC 7532, 256 GB"].map(row);
        assert!(experts(&two) < experts(&one) && two.tok_s > one.tok_s, "{} {}", one.places, two.places);
        assert!(two.command.contains(" -ts ") && !one.command.contains(" -ts "), "{}", two.command);
    }

    #[test]
    fn a_slower_gpu_beside_the_first_is_never_worse() {
        let row = |machine: &str, engine, model: &str, format: &str| {
            let asked = AdviceQuestion { engine, format: Some(format.to_owned()), ..question(Some(model)) };
            advice(machine, &asked).rows[0].clone()
        };
        let (one, two) = ("RTX 4090, i7-14700K, 64 GB", "RTX 3060, RTX 4090, i7-14700K, 64 GB");
        for (engine, model, format) in [
            (AdvisedEngine::LlamaCpp, "qwen3-8b", "q6_k"),
            (AdvisedEngine::LlamaCpp, "qwen3-32b", "q5_k_m"),
            (AdvisedEngine::LlamaCpp, "gemma-4-31b", "q4_k_m"),
            (AdvisedEngine::LlamaCpp, "llama-3.1-70b", "q4_k_m"),
            (AdvisedEngine::LlamaCpp, "gpt-oss-120b", "mxfp4_moe"),
            (AdvisedEngine::Ollama, "qwen3-8b", "q6_k"),
            (AdvisedEngine::Vllm, "qwen3-8b", "fp8"),
        ] {
            let [alone, both] = [one, two].map(|machine| row(machine, engine, model, format));
            assert!(both.score >= alone.score * 0.999, "{engine} {model}: {alone:#?} {both:#?}");
        }
        let [two_alike, three] = ["2x RTX 3090, i7-14700K, 64 GB", "RTX 3060, 2x RTX 3090, i7-14700K, 64 GB"]
            .map(|machine| row(machine, AdvisedEngine::LlamaCpp, "qwen3.5-35b-a3b", "q5_k_m"));
        assert!(three.score >= two_alike.score * 0.999, "{two_alike:#?} {three:#?}");
        assert!(row(two, AdvisedEngine::LlamaCpp, "qwen3-8b", "q6_k").command.ends_with(" -sm none"));
        let large = row(two, AdvisedEngine::LlamaCpp, "gpt-oss-120b", "mxfp4_moe");
        assert!(large.command.contains(" -ts "), "{}", large.command);
    }

    #[test]
    fn larger_steps_are_chosen_where_prompts_fetch_experts() {
        let asked = |micro_batch| AdviceQuestion {
            prompt: Some(4096),
            micro_batch,
            format: Some("q4_k_m".to_owned()),
            ..question(Some("qwen3-30b-a3b"))
        };
        let row = |machine: &str, micro_batch| advice(machine, &asked(micro_batch)).rows[0].clone();
        let small = "RTX 4070, i7-14700K, 64 GB";
        let [usual, chosen] = [row(small, Some(512)), row(small, None)];
        assert!(chosen.ttft * 2.0 < usual.ttft, "{} {}", usual.ttft, chosen.ttft);
        assert!(chosen.command.contains(" -ub ") && !usual.command.contains(" -ub "), "{}", chosen.command);
        // Where nothing is fetched, the engine's own size stays.
        assert!(!row("RTX 5090, i7-14700K, 64 GB", None).command.contains(" -ub "));
        let vllm = AdviceQuestion { engine: AdvisedEngine::Vllm, format: None, ..asked(Some(512)) };
        let machine = AdvisedMachine::from_words("RTX 5090, i7-14700K, 64 GB").expect("a machine");
        let refused = advise(&machine, &vllm, &UpgradePrices::usual()).expect_err("no such option");
        assert!(refused.to_string().contains("vllm has no --micro-batch"), "{refused}");
    }

    #[test]
    fn an_upgrade_makes_the_answer_better_and_costs_something() {
        let found = advice("RTX 3060, Ryzen 5 5600, 32 GB DDR4-3200", &question(Some("gpt-oss-120b")));
        assert!(found.rows.is_empty(), "60 GB do not fit: {:?}", found.rows);
        assert!(
            found.left_out.iter().all(|left| left.reason.contains("GB of memory")),
            "{:?}",
            found.left_out
        );
        assert!(!found.upgrades.is_empty());
        let memory = found.upgrades.iter().find(|upgrade| upgrade.change.contains("of memory"));
        assert!(memory.is_some_and(|upgrade| upgrade.price.get() > 100.0), "{:?}", found.upgrades);
        let now = advice("RTX 3060, Ryzen 5 5600, 32 GB DDR4-3200", &question(Some("qwen3-30b-a3b")));
        let best = now.rows.iter().map(|row| row.score).fold(0.0, f64::max);
        assert!(now.upgrades.iter().all(|upgrade| upgrade.row.score > best));
        assert!(now.upgrades.windows(2).all(|pair| pair[0].price.get() <= pair[1].price.get()));
    }

    #[test]
    fn an_engine_that_cannot_run_there_says_which_can() {
        let refused = |machine: &str, engine: &str, model: Option<&str>| {
            let machine = AdvisedMachine::from_words(machine).expect("a machine");
            let engine = engine.parse().expect("an engine");
            let asked = AdviceQuestion { engine, ..question(model) };
            let error = advise(&machine, &asked, &UpgradePrices::usual()).expect_err("refused");
            assert!(matches!(error, Error::Input(_)), "{error}");
            error.to_string()
        };
        assert!(refused("i7-14700K, 64 GB", "vllm", None).contains("--engine llama.cpp runs here"));
        assert!(refused("M4 Max, 64 GB", "vllm", None).contains("--engine llama.cpp runs here"));
        let told = refused("RTX 4090, i7-14700K, 64 GB", "ktransformers", Some("qwen3-8b"));
        assert!(told.contains("qwen3-8b") && told.contains("has none"), "{told}");
        let format =
            |engine: AdvisedEngine, word: &str| engine.check_format(word).err().map(|it| it.to_string());
        let told = format(AdvisedEngine::LlamaCpp, "q4").expect("no format");
        assert!(told.contains("--format 'q4' is not a format; did you mean q4_k_m, q4_0, "), "{told}");
        assert!(
            format(AdvisedEngine::Vllm, "q4_k_m").is_some_and(|told| told.contains("reads no GGUF files"))
        );
        assert_eq!(
            ["q4_k_m", "Q8_0", "int4"].map(|word| format(AdvisedEngine::LlamaCpp, word)),
            [None, None, None]
        );
        assert!("lama.cpp".parse::<AdvisedEngine>().expect_err("no engine").contains("llama.cpp"));
    }

    #[test]
    fn a_model_whose_context_is_short_has_room_for_that_unless_more_is_asked_for() {
        let machine = AdvisedMachine::from_words("RTX 4090, i7-14700K, 64 GB").expect("a machine");
        let ask = |context, prompt| {
            let asked = AdviceQuestion { context, prompt, ..question(Some("llama-2-7b")) };
            advise(&machine, &asked, &UpgradePrices::usual())
        };
        let found = ask(None, None).expect("advice");
        assert_eq!((found.context, found.load.prompt_tokens), (4096, 1024));
        assert!(found.assumed.contains(&"room for 4096 tokens, where its context ends".to_owned()));
        for more in [ask(Some(8192), None), ask(None, Some(4000))] {
            assert!(more.expect_err("too long").to_string().contains("its context ends at 4096 tokens"));
        }
    }

    #[test]
    fn a_longer_context_takes_memory_and_is_kept_within_the_model() {
        let asked = |context: u64| AdviceQuestion {
            context: Some(context),
            format: Some("q4_k_m".to_owned()),
            ..question(Some("qwen3-14b"))
        };
        let [short, long] =
            [4096, 40_960].map(|context| advice("RTX 4070, i7-14700K, 64 GB", &asked(context)));
        assert_eq!(short.rows[0].places, "all on the GPU");
        assert_ne!(long.rows[0].places, "all on the GPU");
        assert_eq!(long.context, 40_960);
        assert!(short.rows[0].weights > Bytes::ZERO);
    }
}
