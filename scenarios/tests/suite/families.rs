//! Families in their own spellings: what is read, and what is refused.

use hwprofiles::DType;
use scenarios::{
    ActivationBuffer, Formats, Gguf, GgufTensor, Model, Norm, Operator, ScenarioError, Step, Sublayer,
    WeightFormats, Work, kv_bytes,
};

fn read(text: &str) -> Result<Model, ScenarioError> {
    Model::from_config_json("m", "config.json", text)
}

fn preset_text(name: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap()
}

#[test]
fn a_bare_language_model_is_the_same_as_one_in_a_multimodal_file() {
    for name in ["qwen3.5-35b-a3b", "gemma-4-26b-a4b", "kimi-k3", "llama-4-scout", "gemma-3n-e4b"] {
        let whole: serde_json::Value = serde_json::from_str(&preset_text(name)).unwrap();
        let inner = whole["text_config"].to_string();
        let [one, other] = [&preset_text(name), &inner].map(|text| read(text).unwrap());
        assert_eq!(one.parameters(), other.parameters(), "{name}");
        assert_eq!(one.growing_kv_numbers(), other.growing_kv_numbers(), "{name}");
        assert_eq!(one.shapes().len(), other.shapes().len(), "{name}");
    }
    // A wrapper that nobody has heard of is read by its language model.
    let nested = format!(r#"{{"model_type": "some_vl", "text_config": {}}}"#, preset_text("qwen3-8b"));
    assert_eq!(read(&nested).unwrap().parameters(), Model::preset("qwen3-8b").unwrap().parameters());
    let nested = format!(r#"{{"model_type": "internvl_chat", "llm_config": {}}}"#, preset_text("qwen2.5-7b"));
    assert_eq!(read(&nested).unwrap().parameters(), Model::preset("qwen2.5-7b").unwrap().parameters());
}

#[test]
fn infinities_that_python_writes_are_read_over_and_texts_are_kept() {
    let text = r#"{"model_type": "llama", "time_step_limit": [0.0, Infinity, -Infinity, NaN], "note": "NaN \" Infinity"}"#;
    assert_eq!(read(text).unwrap(), read(r#"{"model_type": "llama"}"#).unwrap());
}

#[test]
fn a_number_that_is_read_must_be_finite() {
    for number in ["NaN", "Infinity", "-Infinity"] {
        for key in ["rope_theta", "rms_norm_eps", "hidden_size", "partial_rotary_factor"] {
            let error = read(&format!(r#"{{"model_type": "llama", "{key}": {number}}}"#)).unwrap_err();
            let message = error.to_string();
            assert!(message.contains(key) && message.contains(number), "{message}");
        }
    }
}

#[test]
fn layers_without_experts_may_be_anywhere() {
    let moe = |rest: &str| {
        read(&format!(
            r#"{{"model_type": "qwen3_moe", "num_hidden_layers": 6, "num_experts": 8, "num_experts_per_tok": 2, {rest}}}"#
        ))
    };
    let with =
        |model: &Model| (0..6).filter(|&layer| model.layer(layer).experts.is_some()).collect::<Vec<_>>();
    assert_eq!(with(&moe(r#""moe_intermediate_size": 64, "decoder_sparse_step": 2"#).unwrap()), [1, 3, 5]);
    assert_eq!(
        with(&moe(r#""moe_intermediate_size": 64, "mlp_only_layers": [0, 4]"#).unwrap()),
        [1, 2, 3, 5]
    );
    let model = moe(r#""moe_intermediate_size": 64, "mlp_only_layers": [0, 4]"#).unwrap();
    assert_eq!(read(&model.to_config_json().unwrap()).unwrap(), model);
}

#[test]
fn layers_may_have_heads_of_their_own_number_and_a_gate_for_each() {
    let laguna = |keys: &str| {
        let sizes = r#""hidden_size": 64, "head_dim": 16, "num_hidden_layers": 2, "num_key_value_heads": 2"#;
        read(&format!(r#"{{"model_type": "laguna", {sizes}, {keys}}}"#))
    };
    let listed = r#""num_attention_heads": 4, "num_attention_heads_per_layer": [4, 6]"#;
    let [each, wide, more] = [
        r#""num_attention_heads": 4"#.to_owned(),
        r#""num_attention_heads": 4, "gating": "per-element""#.to_owned(),
        listed.to_owned(),
    ]
    .map(|keys| laguna(&keys).unwrap());
    assert_eq!([0, 1].map(|layer| more.layer(layer).heads), [4, 6]);
    let parameters = [&each, &wide, &more].map(|model| model.parameters().get());
    // A gate for each column has 16 times the columns of one for each head, in both layers.
    assert_eq!(parameters[1] - parameters[0], 2 * 4 * (16 - 1) * 64);
    // Two heads more have queries, outputs and gates.
    assert_eq!(parameters[2] - parameters[0], 2 * (16 + 16 + 1) * 64);
    let four = more.check_ranks(4).unwrap_err().to_string();
    assert!(more.check_ranks(2).is_ok() && each.check_ranks(4).is_ok() && four.contains("6 heads"), "{four}");
    let error = laguna(&listed.replace("[4, 6]", "[4, 5]")).unwrap_err().to_string();
    assert!(error.contains("num_attention_heads_per_layer") && error.contains("multiples of"), "{error}");
}

#[test]
fn step_s_own_keys_mean_what_transformers_writes() {
    let sizes = r#""model_type": "step3p5", "hidden_size": 64, "head_dim": 16, "num_hidden_layers": 3, "sliding_window": 8"#;
    let kinds = |more: &str| {
        let kinds = r#""full_attention", "sliding_attention", "sliding_attention""#;
        format!(r#""num_attention_heads": 4, "layer_types": [{kinds}{more}]"#)
    };
    let own = r#""num_attention_groups": 2, "moe_num_experts": 8, "moe_top_k": 2, "share_expert_dim": 32"#;
    let own_layers = r#""moe_layers_enum": "1, 2", "attention_other_setting": {"num_attention_heads": 6}"#;
    let module = kinds(r#", "sliding_attention""#);
    let theirs = r#""num_key_value_heads": 2, "n_routed_experts": 8, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 32"#;
    let their_layers =
        r#""mlp_layer_types": ["dense", "sparse", "sparse"], "num_sliding_attention_heads": 6"#;
    let remote = read(&format!(
        r#"{{{sizes}, {own}, {own_layers}, {module}, "num_nextn_predict_layers": 1, "rope_theta": [5e6, 1e4, 1e4, 1e4], "max_seq_len": 1000}}"#
    ))
    .unwrap();
    let kinds = kinds("");
    let written = read(&format!(
        r#"{{{sizes}, {theirs}, {their_layers}, {kinds}, "rope_theta": 5e6, "max_position_embeddings": 1000}}"#
    ));
    assert_eq!(remote, written.unwrap());
    assert_eq!([0, 1, 2].map(|layer| remote.layer(layer).heads), [4, 6, 6]);
    assert_eq!([0, 1, 2].map(|layer| remote.layer(layer).experts.is_some()), [false, true, true]);
    for (from, to, key) in [
        (r#""moe_layers_enum": "1, 2""#, r#""moe_layers_enum": "1, 3""#, "moe_layers_enum"),
        (r#"{"num_attention_heads": 6}"#, r#"{"num_attention_heads": 5}"#, "attention_other_setting"),
        ("[5e6, 1e4, 1e4, 1e4]", r#"["much"]"#, "rope_theta"),
    ] {
        let text =
            format!(r#"{{{sizes}, {own}, {own_layers}, {kinds}, "rope_theta": [5e6, 1e4, 1e4, 1e4]}}"#);
        let error = read(&text.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
}

#[test]
fn names_of_other_code_and_wrappers_lead_to_the_same_model() {
    let sizes = r#""vocab_size": 1000, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2"#;
    let exaone = |keys: &str| read(&format!(r#"{{"model_type": "exaone", {sizes}, {keys}}}"#)).unwrap();
    let [own, theirs] = [
        r#""num_layers": 3, "layer_norm_epsilon": 1e-5, "activation_function": "silu""#,
        r#""num_hidden_layers": 3, "rms_norm_eps": 1e-5"#,
    ]
    .map(exaone);
    assert_eq!((own.layers, &own), (3, &theirs));
    let granite = |text: &str| read(text).unwrap();
    let plain = granite(&format!(r#"{{"model_type": "granite", "num_hidden_layers": 2, {sizes}}}"#));
    let vision = granite(&format!(
        r#"{{"model_type": "granite4_vision", "text_config": {{"model_type": "granite4_vision_text", "num_hidden_layers": 2, {sizes}}}}}"#
    ));
    assert_eq!(plain, vision);
}

#[test]
fn experts_may_work_at_a_width_of_their_own() {
    let muse = |keys: &str| {
        let sizes = r#""hidden_size": 64, "head_dim": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2"#;
        let experts = r#""moe_intermediate_size": 32, "num_local_experts": 8, "num_experts_per_tok": 2"#;
        read(&format!(
            r#"{{"model_type": "muse_spark_text", {sizes}, {experts}, "moe_hidden_size": {keys}}}"#
        ))
        .unwrap()
    };
    let [narrow, wide] = ["48", "64"].map(muse);
    assert_eq!([&narrow, &wide].map(|model| model.experts.as_ref().unwrap().latent), [Some(48), None]);
    let of_layer = |width: u64| 8 * 3 * 32 * width;
    let [narrow, wide] = [narrow, wide].map(|model| model.parameters().get());
    // Projections down and up stand around the narrower experts.
    assert_eq!(wide - narrow, 2 * (of_layer(64) - of_layer(48) - 2 * 64 * 48));
}

/// A small model with gated delta nets in some layers.
fn with_delta_nets(model_type: &str, keys: &str) -> Result<Model, ScenarioError> {
    let sizes = r#""vocab_size": 1000, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16"#;
    let delta = r#""linear_key_head_dim": 8, "linear_value_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4"#;
    let experts = r#""moe_intermediate_size": 32, "shared_expert_intermediate_size": 48, "num_experts": 8, "num_experts_per_tok": 2"#;
    read(&format!(r#"{{"model_type": "{model_type}", {sizes}, {delta}, {experts}, {keys}}}"#))
}

/// All numbers are those of transformers 5.24.
#[test]
fn lara_mini_has_delta_nets_windows_and_layers_without_positions() {
    let lara = |keys: &str| {
        with_delta_nets("lara_mini", &format!(r#""num_hidden_layers": 5, "sliding_window": 32{keys}"#))
    };
    let model = lara("").unwrap();
    assert_eq!(model.parameters().get(), 426_576);
    // Its biases are in front of attention and behind it, in three layers of five.
    let biased = lara(r#", "attention_bias": true, "tie_word_embeddings": false"#).unwrap();
    assert_eq!(biased.parameters().get(), 491_152);
    assert_eq!(read(r#"{"model_type": "lara_mini"}"#).unwrap().parameters().get(), 7_281_684_672);
    let layers = [0, 1, 2, 3, 4].map(|layer| model.layer(layer));
    assert_eq!(layers.map(|layer| layer.wiring.window.map_or(0, |window| window.tokens)), [0, 32, 0, 0, 32]);
    assert_eq!(layers.map(|layer| layer.wiring.unrotated), [false, false, false, true, false]);
    assert_eq!(model.growing_kv_numbers(), 2.0 * 2.0 * 16.0);
    let kinds = |last: &str| {
        let four = r#""linear_attention", "sliding_attention", "linear_attention", "full_attention""#;
        lara(&format!(r#", "layer_types": [{four}, "{last}"]"#))
    };
    assert_eq!(kinds("sliding_attention").unwrap(), model);
    let error = kinds("chunked_attention").unwrap_err().to_string();
    assert!(
        error.contains("layer_types") && error.contains("sliding_attention and linear_attention"),
        "{error}"
    );
}

const QWEN4: &str = r#""num_hidden_layers": 4, "hc_count": 3, "hc_lowrank": 20, "indexer_n_heads": 3, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 64, "indexer_compress_ratio": 8"#;
const NGRAMS: &str = r#""ple_layer_ids": [2, 3], "ngram_vocab_size_base": 1000, "heads_per_ngram": 2, "ngram_size": 3, "ple_embed_dim": 32, "make_ngram_vocab_size_divisible_by": 128"#;

/// All numbers of parameters are those of transformers 5.24.
#[test]
fn qwen_4_has_streams_of_low_rank_indexers_of_blocks_and_tables_of_n_grams() {
    let qwen = |keys: &str| with_delta_nets("qwen4_exp_text", keys).unwrap();
    let (plain, whole) = (qwen(QWEN4), qwen(&format!("{QWEN4}, {NGRAMS}")));
    assert_eq!([&plain, &whole].map(|model| model.parameters().get()), [505_544, 591_176]);
    // The tables' rows are primes, filled up to a multiple in each layer.
    let ngrams = whole.wiring.ngrams.expect("tables");
    assert_eq!((ngrams.rows, ngrams.hashes, ngrams.width), (4096 + 4224, 4, 8));
    let wide = NGRAMS.replace("\"ngram_size\": 3", "\"ngram_size\": 4, \"ple_conv_kernel_size\": 5");
    let wide = wide.replace(": 1000", ": 1009").replace(": 32", ": 48").replace(": 128", ": 7");
    assert_eq!(qwen(&format!("{QWEN4}, {wide}")).parameters().get(), 632_928);
    let real = r#""indexer_n_heads": 16, "indexer_head_dim": 128, "indexer_budget": 2048, "indexer_compress_ratio": 16"#;
    for (ids, parameters) in [("[]", 67_366_196_352), ("[1, 2, 3]", 190_311_298_176_u64)] {
        let text = format!(r#"{{"model_type": "qwen4_exp_text", "ple_layer_ids": {ids}, {real}}}"#);
        assert_eq!(read(&text).unwrap().parameters().get(), parameters);
    }
    let with = |model: &Model| [0, 1, 2, 3].map(|layer| model.layer(layer).wiring.ngrams.is_some());
    assert_eq!([with(&plain), with(&whole)], [[false; 4], [false, true, true, false]]);
    // Published files call indexed attention full_attention.
    for kind in ["full_attention", "indexed_attention"] {
        let delta = r#""linear_attention""#;
        let kinds = format!(r#""layer_types": [{delta}, {delta}, {delta}, "{kind}"]"#);
        assert_eq!(qwen(&format!("{QWEN4}, {NGRAMS}, {kinds}")), whole);
    }
    // A wrapper's text model is the same one.
    let inner = format!(r#"{{"model_type": "qwen4_exp_text", {real}}}"#);
    let outer = format!(r#"{{"model_type": "qwen4_exp", "text_config": {inner}}}"#);
    assert_eq!(read(&outer).unwrap(), read(&inner).unwrap());
}

#[test]
fn qwen_4_looks_up_rows_and_scores_blocks() {
    let [plain, whole] = ["", NGRAMS].map(|ngrams| {
        let keys = if ngrams.is_empty() { QWEN4.to_owned() } else { format!("{QWEN4}, {ngrams}") };
        with_delta_nets("qwen4_exp_text", &keys).unwrap()
    });
    let formats =
        Formats { weights: WeightFormats::all(DType::Bf16), kv: DType::Bf16, activations: DType::Bf16 };
    let work = |operator: Operator, shape: &Model, step: &Step| {
        let rows = operator.sublayer().matrix(shape).map_or(0, |(rows, _)| rows);
        Work::count(operator, shape, &formats, step, &(0..rows))
    };
    // A token reads one row for each of four hashes in two layers, of 8 numbers each.
    let step = Step::decode(5, 1000);
    let [without, with] = [&plain, &whole].map(|model| work(Operator::Embed, model, &step).weights.get());
    assert_eq!((without, with - without), (5 * 64 * 2, 5 * 2 * 4 * 8 * 2));
    assert_eq!(
        whole.active_parameters().get() - plain.active_parameters().get(),
        2 * (4 * 64 * 32 + 7 * 3 * 64)
    );
    assert_eq!(
        work(Operator::Embed, &whole, &step).activations,
        work(Operator::Embed, &plain, &step).activations
    );
    // Ranks divide the tables.
    let rows = |model: &Model| model.wiring.ngrams.unwrap().rows;
    assert_eq!(2 * rows(&whole.rank_share(2)), rows(&whole));
    let attending = whole.layer(3);
    let index = attending.index.unwrap();
    assert_eq!((index.selected, index.pooled), (64 + 7, Some(8)));
    // 1001 tokens have 125 whole blocks, each with one key.
    let scores = work(Operator::IndexScores, attending, &Step::decode(1, 1000));
    assert_eq!(scores.flop.get(), 125 * 2 * 3 * 17);
    assert_eq!(scores.kv_read.get(), 125 * 16 * 2);
    let read = work(Operator::Attention, attending, &Step::decode(1, 1000)).kv_read;
    assert_eq!(read.get(), (64 + 7) * 2 * 2 * 16 * 2);
    let kept = |model: &Model, layer: u64| kv_bytes(model.layer(layer), &formats, 1, 1000).get();
    assert_eq!(kept(&whole, 3), 1000 * 2 * 2 * 16 * 2 + 125 * 16 * 2 + 8 * 16 * 4);
    assert_eq!(whole.growing_kv_numbers(), 2.0 * 2.0 * 16.0 + 16.0 / 8.0);
    assert_eq!(whole.growing_index_numbers(), 0);
    // The convolution keeps the last inputs of all streams: three taps, three tokens apart.
    assert_eq!(kept(&whole, 1) - kept(&plain, 1), 3 * 3 * 3 * 64 * 2);
    // Each half of a layer reads three streams; one residual is made of them behind the last layer.
    assert_eq!(ActivationBuffer::Residual.columns(attending), 3 * 64);
    let router = |layer: u64| Sublayer::Router.numbers(whole.layer(layer));
    assert_eq!(router(2), 8 * 64 + 2 * 20 * 192 + 3 * 192);
    assert_eq!(router(3) - router(2), 2 * 20 * 192);
    assert!(Sublayer::Head.is_divisible(&whole));
}

#[test]
fn what_is_not_known_of_qwen_4_is_refused() {
    let keys = format!("{QWEN4}, {NGRAMS}");
    for (from, to, wanted) in [
        (r#""hc_count": 3"#, r#""hc_count": 1"#, "hc_count is 1: a whole number from 2"),
        (r#""hc_lowrank": 20"#, r#""hc_lowrank": 1048576"#, "hc_lowrank is 1048576"),
        (r#""indexer_kv_heads": 1"#, r#""indexer_kv_heads": 2"#, "indexer_kv_heads is 2"),
        (r#""indexer_n_heads": 3"#, r#""indexer_n_heads": null"#, "indexer_n_heads"),
        (
            r#""indexer_budget": 64"#,
            r#""indexer_budget": 65"#,
            "a multiple of indexer_compress_ratio, which is 8",
        ),
        ("[2, 3]", "[2, 4]", "ple_layer_ids is [2,4]: layers of linear_attention"),
        ("[2, 3]", "[0]", "ple_layer_ids is [0]: layers of linear_attention"),
        ("[2, 3]", "[5]", "ple_layer_ids is [5]: layers below 5 are wanted"),
        (r#""ngram_size": 3"#, r#""ngram_size": 1"#, "ngram_size is 1: a whole number from 2"),
        (
            r#""heads_per_ngram": 2"#,
            r#""heads_per_ngram": 1000"#,
            "heads_per_ngram is 1000: it makes 4000 tables",
        ),
        (r#""ple_embed_dim": 32"#, r#""ple_embed_dim": 30"#, "ple_embed_dim is 30: a multiple of 4"),
    ] {
        let changed = keys.replacen(from, to, 1);
        assert_ne!(changed, keys);
        let error = with_delta_nets("qwen4_exp_text", &changed).unwrap_err().to_string();
        assert!(error.starts_with("config.json") && error.contains(wanted), "{error}");
    }
}

#[test]
fn dense_layers_before_cohere_s_experts_have_a_width_and_windows_of_their_own() {
    let cohere = |keys: &str| {
        let sizes = r#""hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 5, "first_k_dense_replace": 1"#;
        let more =
            r#""num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 8"#;
        read(&format!(
            r#"{{"model_type": "cohere2_moe", {sizes}, {more}, "prefix_dense_intermediate_size": 96{keys}}}"#
        ))
        .unwrap()
    };
    let model = cohere("");
    let layers = [0, 1, 2, 3, 4].map(|layer| model.layer(layer));
    assert_eq!((layers[0].intermediate, layers[0].experts.is_none()), (96, true));
    assert_eq!(layers[1].experts.as_ref().map(|experts| experts.intermediate), Some(32));
    // The first layer attends to everything, and then every fourth one.
    assert_eq!(layers.map(|layer| layer.wiring.window.is_some()), [false, true, true, true, false]);
    assert_eq!((model.norm, cohere(r#", "rms_norm_eps": 1e-6"#).norm), (Norm::Layer, Norm::Rms));
}

#[test]
fn errors_of_families_name_file_key_and_value() {
    let cases = [
        r#"{"model_type": "qwen3_5_moe"}"#,
        r#"{"model_type": "kimi_k25", "text_config": 3}"#,
        r#"{"model_type": "strange_vl", "architectures": ["StrangeForConditionalGeneration"]}"#,
        r#"{"model_type": "qwen4"}"#,
        r#"{"model_type": "zaya"}"#,
        r#"{"model_type": "bailing_moe_linear"}"#,
        r#"{"model_type": "brandnew", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100, "intermediate_size": 128, "n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 1, "moe_intermediate_size": 32, "num_experts_per_tok": 2, "novel_key": 3}"#,
        r#"{"model_type": "glm4_moe", "head_dim": 64, "rope_scaling": {"rope_type": "spiral", "factor": 2.0}}"#,
        r#"{"model_type": "glm4_moe", "num_hidden_layers": 2, "head_dim": 64, "mlp_layer_types": ["dense", "sparse"], "first_k_dense_replace": 2}"#,
        r#"{"model_type": "glm4_moe", "head_dim": 64, "n_routed_experts": 8, "num_experts": 16, "num_experts_per_tok": 2}"#,
        r#"{"model_type": "qwen3_next", "num_hidden_layers": 4, "full_attention_interval": 2, "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"]}"#,
        r#"{"model_type": "qwen3_next", "num_hidden_layers": 3, "layer_types": ["linear_attention"]}"#,
        r#"{"model_type": "nemotron_h", "num_hidden_layers": 3, "hybrid_override_pattern": "M*"}"#,
        r#"{"model_type": "nemotron_h", "hybrid_override_pattern": "MX"}"#,
        r#"{"model_type": "deepseek_v4", "num_hidden_layers": 3, "compress_ratios": [0, 4]}"#,
        r#"{"model_type": "kimi_linear", "num_hidden_layers": 2, "linear_attn_config": {"kda_layers": [1, 2], "full_attn_layers": [2], "num_heads": 2, "head_dim": 4}}"#,
        r#"{"model_type": "glm_moe_dsa", "num_hidden_layers": 2, "indexer_types": ["full", "half"]}"#,
        r#"{"model_type": "gemma4_text", "num_kv_shared_layers": 30}"#,
        r#"{"model_type": "bailing_moe", "hidden_size": 64}"#,
    ];
    let table: String =
        cases.into_iter().map(|text| format!("{text}\n  {}\n", read(text).expect_err(text))).collect();
    insta::assert_snapshot!(table);
}

/// Each line has a configuration of transformers and the number of its parameters there;
/// `scripts/check_parameter_counts.py` writes it.
#[test]
fn every_family_counts_as_many_parameters_as_transformers() {
    let table = include_str!("../parameter_counts.jsonl");
    let mut families = std::collections::BTreeSet::new();
    for line in table.lines() {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        let name = case["config"]["model_type"].as_str().unwrap().to_owned();
        let model = read(&case["config"].to_string()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (found, wanted) = (model.parameters().get() as f64, case["parameters"].as_f64().unwrap());
        assert!((found / wanted - 1.0).abs() < 0.005, "{name}: {found} instead of {wanted}");
        families.insert(name);
    }
    assert!(families.len() > 95, "{}", families.len());
}

/// Each line has the header of a file of llama.cpp's converter, and the `config.json` that the file
/// was made from; `scripts/gguf_headers.py` writes it.
#[test]
fn a_header_of_llama_cpp_describes_the_model_that_it_was_made_from() {
    let (mut architectures, mut wrong) = (std::collections::BTreeSet::new(), Vec::new());
    for line in include_str!("../gguf_headers.jsonl").lines() {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        let name = case["metadata"]["general.architecture"].as_str().unwrap();
        let metadata = case["metadata"].as_object().unwrap().clone().into_iter().collect();
        let tensor = |(name, shape): (&String, &serde_json::Value)| {
            let shape = serde_json::from_value(shape.clone()).unwrap();
            (name.clone(), GgufTensor { shape, format: 0, start: 0 })
        };
        let tensors = case["tensors"].as_object().unwrap().iter().map(tensor).collect();
        let found = Model::from_gguf("m", "m.gguf", &Gguf { metadata, tensors });
        let wanted = read(&case["config"].to_string());
        let (found, wanted) = match (found, wanted) {
            (Ok(found), Ok(wanted)) => (found, wanted),
            (found, wanted) => {
                wrong.push(format!("{name}: {:?} {:?}", found.err(), wanted.err()));
                continue;
            }
        };
        let numbers = |model: &Model| {
            let layers: Vec<_> = (0..model.layers).map(|layer| model.layer(layer).kv_width()).collect();
            let state = model.constant_bytes(hwprofiles::DType::Bf16);
            (model.parameters(), model.active_parameters(), layers, state, model.growing_kv_numbers())
        };
        if numbers(&found) != numbers(&wanted) {
            wrong.push(format!("{name}: {:?} instead of {:?}", numbers(&found), numbers(&wanted)));
        }
        architectures.insert(name.to_owned());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(architectures.len() >= 27, "{architectures:?}");
}

#[test]
fn a_file_with_an_unknown_format_or_without_its_modules_is_refused() {
    let error = |format: u32, modules: u32| {
        let metadata = serde_json::json!({
            "general.architecture": "glm4moe", "glm4moe.embedding_length": 64, "glm4moe.block_count": 3,
            "glm4moe.feed_forward_length": 80, "glm4moe.attention.head_count": 4, "glm4moe.vocab_size": 16,
            "glm4moe.attention.head_count_kv": 2, "glm4moe.attention.key_length": 16, "glm4moe.expert_count": 8,
            "glm4moe.rope.dimension_count": 8, "glm4moe.expert_used_count": 2,
            "glm4moe.expert_feed_forward_length": 32, "glm4moe.expert_shared_count": 1,
            "glm4moe.leading_dense_block_count": 1, "glm4moe.nextn_predict_layers": modules,
        });
        let metadata = metadata.as_object().unwrap().clone().into_iter().collect();
        let tensor = GgufTensor { shape: vec![16, 64], format, start: 0 };
        let tensors = [("token_embd.weight".to_owned(), tensor)].into();
        Model::from_gguf("m", "m.gguf", &Gguf { metadata, tensors }).map_err(|error| error.to_string())
    };
    assert!(error(8, 0).is_ok(), "{:?}", error(8, 0));
    let unknown = error(99, 0).unwrap_err();
    let words = ["m.gguf", "token_embd.weight", "ggml's type 99"];
    assert!(words.iter().all(|word| unknown.contains(word)), "{unknown}");
    let missing = error(8, 1).unwrap_err();
    let words = ["m.gguf", "glm4moe.nextn_predict_layers is 1", "blk.*.nextn.*"];
    assert!(words.iter().all(|word| missing.contains(word)), "{missing}");
}

/// Layers with two mixers or two networks become two layers, which keep what the one kept.
#[test]
fn a_layer_of_two_mixers_is_two_layers() {
    let falcon =
        read(r#"{"model_type": "falcon_h1", "mamba_d_ssm": 1024, "mamba_n_heads": 128, "mamba_d_head": 8}"#);
    let falcon = falcon.unwrap();
    assert_eq!(falcon.layers, 64);
    assert_eq!(falcon.growing_kv_numbers(), 32.0 * 2.0 * 8.0 * 128.0);
    assert!(falcon.layer(0).has_mixer() && !falcon.layer(0).has_network());
    // The published model has 28 layers, 560 billion parameters and 18.6 to 31.3 active ones.
    let longcat = read(r#"{"model_type": "longcat_flash"}"#).unwrap();
    assert_eq!(longcat.layers, 56);
    let billions = |count: hwprofiles::Elements| count.get() as f64 / 1e9;
    assert!((558.0..563.0).contains(&billions(longcat.parameters())), "{}", billions(longcat.parameters()));
    let active = billions(longcat.active_parameters());
    assert!((26.0..28.5).contains(&active), "{active}");
}

#[test]
fn a_quantised_checkpoint_is_the_same_shape_in_other_formats() {
    let plain = preset_text("llama-3.1-8b");
    let quantised = plain.replacen(
        '{',
        r#"{"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128},"#,
        1,
    );
    let (plain, quantised) = (read(&plain).unwrap(), read(&quantised).unwrap());
    assert_eq!(plain.fingerprint(), quantised.fingerprint());
    let formats = scenarios::WeightFormats::from(*quantised.published.expect("it says so"));
    let class = |class| formats.for_class(class).one();
    assert_eq!(class(scenarios::WeightClass::Ffn), Some(hwprofiles::DType::Int4G128));
    assert_eq!(class(scenarios::WeightClass::Ends), Some(plain.dtype));
}

#[test]
fn a_layer_that_shares_keys_and_values_has_those_of_the_last_layer_like_it() {
    for (name, shared) in [("gemma-3n-e2b", 10), ("gemma-3n-e4b", 15), ("gemma-4-31b", 0)] {
        let model = Model::preset(name).unwrap();
        let own = model.layers - shared;
        for layer in 0..model.layers {
            let source = model.cache_layer(layer);
            let window = |layer| model.layer(layer).wiring.window;
            assert_eq!((source == layer, window(source)), (layer < own, window(layer)), "{name}, {layer}");
            let between = (source + 1..own).any(|between| window(between) == window(layer));
            assert!(layer < own || source < own && !between, "{name}, {layer}: {source}");
        }
    }
}

#[test]
fn the_streams_and_cutoffs_of_gemma_3n_are_read_and_what_is_not_known_of_them_is_refused() {
    let text = include_str!("../../models/gemma-3n-e2b.json");
    let config = |key: &str, value: &str| {
        let changed =
            text.replacen("\"laurel_rank\"", &format!("\"{key}\": {value},\n      \"laurel_rank\""), 1);
        read(&changed)
    };
    let model = config("altup_correct_scale", "true").unwrap();
    let cutoff = |layer| model.layer(layer).wiring.gate_cutoff;
    assert!((cutoff(9).unwrap() - 1.644_853_6).abs() < 1e-6 && cutoff(10).is_none());
    assert!((0..30).all(|layer| model.layer(layer).wiring.joins_streams == (layer == 29)));
    assert_eq!(model.wiring.layer_embedding_tokens, Some(262_144));
    let halves = format!("[{}0.5]", "0.0, ".repeat(29));
    let model = config("activation_sparsity_pattern", &halves).unwrap();
    assert!(model.layer(29).wiring.gate_cutoff.unwrap().abs() < 1e-6);
    for (key, value) in [
        ("altup_active_idx", "1"),
        ("altup_correct_scale", "false"),
        ("activation_sparsity_pattern", "[0.95]"),
        ("activation_sparsity_pattern", "1.0"),
    ] {
        let error = config(key, value).unwrap_err().to_string();
        assert!(error.contains(key) && error.contains(value), "{error}");
    }
    let one = text.replacen("\"altup_num_inputs\": 4", "\"altup_num_inputs\": 1", 1);
    let error = read(&one).unwrap_err().to_string();
    assert!(error.contains("from 2 to 64"), "{error}");
}
