//! What a page in a browser asks: JSON in, JSON out.
//!
//! The page runs this crate as WebAssembly, or asks `fulcrum web`. Both keep a [`PageSession`], so
//! that a machine and a model are read once and not at every change of a control.

mod answers;
mod question;
mod recent_plans;

use crate::error::{OrError, Result};
use crate::pipeline::{CachedCatalog, described};
use question::PageQuestion;
use recent_plans::RecentPlans;
use scenarios::{Gguf, Model};
use serde_json::{Value, json};

/// What a page has looked up so far, and the models that its visitor brought.
#[derive(Debug, Default)]
pub struct PageSession {
    catalog: CachedCatalog,
    /// A page asks several questions about the same plan.
    recent: RecentPlans,
}

impl PageSession {
    /// Answers a question, `{"ask": …}`, with `{"answer": …}` or `{"error": {"text": …}}`.
    ///
    /// ```
    /// let session = fulcrum::PageSession::default();
    /// let scenario = r#"{"machine": "l4", "model": "opt-125m",
    ///     "workload": {"batch": 1, "prompt_tokens": 64, "output_tokens": 8}}"#;
    /// let answer = session.answer(&format!(r#"{{"ask": "plan", "scenario": {scenario}}}"#));
    /// assert!(answer.starts_with(r#"{"answer":"#), "{answer}");
    /// assert!(session.answer("{}").starts_with(r#"{"error":"#));
    /// ```
    pub fn answer(&self, question: &str) -> String {
        let read = serde_json::from_str::<PageQuestion>(question);
        written(read.or_input().and_then(|question| question.answer(&self.catalog, &self.recent)))
    }

    /// Lets scenarios name a model of a `config.json`, and answers with its shape.
    pub fn add_config(&self, name: &str, text: &str) -> String {
        written(self.add(name, Model::from_config_json(name, "config.json", text).or_input()))
    }

    /// The same for a GGUF file of `length` bytes, of which `header` holds at least the header.
    pub fn add_gguf(&self, name: &str, header: &[u8], length: u64) -> String {
        let gguf = Gguf::from_reader(name, header, length);
        written(self.add(name, gguf.and_then(|gguf| Model::from_gguf(name, name, &gguf)).or_input()))
    }

    fn add(&self, name: &str, model: Result<Model>) -> Result<Value> {
        let model = model?;
        let shape = described(&model);
        self.catalog.add_model(name, model);
        self.recent.forget();
        Ok(shape)
    }
}

/// An answer or an error as the page reads it.
fn written(answer: Result<Value>) -> String {
    let json = match answer {
        Ok(answer) => json!({ "answer": answer }),
        Err(error) => error.to_json(),
    };
    json.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(session: &PageSession, question: Value) -> Value {
        serde_json::from_str(&session.answer(&question.to_string())).expect("JSON")
    }

    fn scenario(model: &str) -> Value {
        let workload = json!({"batch": 1, "prompt_tokens": 64, "output_tokens": 8});
        json!({"machine": "rtx4090-desktop", "model": model, "workload": workload})
    }

    #[test]
    fn a_page_gets_the_plan_that_the_command_makes() {
        let session = PageSession::default();
        let answer = ask(&session, json!({"ask": "plan", "scenario": scenario("opt-125m")}));
        let plan = crate::parse_scenario(&scenario("opt-125m").to_string()).and_then(|it| crate::plan(&it));
        let plan = plan.expect("it fits").plan;
        assert_eq!(answer["answer"]["numbers"], crate::plan_numbers(&plan));
        let layers: u64 = answer["answer"]["layers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|it| it["count"].as_u64())
            .sum();
        assert_eq!(layers, 12);
        for phase in ["ttft", "tpot"] {
            let band = &answer["answer"]["bands"][phase];
            assert!(band[0].as_f64() <= Some(1.0) && band[1].as_f64() >= Some(1.0), "{band}");
        }
    }

    #[test]
    fn a_point_of_a_curve_is_near_the_plan_and_never_better() {
        let session = PageSession::default();
        for model in ["opt-1.3b", "llama-3.1-70b"] {
            let time = |ask_for: &str, pointer: &str| {
                let answer = ask(&session, json!({"ask": ask_for, "scenario": scenario(model)}));
                let number = |key: &str| answer.pointer(&format!("{pointer}/{key}")).and_then(Value::as_f64);
                number("ttft_s").expect("a time") + 7.0 * number("tpot_s").expect("a time")
            };
            let (point, plan) = (time("numbers", "/answer"), time("plan", "/answer/numbers"));
            assert!((0.999 * plan..1.2 * plan).contains(&point), "{model}: {point} beside {plan}");
        }
    }

    #[test]
    fn a_session_explains_and_exports_a_plan_that_another_made() {
        let (first, second) = (PageSession::default(), PageSession::default());
        let (scenario, other) = (scenario("llama-3.1-70b"), scenario("opt-125m"));
        let plan = ask(&first, json!({"ask": "plan", "scenario": scenario}))["answer"]["document"].clone();
        for question in ["explain", "roofline", "export"] {
            let mut asked = json!({"ask": question, "scenario": scenario});
            if question == "export" {
                asked["engine"] = json!("llama.cpp");
            }
            let mut known = asked.clone();
            known["plan"] = plan.clone();
            assert_eq!(ask(&second, known), ask(&first, asked), "{question}");
        }
        let known = json!({"ask": "roofline", "plan": plan, "scenario": other});
        assert_eq!(ask(&second, known)["error"]["kind"], "input");
    }

    #[test]
    fn a_model_that_is_brought_again_is_planned_again() {
        let session = PageSession::default();
        let config = |layers: u64| {
            format!(
                r#"{{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": {layers}, "num_attention_heads": 4,
                "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 256}}"#
            )
        };
        let planned = |layers: u64| {
            session.add_config("mine", &config(layers));
            let answer = ask(&session, json!({"ask": "plan", "scenario": scenario("mine")}));
            answer["answer"]["layers"].as_array().expect("layers").iter().map(|it| it["count"].as_u64()).sum()
        };
        assert_eq!((planned(2), planned(3)), (Some(2), Some(3)));
    }

    #[test]
    fn no_operator_is_above_the_roof_of_its_device() {
        let session = PageSession::default();
        let answer =
            ask(&session, json!({"ask": "roofline", "scenario": scenario("opt-1.3b")}))["answer"].clone();
        let devices = answer["devices"].as_array().expect("devices");
        let points = answer["points"].as_array().expect("points");
        for phase in ["prefill", "decode"] {
            let of_phase = points.iter().filter(|point| point["phase"] == phase);
            assert!(of_phase.clone().count() > 3, "{answer}");
            let share: f64 = of_phase.filter_map(|point| point["share"].as_f64()).sum();
            assert!(share <= devices.len() as f64 + 1e-9, "{answer}");
        }
        for point in points {
            let device = devices.iter().find(|it| it["name"] == point["device"]).expect("its device");
            let number = |of: &Value, key: &str| of[key].as_f64().expect("a number");
            let slope = number(device, "bandwidth_byte_per_s") * number(point, "flop_per_byte");
            let roof = slope.min(number(device, "peak_flop_per_s"));
            assert!(number(point, "flop_per_s") <= 1.01 * roof, "{point} under {device}");
        }
    }

    #[test]
    fn everything_in_the_catalog_can_be_asked_for() {
        let session = PageSession::default();
        let catalog = ask(&session, json!({"ask": "catalog"}))["answer"].clone();
        let names = |kind: &str| -> Vec<String> {
            let list = catalog[kind].as_array().expect("a list");
            list.iter().map(|it| it["name"].as_str().expect("a name").to_owned()).collect()
        };
        for kind in ["machines", "cpus", "gpus", "links", "models"] {
            assert!(names(kind).len() > 3, "{kind}");
        }
        let (cpu, gpu, link) = (&names("cpus")[0], &names("gpus")[0], &names("links")[0]);
        let machine = json!({"cpu": cpu, "gpu": gpu, "link": link, "dram": {"capacity": "64 GB", "modules": "2x DDR4-3200"}});
        let mut asked = scenario("opt-125m");
        asked["machine"] = machine;
        let answer = ask(&session, json!({"ask": "plan", "scenario": asked}));
        assert!(answer["answer"]["numbers"]["ttft_s"].as_f64() > Some(0.0), "{cpu}, {gpu}, {link}: {answer}");
    }

    #[test]
    fn a_pasted_model_is_planned_and_a_wrong_one_says_what_is_wrong() {
        let session = PageSession::default();
        let config = r#"{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 256}"#;
        let shape: Value = serde_json::from_str(&session.add_config("mine", config)).expect("JSON");
        assert_eq!(shape["answer"]["layers"], 2);
        let answer = ask(&session, json!({"ask": "explain", "scenario": scenario("mine")}));
        assert!(answer["answer"]["binding"].is_array(), "{answer}");
        let wrong: Value = serde_json::from_str(&session.add_config("mine", "{}")).expect("JSON");
        assert!(wrong["error"]["text"].as_str().is_some_and(|text| text.contains("model_type")), "{wrong}");
        let wrong: Value = serde_json::from_str(&session.add_gguf("mine", b"GGUX", 4)).expect("JSON");
        assert_eq!(wrong["error"]["kind"], "input");
        let wrong = ask(&session, json!({"ask": "plan", "scenario": scenario("lama-3.1-8b")}));
        assert_eq!(wrong["error"]["key"], "model");
        let large = ask(&session, json!({"ask": "plan", "scenario": scenario("deepseek-v3")}));
        assert_eq!(large["error"]["kind"], "infeasible");
    }

    #[test]
    fn an_export_is_a_command_and_the_plan_that_it_makes() {
        let session = PageSession::default();
        let asked = json!({"ask": "export", "engine": "llama.cpp", "scenario": scenario("llama-3.2-1b")});
        let answer = ask(&session, asked);
        assert!(
            answer["answer"]["command"].as_str().is_some_and(|text| text.starts_with("llama-server")),
            "{answer}"
        );
        assert!(answer["answer"]["nearest"]["ttft_s"].as_f64() > Some(0.0));
    }
}
