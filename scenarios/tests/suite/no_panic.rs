//! The readers accept or refuse any bytes without a panic, and the work of an accepted model can be
//! counted.

use hwprofiles::{DType, Flop};
use proptest::prelude::*;
use scenarios::{
    Document, Formats, Grid, Model, Operator, Phase, Setting, Step, Sublayer, WeightFormats, Work,
};

const CONFIGS: [&str; 36] = [
    include_str!("../../models/llama-3.2-1b.json"),
    include_str!("../../models/mistral-7b.json"),
    include_str!("../../models/qwen3-8b.json"),
    include_str!("../../models/opt-1.3b.json"),
    include_str!("../../models/mixtral-8x7b.json"),
    include_str!("../../models/qwen3-30b-a3b.json"),
    include_str!("../../models/gpt-oss-20b.json"),
    include_str!("../../models/deepseek-v3.json"),
    include_str!("../../models/gemma-2b.json"),
    include_str!("../../models/gemma-2-2b.json"),
    include_str!("../../models/gemma-3-4b.json"),
    include_str!("../../models/phi-2.json"),
    include_str!("../../models/phi-3-mini-4k.json"),
    include_str!("../../models/gpt-neox-20b.json"),
    include_str!("../../models/gpt-j-6b.json"),
    include_str!("../../models/falcon-7b.json"),
    include_str!("../../models/falcon-40b.json"),
    include_str!("../../models/deepseek-v3.2.json"),
    include_str!("../../models/glm-5.2.json"),
    include_str!("../../models/kimi-k2.5.json"),
    include_str!("../../models/kimi-k3.json"),
    include_str!("../../models/deepseek-v4-flash.json"),
    include_str!("../../models/minimax-m3.json"),
    include_str!("../../models/minimax-m2.5.json"),
    include_str!("../../models/qwen3.5-35b-a3b.json"),
    include_str!("../../models/gemma-4-26b-a4b.json"),
    include_str!("../../models/gemma-3n-e4b.json"),
    include_str!("../../models/llama-4-maverick.json"),
    include_str!("../../models/nemotron-3-super-120b-a12b.json"),
    include_str!("../../models/mimo-v2-flash.json"),
    include_str!("../../models/granite-4-tiny.json"),
    include_str!("../../models/lfm2-1.2b.json"),
    include_str!("../../models/glm-4.5.json"),
    include_str!("../../models/qwen3-next-80b-a3b.json"),
    QWEN4,
    LARA,
];
/// Families of which no published file is here.
const QWEN4: &str = r#"{
  "model_type": "qwen4_exp_text",
  "num_hidden_layers": 4,
  "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
  "hc_count": 4,
  "hc_lowrank": 320,
  "indexer_n_heads": 16,
  "indexer_kv_heads": 1,
  "indexer_head_dim": 128,
  "indexer_budget": 2048,
  "indexer_compress_ratio": 16,
  "ple_layer_ids": [1, 3],
  "ple_embed_dim": 2048,
  "ple_conv_kernel_size": 4,
  "ngram_size": 3,
  "heads_per_ngram": 8,
  "ngram_vocab_size_base": 20000000,
  "make_ngram_vocab_size_divisible_by": 128,
  "mtp_num_hidden_layers": 1
}"#;
const LARA: &str = r#"{
  "model_type": "lara_mini",
  "num_hidden_layers": 4,
  "layer_types": ["linear_attention", "sliding_attention", "linear_attention", "full_attention"],
  "sliding_window": 512,
  "max_position_embeddings": 131072,
  "num_experts": 128
}"#;
const SCENARIOS: [&str; 5] = [
    include_str!("../../examples/quickstart.yaml"),
    include_str!("../../examples/llama-70b-int4.yaml"),
    include_str!("../../examples/llama-70b-formats.yaml"),
    include_str!("../../examples/llama-405b-four-memories.yaml"),
    include_str!("../../examples/deepseek-v3-int8.yaml"),
];

/// Texts that a mutation writes over a part of a file.
const PIECES: [&str; 22] = [
    "",
    "0",
    "-1",
    "1.5",
    "1e308",
    "18446744073709551615",
    "99999999999999999999",
    "1048576",
    "4294967296",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "\"x\"",
    ": ",
    ",",
    "}",
    "\n",
    "µ",
    "&a *a",
    "!!binary x",
];

/// A text in which up to three parts are overwritten.
fn mutated(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
    let edit = (any::<prop::sample::Index>(), 0..12_usize, prop::sample::select(PIECES.to_vec()));
    (prop::sample::select(texts.to_vec()), prop::collection::vec(edit, 1..4)).prop_map(|(text, edits)| {
        edits.into_iter().fold(text.to_owned(), |text, (at, length, piece)| {
            let characters: Vec<char> = text.chars().collect();
            let start = at.index(characters.len() + 1);
            let end = (start + length).min(characters.len());
            characters[..start]
                .iter()
                .copied()
                .chain(piece.chars())
                .chain(characters[end..].iter().copied())
                .collect()
        })
    })
}

/// A config in which the value of one line is replaced; it usually stays valid JSON.
fn replaced(text: &str, index: usize, piece: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if let Some((key, value)) = lines[index].clone().split_once(": ") {
        lines[index] = format!("{key}: {piece}{}", if value.ends_with(',') { "," } else { "" });
    }
    lines.join("\n")
}

/// Computes everything that depends on a model; an overflow panics here.
fn count(model: &Model) {
    let formats =
        Formats { weights: WeightFormats::all(DType::F32), kv: DType::F32, activations: DType::F32 };
    assert!(model.weight_bytes(&formats).get() >= 4 * model.parameters().get());
    let step = Step { phase: Phase::Decode, batch: 64, new_tokens: 1, past_tokens: model.max_positions - 1 };
    let work = |shape: &Model, sublayer: Sublayer, operator: Operator| {
        let rows = sublayer.matrix(shape).map_or(0, |(rows, _)| rows);
        Work::count(operator, shape, &formats, &step, &(0..rows)).flop
    };
    let of = |shape: &Model, sublayers: &[Sublayer]| -> Flop {
        let each = |sublayer: &Sublayer| {
            let operators = sublayer.operators(shape).iter();
            operators.map(|operator| work(shape, *sublayer, *operator)).sum::<Flop>()
        };
        sublayers.iter().map(each).sum()
    };
    let layers: Flop = model.kinds().map(|(kind, _)| of(model.shape(kind), kind.sublayers())).sum();
    let flop = layers + of(model, &[Sublayer::Embed, Sublayer::Head]);
    assert!(flop > Flop::ZERO);
    assert!(model.active_parameters() <= model.parameters() || model.tied_embeddings);
    model.mtp_parameters();
    assert!(model.growing_kv_numbers() >= 0.0);
    model.constant_bytes(DType::F32);
    if let Ok(text) = model.to_config_json() {
        let again = Model::from_config_json(&model.name, "c", &text).unwrap();
        assert_eq!(again, Model { published: None, ..model.clone() });
    }
}

fn read_or_refused(text: &str) {
    match Model::from_config_json("m", "config.json", text) {
        Ok(model) => count(&model),
        Err(error) => assert!(error.to_string().starts_with("config.json"), "{error}"),
    }
}

#[test]
fn a_config_with_any_value_replaced_is_read_or_refused() {
    for text in CONFIGS {
        for index in 0..text.lines().count() {
            PIECES.iter().for_each(|piece| read_or_refused(&replaced(text, index, piece)));
        }
    }
}

proptest! {
    #![proptest_config(crate::cases(1000))]

    #[test]
    fn a_config_is_read_or_refused(text in prop_oneof![mutated(&CONFIGS), any::<String>()]) {
        read_or_refused(&text);
    }

    #[test]
    fn a_scenario_is_read_or_refused(text in prop_oneof![mutated(&SCENARIOS), any::<String>()]) {
        if let Err(error) = Document::from_yaml("s.yaml", &text).and_then(|document| document.scenario()) {
            prop_assert!(error.to_string().starts_with("s.yaml:"), "{}", error);
        }
    }

    #[test]
    fn a_setting_is_applied_or_refused(
        key in prop_oneof![
            prop::sample::select(vec!["workload.batch", "dtype.kv", "slo.ttft", "machine.loopback.memory", "model.x", "a"])
                .prop_map(str::to_owned),
            any::<String>(),
        ],
        value in prop_oneof![prop::sample::select(PIECES.to_vec()).prop_map(str::to_owned), any::<String>()],
    ) {
        let document = Document::from_yaml("s.yaml", SCENARIOS[0]).unwrap();
        match format!("{key}={value}").parse::<Setting>() {
            Err(error) => prop_assert!(error.to_string().starts_with("--set "), "{}", error),
            Ok(setting) => {
                let grid = Grid::new(document, vec![setting.into()], 1000).unwrap();
                prop_assert_eq!(grid.points().count() as u64, grid.count());
            }
        }
    }
}
