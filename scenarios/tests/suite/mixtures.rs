//! Mixtures of formats: their bytes and times, llama.cpp's kinds of files, and published files.

use crate::AnyMachine;
use hwprofiles::{Basis, Bound, Bytes, DType, Elements, Estimate, Seconds};
use proptest::prelude::*;
use scenarios::{
    Document, Formats, Gguf, GgufFileType, GgufTensor, Model, QualityLoss, Sublayer, WeightClass,
    WeightFormat, WeightFormats,
};

fn mixture(parts: &[(DType, u64)]) -> WeightFormat {
    WeightFormat::from_values(parts.iter().copied()).unwrap()
}

fn formats(weights: WeightFormats) -> Formats {
    Formats { weights, kv: DType::Bf16, activations: DType::F32 }
}

#[test]
fn published_files_have_their_sizes() {
    // llama.cpp, tools/quantize/README.md: Llama-3.1-8B in GiB.
    let sizes = [
        ("q2_k", 2.95),
        ("q2_k_s", 2.78),
        ("q3_k_s", 3.41),
        ("q3_k_l", 4.02),
        ("q4_k_s", 4.36),
        ("q4_k_m", 4.58),
        ("q5_k_s", 5.21),
        ("q5_k_m", 5.33),
        ("q6_k", 6.14),
        ("q8_0", 7.95),
        ("iq1_s", 1.87),
        ("iq1_m", 2.01),
        ("iq2_xxs", 2.23),
        ("iq2_xs", 2.42),
        ("iq2_s", 2.56),
        ("iq2_m", 2.74),
        ("iq3_xxs", 3.04),
        ("iq3_xs", 3.27),
        ("iq3_s", 3.42),
        ("iq3_m", 3.52),
        ("iq4_xs", 4.17),
    ];
    let model = Model::preset("llama-3.1-8b").unwrap();
    for (word, gibibytes) in sizes {
        let file: GgufFileType = word.parse().unwrap();
        let own = model.weight_bytes(&formats(file.formats(&model).unwrap())).gibibytes();
        assert!((own / gibibytes - 1.0).abs() < 0.01, "{word}: {own} is not {gibibytes}");
    }
    // The published files in GB, the tokenizer's few megabytes included.
    for (word, gigabytes) in [
        ("q4_k_m", 4.92),
        ("q6_k", 6.60),
        ("q5_k_m", 5.73),
        ("q8_0", 8.54),
        ("q2_k", 3.18),
        ("q3_k_m", 4.02),
        ("iq4_xs", 4.45),
    ] {
        let file: GgufFileType = word.parse().unwrap();
        let own = model.weight_bytes(&formats(file.formats(&model).unwrap())).gigabytes();
        assert!((own / gigabytes - 1.0).abs() < 0.01, "{word}: {own} is not {gigabytes}");
    }
}

#[test]
fn other_models_have_their_published_sizes() {
    // GB of files on Hugging Face: mradermacher's of Mixtral, bartowski's of the others.
    for (model, word, gigabytes) in [
        ("llama-3.1-70b", "q4_k_m", 42.5),
        ("llama-3.2-1b", "q4_k_m", 0.808),
        ("qwen2.5-7b", "q4_k_m", 4.68),
        ("mixtral-8x7b", "q2_k", 17.3),
        ("mixtral-8x7b", "q3_k_s", 20.4),
        ("mixtral-8x7b", "q3_k_m", 22.5),
        ("mixtral-8x7b", "q3_k_l", 24.2),
        ("mixtral-8x7b", "q4_k_s", 26.7),
        ("mixtral-8x7b", "q4_k_m", 28.4),
        ("mixtral-8x7b", "q5_k_s", 32.2),
        ("mixtral-8x7b", "q5_k_m", 33.2),
        ("mixtral-8x7b", "iq3_xs", 19.4),
        ("mixtral-8x7b", "iq3_m", 21.4),
        ("mixtral-8x7b", "iq4_xs", 25.4),
    ] {
        let model = Model::preset(model).unwrap();
        let file: GgufFileType = word.parse().unwrap();
        let own = model.weight_bytes(&formats(file.formats(&model).unwrap())).gigabytes();
        assert!((own / gigabytes - 1.0).abs() < 0.015, "{} {word}: {own} is not {gigabytes}", model.name);
    }
}

#[test]
fn every_kind_of_file_has_formats_for_every_preset() {
    for name in Model::preset_names() {
        let model = Model::preset(name).unwrap();
        for (file, word, base, number) in GgufFileType::ALL {
            let weights = file.formats(&model).unwrap();
            assert_eq!(weights.to_string(), word);
            assert_eq!(weights.file(), Some(file));
            assert_eq!(GgufFileType::from_number(number), Some(file));
            assert_eq!(weights, weights.for_model(&model), "{name} {word}");
            let (own, pure) =
                (model.weight_bytes(&formats(weights)), model.weight_bytes(&formats(base.into())));
            assert!(own.as_f64() < pure.as_f64() * 5.0, "{name} {word}");
            let text = serde_json::to_string(&weights).unwrap();
            assert_eq!(serde_json::from_str::<WeightFormats>(&text).unwrap(), weights, "{text}");
        }
    }
}

#[test]
fn the_medium_kind_gives_half_of_the_layers_more_bits() {
    let model = Model::preset("llama-3.1-8b").unwrap();
    let weights = "q4_k_m".parse::<GgufFileType>().unwrap().formats(&model).unwrap();
    // 16 of 32 layers have six bits in values and down projections; the head has six bits and the
    // token table four.
    let down = 14336 * 4096;
    let ffn = mixture(&[(DType::Q6K, 16 * down), (DType::Q4K, 16 * down + 64 * down)]);
    assert_eq!(weights.for_class(WeightClass::Ffn), ffn);
    assert_eq!(weights.for_sublayer(Sublayer::Head), DType::Q6K);
    assert_eq!(weights.for_sublayer(Sublayer::Embed), DType::Q4K);
    // A shared token table is the output projection.
    let tied = Model::preset("llama-3.2-1b").unwrap();
    let weights = "q4_k_m".parse::<GgufFileType>().unwrap().formats(&tied).unwrap();
    assert_eq!(weights.for_sublayer(Sublayer::Embed), DType::Q6K);
}

#[test]
fn a_scenario_names_a_kind_of_file_or_a_format() {
    let resolve = |dtype: &str| {
        let load = "workload: {batch: 1, prompt_tokens: 8, output_tokens: 8}";
        let text = format!("machine: this\nmodel: llama-3.1-8b\n{load}\ndtype: {{weights: {dtype}}}\n");
        let scenario = Document::from_yaml("s.yaml", &text).unwrap().scenario().unwrap();
        scenario.resolve(&AnyMachine).unwrap().formats.allowed.iter().map(|f| f.weights).collect::<Vec<_>>()
    };
    assert_eq!(resolve("Q4_K_M")[0].to_string(), "q4_k_m");
    assert_eq!(resolve("published"), [WeightFormats::all(DType::Bf16)]);
    assert_eq!(resolve("q4_k"), [WeightFormats::all(DType::Q4K)]);
    assert_eq!(resolve("{default: q4_0}"), [WeightFormats::all(DType::Q4_0)]);
    assert_eq!(resolve("{default: q4_0}")[0].to_string(), "{default: q4_0}");
    assert_eq!(resolve("q4_0")[0].for_sublayer(Sublayer::Head), DType::Q6K);
    assert_eq!(
        resolve("{default: bf16, ffn: {q4_k: 2, q6_k: 2}}")[0].for_class(WeightClass::Ffn),
        mixture(&[(DType::Q4K, 1), (DType::Q6K, 1)])
    );
    // The one with most bits comes first.
    let words: Vec<_> = resolve("[q4_k_m, bf16, q8_0]").iter().map(ToString::to_string).collect();
    assert_eq!(words, ["bf16", "q8_0", "q4_k_m"]);
}

#[test]
fn kinds_of_files_lose_what_llama_cpp_publishes() {
    let model = Model::preset("llama-3.1-8b").unwrap();
    let loss = |word: &str| {
        let weights = word.parse::<GgufFileType>().unwrap().formats(&model).unwrap();
        QualityLoss::from_formats(&formats(weights), &model).map(|loss| loss.to_string())
    };
    assert_eq!(loss("q4_k_m").unwrap(), "2.82 %");
    assert_eq!(loss("q6_k").unwrap(), "0.35 %");
    assert_eq!(loss("mxfp4_moe").unwrap_err(), "the loss of files in mxfp4_moe is not published");
    // More bits never lose more, within the K-quants.
    let kinds =
        ["q8_0", "q6_k", "q5_k_m", "q5_k_s", "q4_k_m", "q4_k_s", "q3_k_l", "q3_k_m", "q3_k_s", "q2_k"];
    let number = |word: &str| loss(word).unwrap().trim_end_matches(" %").parse::<f64>().unwrap();
    assert!(kinds.windows(2).all(|pair| number(pair[0]) <= number(pair[1])));
}

#[test]
fn a_mixture_without_values_or_with_too_many_formats_is_refused() {
    assert!(WeightFormat::from_values([]).is_err());
    assert!(WeightFormat::from_values([(DType::Q4K, 0)]).is_err());
    let nine = DType::ALL.into_iter().take(9).map(|dtype| (dtype, 1));
    assert_eq!(WeightFormat::from_values(nine).unwrap_err(), "9 formats in one class: at most 8 are mixed");
}

fn any_mixture() -> impl Strategy<Value = Vec<(DType, u64)>> {
    let weights: Vec<_> = DType::ALL.into_iter().filter(|dtype| dtype.holds_weights()).collect();
    prop::collection::vec((prop::sample::select(weights), 1u64..1_000_000), 1..8)
}

proptest! {
    #![proptest_config(crate::cases(256))]

    #[test]
    fn a_mixture_has_the_bytes_of_its_parts(parts in any_mixture(), blocks in 1u64..50) {
        // Each part is a matrix of whole blocks; the class as one matrix has their sum.
        let values = 4096 * blocks;
        let class = mixture(&parts.iter().map(|&(dtype, rows)| (dtype, rows * values)).collect::<Vec<_>>());
        let rows: u64 = parts.iter().map(|(_, rows)| rows).sum();
        let bytes: Bytes = parts.iter().map(|&(dtype, rows)| dtype.matrix_bytes(rows, values)).sum();
        prop_assert_eq!(class.matrix_bytes(rows, values), bytes);
        // A row of fp8 or nvfp4 has a scale of 32 bits, whatever its width.
        let scaled = parts.iter().filter(|(dtype, _)| [DType::Fp8, DType::Nvfp4].contains(dtype));
        let scales: u64 = scaled.map(|(_, rows)| 32 * rows).sum();
        let bits = (8.0 * bytes.as_f64() - scales as f64) / (rows * values) as f64;
        prop_assert!((class.bits() - bits).abs() < 1e-9);
        prop_assert!((class.parts().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9);
        prop_assert_eq!(class.bytes(Elements::new(0)), Bytes::ZERO);
    }

    #[test]
    fn ranges_of_rows_sum_to_the_whole(parts in any_mixture(), cuts in prop::collection::vec(0u64..5000, 0..6)) {
        let class = mixture(&parts);
        let mut cuts = cuts;
        cuts.extend([0, 5000]);
        cuts.sort_unstable();
        let row = |dtype: DType| dtype.matrix_bytes(1, 4097);
        let sum: Bytes = cuts.windows(2).map(|cut| class.bytes_of_rows(&(cut[0]..cut[1]), row)).sum();
        prop_assert_eq!(sum, class.bytes_of_rows(&(0..5000), row));
    }

    #[test]
    fn order_and_common_factors_make_no_difference(parts in any_mixture(), factor in 1u64..1000) {
        let mut turned: Vec<_> = parts.iter().map(|&(dtype, share)| (dtype, share * factor)).collect();
        turned.reverse();
        prop_assert_eq!(mixture(&parts), mixture(&turned));
        let text = serde_json::to_string(&mixture(&parts)).unwrap();
        prop_assert_eq!(serde_json::from_str::<WeightFormat>(&text).unwrap(), mixture(&parts));
        prop_assert_eq!(mixture(&parts).map(|dtype| dtype), mixture(&parts));
    }

    #[test]
    fn the_time_of_a_mixture_lies_between_those_of_its_parts(parts in any_mixture()) {
        let time = |dtype: DType| -> Result<Estimate, ()> {
            Ok(Estimate::with_default_band(Seconds::new(dtype.bits()), Bound::Memory, Basis::Estimated))
        };
        let mean = mixture(&parts).mean_time(time).unwrap();
        let bits = || parts.iter().map(|(dtype, _)| dtype.bits());
        prop_assert!(mean.time.get() <= bits().fold(0.0, f64::max) + 1e-9);
        prop_assert!(mean.time.get() >= bits().fold(f64::MAX, f64::min) - 1e-9);
        prop_assert!((mean.time.get() - mixture(&parts).bits()).abs() < 1e-9);
        prop_assert!(mean.low <= mean.time && mean.time <= mean.high);
        prop_assert_eq!(mixture(&parts).mean_time(|_| Err(3)).unwrap_err(), 3);
    }
}

/// The published formats of a preset with this `quantization_config`.
fn published(model: &str, quantised: &str) -> Result<WeightFormats, String> {
    let model = Model::preset(model).unwrap();
    let config = serde_json::from_str(&format!("{{\"quantization_config\": {quantised}}}")).unwrap();
    model.published_formats(&config).map(|formats| formats.expect("it is quantised"))
}

#[test]
fn a_checkpoint_may_keep_its_linear_attention() {
    let config = r#"{"quant_method": "modelopt", "quant_algo": "NVFP4",
        "exclude_modules": ["lm_head", "model.layers.*.linear_attn*"]}"#;
    let formats = published("qwen3.5-27b", config).unwrap();
    let attention: Vec<_> = formats.for_class(WeightClass::Attention).parts().collect();
    let kept = attention.iter().find(|(dtype, _)| *dtype == DType::Bf16).expect("48 of 64 layers").1;
    // 48 layers have 116 M values around their mixers, 16 layers 105 M.
    assert!((0.75..0.8).contains(&kept), "{kept}");
    assert_eq!(formats.for_class(WeightClass::Ffn), DType::Nvfp4);
}

#[test]
fn a_usual_checkpoint_keeps_what_quantisers_leave() {
    let shown = |model: &str, dtype| {
        let formats = Model::preset(model).unwrap().usual_checkpoint(dtype).unwrap();
        formats.to_string()
    };
    for (model, dtype, expected) in [
        ("llama-3.1-8b", DType::Nvfp4, "{default: nvfp4, ends: bf16}"),
        ("llama-3.1-8b", DType::Fp8, "{default: fp8, ends: bf16}"),
        ("llama-3.1-8b", DType::Int4G128, "{default: int4_g128, ends: bf16}"),
        ("llama-3.1-8b", DType::Bf16, "bf16"),
        ("llama-3.1-8b", DType::Q4K, "q4_k"),
        ("gpt-oss-20b", DType::Mxfp4, "{default: bf16, experts: mxfp4}"),
        ("qwen3-30b-a3b", DType::Nvfp4, "{default: bf16, experts: nvfp4}"),
        ("qwen3-30b-a3b", DType::Int4G128, "{default: bf16, attention: int4_g128, experts: int4_g128}"),
        ("qwen3.5-35b-a3b", DType::Int4G128, "{default: bf16, experts: int4_g128}"),
        (
            "gemma-4-26b-a4b",
            DType::Int4G128,
            "{default: int4_g128, ffn: {bf16: 2, int4_g128: 99}, ends: bf16}",
        ),
    ] {
        assert_eq!(shown(model, dtype), expected, "{model} {dtype}");
    }
}

#[test]
fn a_usual_checkpoint_has_no_more_bytes_than_the_model_and_no_fewer_than_all_in_its_format() {
    // Rows of fulcrum-tiny are shorter than a group of 128 values with its scales.
    for name in Model::preset_names().filter(|&name| name != "fulcrum-tiny") {
        let model = Model::preset(name).unwrap();
        let bytes =
            |weights| model.weight_bytes(&Formats { weights, kv: DType::Bf16, activations: DType::Bf16 });
        for dtype in [DType::Nvfp4, DType::Int4G128, DType::Int4, DType::Fp8, DType::Int8, DType::Mxfp4] {
            let usual = bytes(model.usual_checkpoint(dtype).unwrap());
            assert!(usual <= bytes(WeightFormats::all(model.dtype)), "{name} {dtype}");
            let all = bytes(WeightFormats::all(dtype));
            assert!(usual >= all, "{name} {dtype}: {usual} and {all}");
        }
    }
}

#[test]
fn checkpoints_say_their_formats_by_class() {
    let gpt_oss = r#"{"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn",
        "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}"#;
    let kimi = r#"{"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head",
        "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up)_proj.*"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int",
        "group_size": 32, "strategy": "group"}}}}"#;
    for (model, config, expected) in [
        ("gpt-oss-20b", gpt_oss, "{default: bf16, experts: mxfp4}"),
        ("llama-3.1-8b", r#"{"quant_method": "fp8"}"#, "{default: fp8, ends: bf16}"),
        (
            "llama-3.1-8b",
            r#"{"quant_method": "fp8", "weight_block_size": [128, 128]}"#,
            "{default: fp8_block, ends: bf16}",
        ),
        (
            "llama-3.1-8b",
            r#"{"quant_method": "awq", "bits": 4, "group_size": 128}"#,
            "{default: int4_g128, ends: bf16}",
        ),
        (
            "llama-3.1-8b",
            r#"{"quant_method": "gptq", "bits": 4, "group_size": 32}"#,
            "{default: int4, ends: bf16}",
        ),
        (
            "llama-3.1-8b",
            r#"{"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}"#,
            "{default: nvfp4, ends: bf16}",
        ),
        (
            "llama-3.1-8b",
            r#"{"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["*self_attn*"]}"#,
            "{default: fp8, attention: bf16, ends: bf16}",
        ),
    ] {
        assert_eq!(published(model, config).unwrap().to_string(), expected, "{model} {config}");
    }
    let kimi = published("deepseek-v3", kimi).unwrap();
    assert_eq!(kimi.for_class(WeightClass::Experts), DType::Int4);
    assert_eq!(kimi.for_class(WeightClass::Attention), DType::Bf16);
    assert!(kimi.for_class(WeightClass::Ffn).one().is_none(), "dense layers and the shared expert differ");
    let plain = Model::preset("llama-3.1-8b").unwrap();
    assert_eq!(plain.published_formats(&serde_json::json!({"model_type": "llama"})), Ok(None));
    let v4 = plain.published_formats(
        &serde_json::json!({"expert_dtype": "fp4", "quantization_config": {"quant_method": "fp8"}}),
    );
    assert_eq!(
        v4.unwrap().unwrap().to_string(),
        "{default: fp8, ends: bf16}",
        "a dense model has no experts"
    );
}

#[test]
fn a_mixed_checkpoint_counts_each_module() {
    // FP8 in attention of every layer, NVFP4 in the first layer's network.
    let mut layers = serde_json::Map::new();
    for layer in 0..32 {
        for name in ["q_proj", "k_proj", "v_proj", "o_proj"] {
            let key = format!("model.layers.{layer}.self_attn.{name}");
            layers.insert(key, serde_json::json!({"quant_algo": "FP8"}));
        }
    }
    for name in ["gate_proj", "up_proj", "down_proj"] {
        let key = format!("model.layers.0.mlp.{name}");
        layers.insert(key, serde_json::json!({"quant_algo": "NVFP4", "group_size": 16}));
    }
    let config = serde_json::json!({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers});
    let formats = published("llama-3.1-8b", &config.to_string()).unwrap();
    assert_eq!(formats.for_class(WeightClass::Attention), DType::Fp8);
    assert_eq!(formats.for_class(WeightClass::Ffn), mixture(&[(DType::Bf16, 31), (DType::Nvfp4, 1)]));
    assert_eq!(formats.for_sublayer(Sublayer::Head), DType::Bf16);
}

#[test]
fn an_unknown_checkpoint_is_refused_with_what_is_read() {
    for (config, wanted) in [
        (r#"{"quant_method": "bitsandbytes"}"#, "gptq and awq are read"),
        (r#"{"quant_method": "gptq", "bits": 3, "group_size": 128}"#, "gptq with 3 bits in groups of 128"),
        (r#"{"quant_method": "modelopt", "quant_algo": "W9"}"#, "NVFP4, W4A16_NVFP4"),
        (r#"{"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}"#, "quantized_layers is missing"),
        (r#"{"quant_method": "compressed-tensors"}"#, "config_groups has no weights"),
    ] {
        let message = published("llama-3.1-8b", config).unwrap_err();
        assert!(message.contains(wanted), "{message}");
    }
}

/// A header with these tensors: name, shape and ggml's number of the type.
fn header(tensors: &[(&str, [u64; 2], u32)]) -> Gguf {
    let tensor = |&(name, shape, format): &(&str, [u64; 2], u32)| {
        (name.to_owned(), GgufTensor { shape: shape.to_vec(), format, start: 0 })
    };
    Gguf {
        metadata: [("general.file_type".to_owned(), 15.into())].into(),
        tensors: tensors.iter().map(tensor).collect(),
    }
}

#[test]
fn a_gguf_file_has_the_types_of_its_tensors() {
    let tensors = [
        ("token_embd.weight", [512, 256], 12),
        ("output.weight", [512, 256], 14),
        ("output_norm.weight", [1, 256], 0),
        ("blk.0.attn_q.weight", [256, 256], 12),
        ("blk.0.attn_v.weight", [128, 256], 14),
        ("blk.0.attn_norm.weight", [1, 256], 0),
        ("blk.0.ffn_gate_inp.weight", [8, 256], 0),
        ("blk.0.ffn_up_exps.weight", [2048, 256], 39),
    ];
    let formats = header(&tensors).weight_formats().unwrap();
    assert_eq!(formats.for_class(WeightClass::Attention), mixture(&[(DType::Q4K, 2), (DType::Q6K, 1)]));
    assert_eq!(formats.for_class(WeightClass::Ffn), DType::F32);
    assert_eq!(formats.for_class(WeightClass::Experts), DType::Mxfp4);
    assert_eq!(
        (formats.for_sublayer(Sublayer::Embed), formats.for_sublayer(Sublayer::Head)),
        (DType::Q4K.into(), DType::Q6K.into())
    );
    assert_eq!(formats.file().map(GgufFileType::name), Some("q4_k_m"));
    let mut unknown = tensors;
    unknown[3].2 = 999;
    let message = header(&unknown).weight_formats().unwrap_err();
    assert!(message.contains("'blk.0.attn_q.weight' has ggml's type 999"), "{message}");
    assert!(header(&tensors[1..]).weight_formats().unwrap_err().contains("token_embd.weight"));
}
