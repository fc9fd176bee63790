//! Reading Hugging Face's `config.json`: spellings, defaults, refusals.

use hwprofiles::DType;
use scenarios::{
    Activation, Architecture, BlockOrder, Llama3Scaling, Model, Norm, Positions, ScenarioError,
    SlidingWindow, Wiring,
};
use std::path::Path;

fn read(text: &str) -> Result<Model, ScenarioError> {
    Model::from_config_json("m", "config.json", text)
}

#[test]
fn absent_keys_have_the_defaults_of_their_configuration_class() {
    let llama = read(r#"{"model_type": "llama"}"#).unwrap();
    assert_eq!((llama.vocab, llama.hidden, llama.intermediate, llama.layers), (32000, 4096, 11008, 32));
    assert_eq!((llama.heads, llama.kv_heads, llama.head_dim, llama.max_positions), (32, 32, 128, 2048));
    assert_eq!((llama.norm, llama.norm_eps, llama.tied_embeddings), (Norm::Rms, 1e-6, false));
    assert_eq!(llama.positions, Positions::Rotary { theta: 10000.0, scaling: None });
    assert_eq!((llama.activation, llama.dtype), (Activation::SiluGated, DType::F32));
    assert!(!(llama.qkv_bias || llama.out_bias || llama.ffn_bias || llama.qk_norm));

    let mistral = read(r#"{"model_type": "mistral", "sliding_window": null}"#).unwrap();
    assert_eq!((mistral.architecture, mistral.intermediate), (Architecture::Llama, 14336));
    assert_eq!((mistral.kv_heads, mistral.max_positions), (8, 131072));

    let qwen2 = read(r#"{"model_type": "qwen2"}"#).unwrap();
    assert_eq!((qwen2.vocab, qwen2.intermediate, qwen2.kv_heads), (151936, 22016, 32));
    assert!(qwen2.qkv_bias && !qwen2.out_bias && !qwen2.ffn_bias);

    let qwen3 =
        read(r#"{"model_type": "qwen3", "hidden_size": 1024, "num_attention_heads": 16}"#).unwrap_err();
    assert!(qwen3.to_string().contains("num_key_value_heads is absent"), "{qwen3}");
    let qwen3 = read(r#"{"model_type": "qwen3", "hidden_size": 1024}"#).unwrap();
    assert_eq!((qwen3.head_dim, qwen3.qk_norm, qwen3.qkv_bias), (128, true, false));

    let opt = read(r#"{"model_type": "opt"}"#).unwrap();
    assert_eq!((opt.vocab, opt.hidden, opt.intermediate, opt.layers), (50272, 768, 3072, 12));
    assert_eq!((opt.heads, opt.kv_heads, opt.head_dim, opt.max_positions), (12, 12, 64, 2048));
    assert_eq!((opt.norm, opt.norm_eps, opt.activation), (Norm::Layer, 1e-5, Activation::Relu));
    assert_eq!(opt.positions, Positions::Learned { offset: 2 });
    assert!(opt.qkv_bias && opt.out_bias && opt.ffn_bias && opt.tied_embeddings);
}

#[test]
fn families_are_wired_as_their_configuration_classes_say() {
    let gemma = read(r#"{"model_type": "gemma"}"#).unwrap();
    assert_eq!((gemma.hidden, gemma.heads, gemma.kv_heads, gemma.head_dim), (3072, 16, 16, 256));
    assert_eq!((gemma.norm, gemma.activation), (Norm::RmsPlusOne, Activation::GeluTanhGated));
    assert!(gemma.tied_embeddings && gemma.wiring.scaled_embeddings);

    let phi = read(r#"{"model_type": "phi"}"#).unwrap();
    assert_eq!((phi.hidden, phi.layers, phi.heads, phi.rotated_width()), (2048, 24, 32, 32));
    assert_eq!((phi.norm, phi.norm_eps, phi.activation), (Norm::Layer, 1e-5, Activation::GeluTanh));
    assert_eq!((phi.wiring.block, phi.wiring.head_bias), (BlockOrder::ParallelOneNorm, true));

    let phi3 = read(r#"{"model_type": "phi3"}"#).unwrap();
    assert_eq!((phi3.vocab, phi3.norm_eps, phi3.wiring), (32064, 1e-5, Wiring::default()));
    let phi3 = read(r#"{"model_type": "phi3", "sliding_window": 2047}"#).unwrap();
    assert_eq!((phi3.max_positions, phi3.window_of(31)), (4096, Some(2047)));

    let neox = read(r#"{"model_type": "gpt_neox"}"#).unwrap();
    assert_eq!((neox.hidden, neox.layers, neox.head_dim, neox.rotated_width()), (6144, 44, 96, 24));
    assert_eq!((neox.wiring.block, neox.activation), (BlockOrder::Parallel, Activation::Gelu));
    assert!(neox.qkv_bias && neox.out_bias && neox.ffn_bias && !neox.wiring.head_bias);
    let plain = read(r#"{"model_type": "gpt_neox", "use_parallel_residual": false}"#).unwrap();
    assert_eq!(plain.wiring.block, BlockOrder::Sequential);

    let gptj = read(r#"{"model_type": "gptj"}"#).unwrap();
    assert_eq!((gptj.hidden, gptj.layers, gptj.intermediate, gptj.rotated_width()), (4096, 28, 16384, 64));
    assert!(gptj.wiring.rotates_neighbours && gptj.wiring.head_bias && gptj.ffn_bias && !gptj.qkv_bias);

    let falcon = read(r#"{"model_type": "falcon"}"#).unwrap();
    assert_eq!((falcon.heads, falcon.kv_heads, falcon.head_dim, falcon.intermediate), (71, 1, 64, 18176));
    assert_eq!((falcon.wiring.block, falcon.tied_embeddings), (BlockOrder::ParallelOneNorm, true));
    let falcon = |rest: &str| {
        read(&format!(r#"{{"model_type": "falcon", "hidden_size": 512, "num_attention_heads": 8, {rest}}}"#))
            .unwrap()
    };
    let new = falcon(r#""new_decoder_architecture": true, "num_kv_heads": 2"#);
    assert_eq!((new.kv_heads, new.wiring.block), (2, BlockOrder::Parallel));
    let one = falcon(r#""new_decoder_architecture": true, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1"#);
    assert_eq!(one.wiring.block, BlockOrder::ParallelOneNorm);
    let old = falcon(r#""multi_query": false, "parallel_attn": false"#);
    assert_eq!((old.kv_heads, old.wiring.block), (8, BlockOrder::Sequential));
    for model in [new, one, old] {
        assert_eq!(read(&model.to_config_json().unwrap()).unwrap(), model);
    }
}

#[test]
fn any_rotated_part_survives_the_own_config() {
    for head_dim in [2, 16, 26, 64, 80, 96, 254] {
        for rotary_dim in (2..=head_dim).step_by(2) {
            let model = Model {
                name: "m".to_owned(),
                head_dim,
                hidden: 64 * head_dim,
                wiring: Wiring {
                    rotary_dim: Some(rotary_dim).filter(|&width| width < head_dim),
                    ..Model::preset("gpt-neox-20b").unwrap().wiring
                },
                ..Model::preset("gpt-neox-20b").unwrap()
            };
            assert_eq!(read(&model.to_config_json().unwrap()).unwrap(), model, "{rotary_dim} of {head_dim}");
        }
    }
}

#[test]
fn old_and_new_spellings_are_the_same_model() {
    let old = r#"{"model_type": "llama", "torch_dtype": "bfloat16", "rope_theta": 500000.0, "rope_scaling":
        {"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
         "original_max_position_embeddings": 8192}}"#;
    let new = r#"{"model_type": "llama", "dtype": "bfloat16", "rope_parameters":
        {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
         "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}"#;
    let model = read(old).unwrap();
    assert_eq!(model, read(new).unwrap());
    let scaling = Llama3Scaling {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_positions: 8192,
    };
    assert_eq!(model.positions, Positions::Rotary { theta: 500000.0, scaling: Some(scaling) });
    assert_eq!(model.dtype, DType::Bf16);
}

#[test]
fn null_key_value_heads_mean_one_for_each_query_head() {
    for model_type in ["llama", "qwen2"] {
        let text = format!(
            r#"{{"model_type": "{model_type}", "num_attention_heads": 8, "num_key_value_heads": null}}"#
        );
        assert_eq!(read(&text).unwrap().kv_heads, 8);
    }
}

#[test]
fn an_explicit_head_dim_need_not_divide_the_hidden_size() {
    let text = r#"{"model_type": "llama", "hidden_size": 100, "num_attention_heads": 6, "head_dim": 32}"#;
    let model = read(text).unwrap();
    assert_eq!((model.context_width(), model.hidden), (192, 100));
}

#[test]
fn biases_follow_their_keys() {
    let biases = |text: &str| read(text).map(|m| (m.qkv_bias, m.out_bias, m.ffn_bias)).unwrap();
    assert_eq!(biases(r#"{"model_type": "llama", "attention_bias": true}"#), (true, true, false));
    assert_eq!(biases(r#"{"model_type": "llama", "mlp_bias": true}"#), (false, false, true));
    assert_eq!(biases(r#"{"model_type": "qwen3", "attention_bias": true}"#), (true, true, false));
    assert_eq!(biases(r#"{"model_type": "opt", "enable_bias": false}"#), (false, false, false));
}

#[test]
fn a_window_that_no_context_reaches_is_no_window() {
    for text in [
        r#"{"model_type": "mistral", "sliding_window": 4096, "max_position_embeddings": 4096}"#,
        r#"{"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": false}"#,
        r#"{"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": true, "max_window_layers": 32}"#,
        r#"{"model_type": "qwen3", "use_sliding_window": true, "sliding_window": null}"#,
    ] {
        assert!(read(text).is_ok(), "{text}");
    }
}

/// Two spellings of Gemma 3: a multimodal file of transformers 4, and a text-only file of version
/// 5.
const GEMMA3: [&str; 2] = [
    r#"{"model_type": "gemma3", "torch_dtype": "bfloat16", "text_config": {"num_hidden_layers": 8, "sliding_window": 1024,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "query_pre_attn_scalar": 168}}"#,
    r#"{"model_type": "gemma3_text", "dtype": "bfloat16", "num_hidden_layers": 8, "sliding_window": 1024,
        "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
            "sliding_attention", "full_attention", "sliding_attention", "sliding_attention"],
        "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}, "query_pre_attn_scalar": 168}"#,
];

#[test]
fn windows_and_caps_have_the_defaults_of_their_classes() {
    let mistral = read(r#"{"model_type": "mistral"}"#).unwrap();
    assert_eq!(mistral.wiring.window, Some(SlidingWindow::new(4096)));
    let qwen =
        read(r#"{"model_type": "qwen2", "use_sliding_window": true, "max_window_layers": 0}"#).unwrap();
    assert_eq!(qwen.window_of(0), Some(4096));
    let gemma2 = read(r#"{"model_type": "gemma2"}"#).unwrap();
    assert_eq!(gemma2.shapes().len(), 2);
    assert_eq!((gemma2.window_of(0), gemma2.window_of(1)), (Some(4096), None));
    assert_eq!((gemma2.wiring.score_cap, gemma2.wiring.logit_cap), (Some(50.0), Some(30.0)));
    assert!(gemma2.wiring.norms_behind && !gemma2.qk_norm && gemma2.tied_embeddings);
    let [gemma3, again] = GEMMA3.map(|text| read(text).unwrap());
    assert_eq!(gemma3, again);
    assert_eq!(gemma3.positions, Positions::Linear { theta: 1e6, factor: 8.0 });
    assert_eq!(
        (gemma3.window_theta(), gemma3.window_of(5), gemma3.window_of(6)),
        (Some(1e4), None, Some(1024))
    );
    assert_eq!((gemma3.score_scale(), gemma3.wiring.score_cap), (168.0_f64.sqrt().recip(), None));
    assert!(gemma3.wiring.norms_behind && gemma3.qk_norm && gemma3.dtype == DType::Bf16);
    for model in [mistral, qwen, gemma2, gemma3] {
        assert_eq!(read(&model.to_config_json().unwrap()).unwrap(), Model { name: "m".to_owned(), ..model });
    }
}

#[test]
fn configs_written_by_transformers_are_read() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../executor/tests/golden");
    let mut found = 0;
    for entry in std::fs::read_dir(golden).unwrap() {
        let folder = entry.unwrap().path();
        if folder.join("config.json").exists() {
            let model = Model::from_folder(&folder).unwrap();
            assert_eq!(model.name, folder.file_name().unwrap().to_string_lossy());
            assert_eq!(model.vocab, 384);
            found += 1;
        }
    }
    assert!(found >= 6, "{found}");
}

/// Files that the families with layer norms, and Gemma, refuse.
const REFUSED: [&str; 21] = [
    r#"{"model_type": "gemma3_text", "attn_logit_softcapping": 50.0}"#,
    r#"{"model_type": "gemma", "hidden_activation": "relu"}"#,
    r#"{"model_type": "gemma", "use_bidirectional_attention": true}"#,
    r#"{"model_type": "phi", "qk_layernorm": true}"#,
    r#"{"model_type": "phi", "partial_rotary_factor": 0.01}"#,
    r#"{"model_type": "phi", "partial_rotary_factor": 1.5}"#,
    r#"{"model_type": "phi", "tie_word_embeddings": true}"#,
    r#"{"model_type": "phi", "num_attention_heads": 2048}"#,
    r#"{"model_type": "phi3", "rope_scaling": {"type": "longrope", "short_factor": [1.0]}}"#,
    r#"{"model_type": "phi3", "rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [0.0]}}"#,
    r#"{"model_type": "gpt_neox", "rotary_pct": 0.52}"#,
    r#"{"model_type": "gpt_neox", "num_attention_heads": 7}"#,
    r#"{"model_type": "gpt_neox", "hidden_act": "silu"}"#,
    r#"{"model_type": "gptj", "rotary_dim": null}"#,
    r#"{"model_type": "gptj", "rotary_dim": 63}"#,
    r#"{"model_type": "gptj", "n_head": 5}"#,
    r#"{"model_type": "falcon", "alibi": true}"#,
    r#"{"model_type": "falcon", "multi_query": false, "num_kv_heads": 1}"#,
    r#"{"model_type": "falcon", "new_decoder_architecture": true, "parallel_attn": false}"#,
    r#"{"model_type": "falcon", "num_ln_in_parallel_attn": 2}"#,
    r#"{"model_type": "falcon", "new_decoder_architecture": true, "num_kv_heads": 8}"#,
];

#[test]
fn errors_name_file_key_and_value() {
    let llama = |rest: &str| format!(r#"{{"model_type": "llama", {rest}}}"#);
    let rope = |rest: &str| llama(&format!(r#""rope_parameters": {{{rest}}}"#));
    let opt = |rest: &str| format!(r#"{{"model_type": "opt", {rest}}}"#);
    let cases = [
        "{".to_owned(),
        "[1, 2]".to_owned(),
        "{}".to_owned(),
        r#"{"model_type": 3}"#.to_owned(),
        r#"{"model_type": "mixtral"}"#.to_owned(),
        r#"{"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 9}"#.to_owned(),
        r#"{"model_type": "qwen3_moe", "num_experts": 8, "num_local_experts": 16}"#.to_owned(),
        r#"{"model_type": "deepseek_v3", "kv_lora_rank": 512, "qk_rope_head_dim": 63, "qk_nope_head_dim": 128,
            "v_head_dim": 128}"#
            .to_owned(),
        r#"{"model_type": "gpt"}"#.to_owned(),
        llama(r#""hidden_size": -1"#),
        llama(r#""hidden_size": 0"#),
        llama(r#""hidden_size": 4096.5"#),
        llama(r#""hidden_size": "4096""#),
        llama(r#""hidden_size": [4096]"#),
        llama(r#""vocab_size": 99999999999999999999999"#),
        llama(r#""num_hidden_layers": 100000000"#),
        llama(r#""num_key_value_heads": 5"#),
        llama(r#""num_attention_heads": 3"#),
        llama(r#""num_attention_heads": 65536, "head_dim": 65536"#),
        llama(r#""head_dim": 33"#),
        llama(r#""hidden_act": "gelu""#),
        llama(r#""rms_norm_eps": -1e-5"#),
        llama(r#""rms_norm_eps": 0"#),
        llama(r#""attention_bias": "no""#),
        llama(r#""torch_dtype": "float8_e4m3fn""#),
        llama(r#""num_local_experts": 8"#),
        llama(r#""rope_scaling": {"type": "dynamic", "factor": 4.0}"#),
        llama(r#""rope_scaling": {"type": "yarn"}"#),
        llama(r#""rope_scaling": {"type": "yarn", "factor": 4.0, "beta_fast": 1.0, "beta_slow": 2.0}"#),
        llama(r#""rope_scaling": {"type": "yarn", "factor": 4.0, "truncate": 1}"#),
        llama(r#""rope_scaling": {"type": "longrope", "short_factor": "1", "long_factor": [2.0]}"#),
        llama(r#""rope_theta": 0"#),
        llama(r#""rope_scaling": "llama3""#),
        rope(r#""rope_type": "llama3", "factor": 8.0"#),
        rope(
            r#""rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64"#,
        ),
        rope(r#""rope_type": "default", "partial_rotary_factor": 0.5"#),
        r#"{"model_type": "qwen3", "num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]}"#
            .to_owned(),
        r#"{"model_type": "qwen3", "num_hidden_layers": 2, "layer_types": ["full_attention"]}"#.to_owned(),
        opt(r#""do_layer_norm_before": false"#),
        opt(r#""word_embed_proj_dim": 512"#),
        opt(r#""_remove_final_layer_norm": true"#),
        opt(r#""layer_norm_elementwise_affine": false"#),
        opt(r#""activation_function": "silu""#),
        opt(r#""num_attention_heads": 7"#),
    ];
    let table: String = cases
        .iter()
        .map(String::as_str)
        .chain(REFUSED)
        .map(|text| format!("{text}\n  {}\n", read(text).expect_err(text)))
        .collect();
    insta::assert_snapshot!(table);
}

#[test]
fn an_absent_folder_and_an_unknown_preset_say_so() {
    let error = Model::from_folder(Path::new("no/such/folder")).unwrap_err().to_string();
    assert!(error.starts_with("no/such/folder/config.json: cannot be read"), "{error}");
    let error = Model::preset("llama-9").unwrap_err().to_string();
    assert!(error.contains("llama-9 is not a model") && error.contains("fulcrum model list"), "{error}");
    let error = Model::preset("llama-3.1-8c").unwrap_err().to_string();
    assert!(error.contains("did you mean llama-3.1-8b?"), "{error}");
}

#[test]
fn a_mistyped_size_is_no_default() {
    for (written, value, meant) in [
        ("num_hiden_layers", 36, "num_hidden_layers"),
        ("num_kv_heads", 8, "num_key_value_heads"),
        ("vocabsize", 1000, "vocab_size"),
        ("intermediate_sise", 1000, "intermediate_size"),
    ] {
        let text = format!(r#"{{"model_type": "qwen3", "{written}": {value}}}"#);
        let error = Model::from_config_json("typo", "config.json", &text).unwrap_err().to_string();
        for words in ["config.json", written, &value.to_string(), &format!("did you mean {meant}?")] {
            assert!(error.contains(words), "{error}");
        }
    }
    // Who writes the size may write other keys beside it.
    let both = r#"{"model_type": "qwen3", "num_key_value_heads": 8, "num_kv_heads": 8}"#;
    assert_eq!(Model::from_config_json("both", "config.json", both).expect("it is read").kv_heads, 8);
}

#[test]
fn layers_without_experts_and_the_scale_of_experts_are_written_back() {
    let model = Model::preset("minimax-m2.5").unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&model.to_config_json().unwrap()).unwrap();
    let layers = model.layers as usize;
    config["moe_layer_freq"] = (0..layers).map(|layer| u8::from(layer > 2 && layer != 9)).collect();
    config["routed_scaling_factor"] = serde_json::json!(2.0);
    let read = |text: &str| Model::from_config_json("again", "config.json", text).unwrap();
    let first = read(&config.to_string());
    assert!(first.layer(9).experts.is_none() && first.layer(10).experts.is_some());
    assert_eq!(read(&first.to_config_json().unwrap()), first);
}
