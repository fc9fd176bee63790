//! Families in their own spellings: what is read, and what is refused.

use scenarios::{Gguf, GgufTensor, Model, Norm, ScenarioError};

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
