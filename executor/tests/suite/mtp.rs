//! A model's own MTP module as its draft.

use crate::golden_files::{self, Tensors};
use crate::rig;
use executor::{Checkpoint, ExecutorError, Sampling, Session, SpeculativeBatch, SpeculativeSession};
use hwprofiles::DType;
use planner::{PhasePrograms, Placement, RunExtent};
use scenarios::{Model, Phase};
use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;

const OUTPUT: u64 = 14;
const FAMILIES: [&str; 4] = ["glm4_moe", "deepseek_v3", "qwen3_next", "qwen3_5"];
const RANDOM: Sampling = Sampling::Random { temperature: 0.7, top_k: Some(50), top_p: None, seed: 3 };

fn extent(step_tokens: u64) -> RunExtent {
    RunExtent { batch: 3, context: 40, chunk: 4, step_tokens }
}

fn prompts() -> Vec<Vec<u32>> {
    vec![vec![5, 9, 200, 31, 7], vec![77, 3, 3, 150, 12], vec![1, 2, 3, 4, 5]]
}

/// How a family names the tensors of its module.
struct Names {
    /// The model's last layer, which is of the module's shape.
    last: &'static str,
    layer: &'static str,
    embedding_norm: &'static str,
    hidden_norm: &'static str,
    projection: &'static str,
    norm: &'static str,
    /// What a norm's weight is beside the number in the file.
    offset: f32,
    /// The key that says how many modules there are.
    key: &'static str,
}

fn names_of(family: &str) -> Names {
    if family.starts_with("qwen") {
        return Names {
            last: if family == "qwen3_next" { "model.layers.3." } else { "model.layers.1." },
            layer: "mtp.layers.0.",
            embedding_norm: "mtp.pre_fc_norm_embedding.weight",
            hidden_norm: "mtp.pre_fc_norm_hidden.weight",
            projection: "mtp.fc.weight",
            norm: "mtp.norm.weight",
            offset: 1.0,
            key: "mtp_num_hidden_layers",
        };
    }
    // The module is one more layer behind the two of the golden models.
    Names {
        last: "model.layers.1.",
        layer: "model.layers.2.",
        embedding_norm: "model.layers.2.enorm.weight",
        hidden_norm: "model.layers.2.hnorm.weight",
        projection: "model.layers.2.eh_proj.weight",
        norm: "model.layers.2.shared_head.norm.weight",
        offset: 0.0,
        key: "num_nextn_predict_layers",
    }
}

/// The tensors of a golden model with those of a module, whose layer is another than any of the
/// model's.
fn with_module(name: &str) -> Tensors {
    let (mut tensors, names) = (golden_files::draw(name), names_of(name));
    let last = tensors.iter().filter_map(|(name, (shape, values))| {
        let part = name.strip_prefix(names.last)?;
        // Read from behind, they are as random, and norms stay around 1.
        Some((format!("{}{part}", names.layer), (shape.clone(), values.iter().rev().copied().collect())))
    });
    let layer: Tensors = last.collect();
    tensors.extend(layer);
    let hidden = tensors["model.norm.weight"].0[0];
    let table = tensors["model.embed_tokens.weight"].1.clone();
    let mut add = |name: &str, shape: Vec<usize>, offset: f32, at: usize| {
        let count: usize = shape.iter().product();
        let values = table.iter().cycle().skip(at).take(count).map(|value| offset + value).collect();
        tensors.insert(name.to_owned(), (shape, values));
    };
    add(names.embedding_norm, vec![hidden], 1.0 - names.offset, 100);
    add(names.hidden_norm, vec![hidden], 0.8 - names.offset, 777);
    add(names.norm, vec![hidden], 1.1 - names.offset, 555);
    add(names.projection, vec![hidden, 2 * hidden], 0.0, 4321);
    tensors
}

/// A folder with these tensors, and the golden model's configuration with `changes`.
fn folder(name: &str, tensors: &Tensors, changes: &[(&str, Value)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = std::fs::read(golden_files::source(name).join("config.json")).expect("it is there");
    let mut config: Value = serde_json::from_slice(&text).expect("JSON");
    changes.iter().for_each(|(key, value)| config[*key] = value.clone());
    std::fs::write(folder.path().join("config.json"), config.to_string()).expect("written");
    golden_files::write_tensors(&folder.path().join("model.safetensors"), tensors);
    folder
}

fn module_folder(name: &str, tensors: &Tensors) -> TempDir {
    folder(name, tensors, &[(names_of(name).key, json!(1))])
}

/// Model and module of `folder`.
fn drafted(folder: &Path, place: impl Fn(&Model) -> Placement, proposed: u64) -> SpeculativeSession {
    let model = Checkpoint::open(folder).expect("it opens");
    let module = Checkpoint::open_mtp(folder).expect("it has a module");
    let draft = rig::session(&module, rig::on(module.model(), rig::CPU), rig::F32, extent(proposed + 1));
    let model = rig::session(&model, place(model.model()), rig::F32, extent(proposed + 1));
    SpeculativeSession::new(model, draft).expect("they fit each other")
}

fn generate(session: &mut SpeculativeSession, sampling: Sampling) -> SpeculativeBatch {
    session.generate_until(&prompts(), OUTPUT, sampling, |_, _| false).expect("valid")
}

/// Places a model on the devices.
type Place = fn(&Model) -> Placement;

#[test]
fn a_module_changes_no_token_whatever_it_predicts() {
    for name in FAMILIES {
        let folder = module_folder(name, &with_module(name));
        let model = Checkpoint::open(folder.path()).expect("it opens");
        let places: [Place; 4] = [
            |model| rig::on(model, rig::CPU),
            rig::mixed,
            rig::streamed,
            |model| {
                let mut placement = rig::on(model, rig::CPU);
                placement.pipelining.micro_batches = 2;
                placement
            },
        ];
        for (place, sampling) in
            places.into_iter().flat_map(|place| [(place, Sampling::Greedy), (place, RANDOM)])
        {
            let mut alone = rig::session(&model, place(model.model()), rig::F32, extent(1));
            let expected = alone.generate(&prompts(), OUTPUT, sampling, |_| {}).expect("valid").tokens;
            for proposed in [1, 3] {
                let batch = generate(&mut drafted(folder.path(), place, proposed), sampling);
                assert_eq!(batch.generated.tokens, expected, "{name}, {proposed} proposed");
                assert!(batch.accepted < batch.proposed, "a random module is mostly wrong");
            }
        }
    }
}

#[test]
fn a_module_that_predicts_as_its_model_does_is_always_right_and_saves_steps() {
    for name in FAMILIES {
        let (mut tensors, names) = (with_module(name), names_of(name));
        // Where no layer adds anything, the next token follows from the last one alone.
        for (name, (_, values)) in &mut tensors {
            if ["o_proj", "out_proj", "down_proj"].iter().any(|part| name.contains(part)) {
                values.fill(0.0);
            }
        }
        let norm = tensors["model.norm.weight"].clone();
        let hidden = norm.1.len();
        tensors.insert(names.norm.to_owned(), norm);
        let one = (vec![hidden], vec![1.0 - names.offset; hidden]);
        tensors.insert(names.embedding_norm.to_owned(), one);
        let identity = (0..2 * hidden * hidden).map(|at| f32::from(at % (2 * hidden) == at / (2 * hidden)));
        tensors.insert(names.projection.to_owned(), (vec![hidden, 2 * hidden], identity.collect()));
        let folder = module_folder(name, &tensors);
        for proposed in [1, 2, 5] {
            let batch = generate(&mut drafted(folder.path(), rig::mixed, proposed), Sampling::Greedy);
            assert_eq!(batch.accepted, batch.proposed, "{name}, {proposed} proposed");
            let steps = &batch.generated.trace.steps;
            let checks = steps.iter().filter(|span| !span.draft && span.step.phase == Phase::Decode);
            assert_eq!(checks.count() as u64, (OUTPUT - 1).div_ceil(proposed + 1));
            assert!(steps.windows(2).all(|two| two[0].end_ns <= two[1].start_ns), "one after the other");
        }
    }
}

/// The module's formula on top of the golden models: the model's hidden states come from it with
/// the identity as its head, the module's first residual is computed here, and its layer is run as
/// a model of one layer whose token table has these residuals.
struct Reference<'t> {
    name: &'t str,
    tensors: &'t Tensors,
    /// The module's first residuals, one after another.
    residuals: Vec<f32>,
}

impl Reference<'_> {
    fn hidden(&self) -> usize {
        self.tensors["model.norm.weight"].1.len()
    }

    /// The last row of a model's logits for `tokens`.
    fn logits(&self, tensors: &Tensors, changes: &[(&str, Value)], tokens: &[u32]) -> Vec<f32> {
        let folder = folder(self.name, tensors, changes);
        let checkpoint = Checkpoint::open(folder.path()).expect("it opens");
        let placement = rig::on(checkpoint.model(), rig::CPU);
        let mut session: Session = rig::session(&checkpoint, placement, rig::F32, extent(1));
        session.generate(&[tokens.to_vec()], 1, Sampling::Greedy, |_| {}).expect("valid");
        session.logits().expect("on the host").remove(0)
    }

    /// The same tensors with a head that shows the hidden state.
    fn with_identity(&self, tensors: &Tensors) -> Tensors {
        let (hidden, mut tensors) = (self.hidden(), tensors.clone());
        let head = &mut tensors.get_mut("lm_head.weight").expect("it is there").1;
        head.iter_mut().enumerate().for_each(|(at, value)| *value = f32::from(at % hidden == at / hidden));
        tensors
    }

    /// The model's hidden state behind `tokens`.
    fn state(&self, tokens: &[u32]) -> Vec<f32> {
        let mut state = self.logits(&self.with_identity(self.tensors), &[], tokens);
        state.truncate(self.hidden());
        state
    }

    /// Adds the residual of a hidden state and the token behind it.
    fn add(&mut self, state: &[f32], token: u32) {
        let hidden = self.hidden();
        let names = names_of(self.name);
        let own = |name: &str| &self.tensors[name].1;
        let epsilon = if self.name == "glm4_moe" { 1e-5 } else { 1e-6 };
        let normed = |row: &[f32], norm: &[f32]| -> Vec<f64> {
            let row: Vec<_> = row.iter().map(|&x| f64::from(x)).collect();
            let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
            let scale = 1.0 / (mean + epsilon).sqrt();
            row.iter().zip(norm).map(|(x, gamma)| x * scale * f64::from(names.offset + gamma)).collect()
        };
        let table = &self.tensors["model.embed_tokens.weight"].1;
        let embedding = &table[token as usize * hidden..][..hidden];
        let joined =
            [normed(embedding, own(names.embedding_norm)), normed(state, own(names.hidden_norm))].concat();
        let row = |row: &[f32]| row.iter().zip(&joined).map(|(&w, x)| f64::from(w) * x).sum::<f64>() as f32;
        let residual: Vec<_> = own(names.projection).chunks_exact(2 * hidden).map(row).collect();
        self.residuals.extend(residual);
    }

    /// The module's logits, or its hidden state, in the last row that was added.
    fn module(&self, shows_state: bool) -> Vec<f32> {
        let (mut layer, names) = (Tensors::new(), names_of(self.name));
        for (name, tensor) in self.tensors {
            if let Some(part) = name.strip_prefix(names.layer) {
                layer.insert(format!("model.layers.0.{part}"), tensor.clone());
            }
        }
        layer.insert("lm_head.weight".into(), self.tensors["lm_head.weight"].clone());
        layer.insert("model.norm.weight".into(), self.tensors[names.norm].clone());
        let (shape, values) = &self.tensors["model.embed_tokens.weight"];
        let mut table = self.residuals.clone();
        table.resize(values.len(), 0.0);
        layer.insert("model.embed_tokens.weight".into(), (shape.clone(), table));
        let layer = if shows_state { self.with_identity(&layer) } else { layer };
        let rows = (self.residuals.len() / self.hidden()) as u32;
        let mut changes = vec![("num_hidden_layers", json!(1)), ("first_k_dense_replace", json!(0))];
        if self.name == "qwen3_next" {
            changes.push(("layer_types", json!(["full_attention"])));
        }
        self.logits(&layer, &changes, &(0..rows).collect::<Vec<_>>())
    }
}

#[test]
fn the_logits_of_a_module_are_those_of_its_formula() {
    // The reference has another token table than head.
    for name in FAMILIES.into_iter().filter(|name| *name != "qwen3_5") {
        let tensors = with_module(name);
        let folder = module_folder(name, &tensors);
        let mut reference = Reference { name, tensors: &tensors, residuals: vec![] };
        let mut tokens = prompts()[0].clone();
        for end in 1..tokens.len() {
            reference.add(&reference.state(&tokens[..end]), tokens[end]);
        }
        let mut chosen = None;
        for proposed in [1, 2] {
            let mut session = drafted(folder.path(), |model| rig::on(model, rig::CPU), proposed);
            let mut heard = vec![];
            // The run ends with the first tokens that were verified.
            let on_token = |_, token| {
                heard.push(token);
                heard.len() > 1
            };
            session.generate_until(&[tokens[..5].to_vec()], 5, Sampling::Greedy, on_token).expect("valid");
            match chosen {
                None => {
                    let state = reference.state(&tokens);
                    tokens.push(heard[0]);
                    reference.add(&state, heard[0]);
                }
                // Its second token follows from its own hidden state.
                Some(token) => reference.add(&reference.module(true)[..reference.hidden()], token),
            }
            let expected = reference.module(false);
            let found = session.draft().logits().expect("on the host").remove(0);
            let largest = expected.iter().fold(0.0f32, |most, logit| most.max(logit.abs()));
            for (expected, found) in expected.iter().zip(&found) {
                assert!((expected - found).abs() < 1e-4 * largest, "{name}: {found}, not {expected}");
            }
            let best = (0..expected.len()).max_by(|a, b| expected[*a].total_cmp(&expected[*b]));
            chosen = best.map(|token| token as u32);
        }
    }
}

#[test]
fn model_and_module_take_the_memory_that_a_plan_counts() {
    for name in ["deepseek_v3", "qwen3_next"] {
        let folder = module_folder(name, &with_module(name));
        let open = [Checkpoint::open(folder.path()), Checkpoint::open_mtp(folder.path())];
        let places: [Place; 2] = [|model| rig::on(model, rig::CPU), rig::streamed];
        for checkpoint in open.map(|checkpoint| checkpoint.expect("it opens")) {
            for (place, weights) in places
                .into_iter()
                .flat_map(|place| [DType::F32, DType::Bf16, DType::Int8].map(|it| (place, it)))
            {
                check_memory(name, &checkpoint, &place(checkpoint.model()), weights);
            }
        }
    }
}

fn check_memory(name: &str, checkpoint: &Checkpoint, placement: &Placement, weights: DType) {
    let (machine, formats) = (rig::machine(), rig::formats(weights, DType::F32));
    let session = rig::session(checkpoint, placement.clone(), formats, extent(4));
    let programs = PhasePrograms::lower(&machine, checkpoint.model(), placement).expect("it lowers");
    let usage = planner::usage(&machine, checkpoint.model(), &formats, placement, &programs, &extent(4));
    let counted: Vec<_> = usage.iter().map(planner::MemoryUsage::total).collect();
    assert_eq!(session.memory_used(), counted, "{name} {weights}");
}

#[test]
fn a_module_may_have_its_own_copies_of_table_and_head() {
    let name = "glm4_moe";
    let tensors = with_module(name);
    let mut copies = tensors.clone();
    for (own, shared) in
        [("embed_tokens.weight", "model.embed_tokens.weight"), ("shared_head.head.weight", "lm_head.weight")]
    {
        copies.insert(format!("{}{own}", names_of(name).layer), tensors[shared].clone());
    }
    let tokens = [&tensors, &copies].map(|tensors| {
        let folder = module_folder(name, tensors);
        let batch = generate(&mut drafted(folder.path(), rig::mixed, 2), Sampling::Greedy);
        (batch.generated.tokens, batch.accepted)
    });
    assert_eq!(tokens[0], tokens[1]);
    // With another head it proposes other tokens.
    copies.get_mut("model.layers.2.shared_head.head.weight").expect("just added").1.reverse();
    let logits = [&tensors, &copies].map(|tensors| {
        let folder = module_folder(name, tensors);
        let mut session = drafted(folder.path(), rig::mixed, 2);
        generate(&mut session, Sampling::Greedy);
        session.draft().logits().expect("on the host")
    });
    assert_ne!(logits[0], logits[1]);
}

#[test]
fn the_names_of_each_family_are_read_and_missing_ones_are_named() {
    for name in FAMILIES {
        let (mut tensors, names) = (with_module(name), names_of(name));
        tensors.remove(names.projection);
        let folder = module_folder(name, &tensors);
        Checkpoint::open(folder.path()).expect("the model alone is whole");
        let error = Checkpoint::open_mtp(folder.path()).expect_err("a tensor is missing");
        assert!(matches!(error, ExecutorError::MissingModule { .. }), "{error}");
        let error = error.to_string();
        for word in ["model.safetensors", names.projection, "[64, 128]", "speculative.draft"] {
            assert!(error.contains(word), "{word}: {error}");
        }
    }
    let folder = module_folder("glm4_moe", &with_module("glm4_moe"));
    let module = Checkpoint::open_mtp(folder.path()).expect("it has a module");
    let mut alone = rig::session(&module, rig::on(module.model(), rig::CPU), rig::F32, extent(1));
    let error =
        alone.generate(&prompts(), 2, Sampling::Greedy, |_| {}).expect_err("it has no model").to_string();
    assert!(error.contains("SpeculativeSession"), "{error}");
    let none = Checkpoint::open_mtp(&rig::folder("llama_gqa")).expect_err("it has no module").to_string();
    assert!(none.contains("no MTP module") && none.contains("name a draft model"), "{none}");
}

#[test]
fn a_folder_of_random_weights_has_the_module_of_its_configuration() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    for name in ["glm4_moe", "deepseek_v3", "qwen3_next", "qwen3_5", "qwen3_5_moe"] {
        let model = rig::checkpoint(name).model().clone();
        let model = model.map_shapes(|shape| Model { mtp: 1, ..shape.clone() });
        let folder = parent.path().join(name);
        executor::make_random(&model, &folder, 5).expect("written");
        let module = Checkpoint::open_mtp(&folder).expect("it has a module");
        assert_eq!(module.model().layers, 1, "{name}");
        let opened = Checkpoint::open(&folder).expect("it opens");
        assert_eq!(opened.model().mtp, 1);
    }
}
