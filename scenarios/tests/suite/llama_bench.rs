//! Tables of `llama-bench`.

use scenarios::Model;
use scenarios::published::{BenchRun, PublicMetric};
use serde_json::json;

const PRINTED: &str = "\
| model                          |       size |     params | backend    | ngl | fa |  type_k |            test |                  t/s |
| ------------------------------ | ---------: | ---------: | ---------- | --: | -: | ------: | --------------: | -------------------: |
| qwen3 8B Q4_K - Medium         |   4.68 GiB |     8.19 B | CUDA       |  30 |  1 |    q8_0 |   pp512 @ d4096 |      2100.50 ± 12.91 |
| qwen3 8B Q4_K - Medium         |   4.68 GiB |     8.19 B | CUDA       |  30 |  1 |    q8_0 |           tg128 |        46.56 ± 0.42 |
| qwen3 8B Q4_K - Medium         |   4.68 GiB |     8.19 B | CUDA       |  30 |  1 |    q8_0 |     pp512+tg128 |        99.00 ± 0.42 |

build: 3e0ba0e60 (5575)
";

fn json_rows() -> String {
    let row = |prompt: u64, output: u64, depth: u64, rate: f64| {
        json!({"build_number": 5575, "backends": "CUDA", "model_filename": "a/Qwen3-8B-Q4_K_M.gguf",
            "model_type": "qwen3 8B Q4_K - Medium", "n_gpu_layers": 30, "flash_attn": 1, "type_k": "q8_0",
            "n_prompt": prompt, "n_gen": output, "n_depth": depth, "avg_ts": rate})
    };
    json!([row(512, 0, 4096, 2100.5), row(0, 128, 0, 46.56), row(512, 128, 0, 99.0)]).to_string()
}

const CSV: &str = "build_number,backends,model_filename,n_gpu_layers,flash_attn,type_k,n_prompt,n_gen,n_depth,avg_ts\n\
    \"5575\",\"CUDA\",\"a/Qwen3-8B-Q4_K_M.gguf\",\"30\",\"1\",\"q8_0\",\"512\",\"0\",\"4096\",\"2100.5\"\n\
    \"5575\",\"CUDA\",\"a/Qwen3-8B-Q4_K_M.gguf\",\"30\",\"1\",\"q8_0\",\"0\",\"128\",\"0\",\"46.56\"\n";

#[test]
fn all_formats_say_the_same() {
    let model = Model::preset("qwen3-8b").expect("a preset");
    let lines = json_rows().trim_matches(['[', ']']).replace("},{", "}\n{");
    let mut scenarios = Vec::new();
    for text in [PRINTED, &json_rows(), &lines, CSV] {
        let runs = BenchRun::read(text, "own").expect(text);
        assert_eq!(runs.iter().map(BenchRun::test).collect::<Vec<_>>(), ["pp512 @ d4096", "tg128"], "{text}");
        assert_eq!(runs[0].point.metric, PublicMetric::Prompt);
        assert_eq!([&runs[0], &runs[1]].map(|run| run.point.rate), [2100.5, 46.56]);
        let (name, kind) = runs[1].named();
        assert_eq!(kind.as_deref(), Some("q4_k_m"), "{text}");
        assert!(name.is_none_or(|name| name == "Qwen3-8B"));
        scenarios.push(runs[1].scenario(json!("m"), &model, "qwen3-8b", "q4_k_m").expect("a scenario"));
    }
    let wanted = json!({
        "machine": "m", "model": "qwen3-8b", "dtype": {"weights": "q4_k_m", "kv": "int8"},
        "engine": {"name": "llama.cpp", "version": "5575"}, "placement": {"gpu_layers": 30},
    });
    for scenario in scenarios {
        assert_eq!(scenario, wanted);
    }
}

#[test]
fn options_are_those_of_the_row() {
    let model = Model::preset("qwen3-30b-a3b").expect("a preset");
    let placed = |fields: serde_json::Value| {
        let mut row = json!({"backends": "CUDA", "n_prompt": 0, "n_gen": 8, "avg_ts": 1, "n_gpu_layers": -1});
        row.as_object_mut().expect("fields").extend(fields.as_object().expect("fields").clone());
        let runs = BenchRun::read(&row.to_string(), "own").expect("a run");
        runs[0].scenario(json!("m"), &model, "m", "q8_0").expect("a scenario")["placement"].clone()
    };
    assert_eq!(placed(json!({})), json!({"gpu_layers": 49}));
    assert_eq!(
        placed(json!({"n_cpu_moe": 9, "tensor_split": "3.00/1.00", "no_kv_offload": true, "n_ubatch": 2048})),
        json!({"gpu_layers": 49, "cpu_moe_layers": 9, "tensor_split": [300, 100], "kv_offload": false,
            "micro_batch": 2048})
    );
    assert_eq!(
        placed(json!({"tensor_buft_overrides": "exps=CPU;a=CUDA0", "tensor_split": "0.00"})),
        json!({"gpu_layers": 49, "override_tensor": ["exps=CPU,a=CUDA0"]})
    );
    assert_eq!(placed(json!({"backends": "BLAS,CPU"})), json!({"gpu_layers": 0, "op_offload": false}));
}

#[test]
fn names_of_files_tell_model_and_kind() {
    let named = |path: &str| {
        let row = json!({"n_prompt": 8, "n_gen": 0, "avg_ts": 1, "model_filename": path, "model_type": "x"});
        BenchRun::read(&row.to_string(), "own").expect("a run")[0].named()
    };
    let both = |model: &str, kind: &str| (Some(model.to_owned()), Some(kind.to_owned()));
    assert_eq!(named("Qwen3-8B-Q4_K_M.gguf"), both("Qwen3-8B", "q4_k_m"));
    assert_eq!(named(r"C:\models\gemma-3-4b-it.Q8_0.gguf"), both("gemma-3-4b-it", "q8_0"));
    assert_eq!(named("a/GLM-4.5-Air-UD-Q4_K_M-00001-of-00002.gguf"), both("GLM-4.5-Air", "q4_k_m"));
    assert_eq!(named("gpt-oss-20b-mxfp4.gguf"), both("gpt-oss-20b", "mxfp4_moe"));
    assert_eq!(named("Qwen3-8B-BF16.gguf"), both("Qwen3-8B", "bf16"));
    assert_eq!(named("Qwen3-8B-UD-Q4_K_XL.gguf"), both("Qwen3-8B", "q4_k_m"));
    assert_eq!(named("model.gguf"), (None, None));
    let of_type = |text: &str| {
        let row = json!({"n_prompt": 8, "n_gen": 0, "avg_ts": 1, "model_type": text});
        BenchRun::read(&row.to_string(), "own").expect("a run")[0].named().1
    };
    for (text, kind) in [("qwen3 8B Q5_K - Small", "q5_k_s"), ("gpt-oss 20B MXFP4 MoE", "mxfp4_moe")] {
        assert_eq!(of_type(text).as_deref(), Some(kind));
    }
}

#[test]
fn what_is_no_table_says_what_is_wanted() {
    assert!([PRINTED, CSV, &json_rows()].into_iter().all(BenchRun::is_begin));
    assert!(!BenchRun::is_begin("dtype,m,n,k,latency_us\nbf16,1,2,3,4\n"));
    let refused = |text: &str| BenchRun::read(text, "own").expect_err(text);
    for (text, words) in [
        ("", "empty"),
        ("a,b\n1,2\n", "no table of llama-bench"),
        ("[{\"n_prompt\": 1}]", "no table of llama-bench"),
        ("[{\"n_prompt\": 1, \"avg_ts\": 0}]", "above 0"),
        ("[{\"n_prompt\": -1, \"avg_ts\": 3}]", "whole numbers"),
        ("[{\"n_prompt\": 8, \"n_gen\": 8, \"avg_ts\": 3}]", "no rate of a prompt"),
        ("[{\"n_prompt\": 1", "not JSON"),
        ("| test | t/s |\n|--|--|\n| both | 3 |\n", "pp512, tg128"),
    ] {
        assert!(refused(text).contains(words), "{text}: {}", refused(text));
    }
}
