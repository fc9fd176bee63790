//! `fulcrum machine fit`: points in, a GPU's file out, and predictions from that file.

use crate::place::Place;
use std::fmt::Write;
use std::fs;

fn placed(points: &str) -> Place {
    Place::with(&[("points.csv", points.as_bytes())])
}

const HEADER: &str = "gpu,dtype,m,n,k,latency_us\n";

/// Products on a machine of 3 us + the larger of FLOP ÷ 500 TFLOP/s and bytes ÷ 2 TB/s.
fn points(gpu: &str) -> String {
    let mut text = String::new();
    for m in [1, 16, 256, 4096] {
        for n in [512, 4096, 16384] {
            for k in [512, 4096, 16384] {
                let flop = 2.0 * f64::from(m) * f64::from(n) * f64::from(k);
                let bytes = 2.0 * (f64::from(m) * f64::from(k) + f64::from(n) * f64::from(k));
                let us = 3.0 + (flop / 500e12).max(bytes / 2e12) * 1e6;
                writeln!(text, "{gpu},bf16,{m},{n},{k},{us:.3}").expect("a String takes it");
            }
        }
    }
    text
}

#[test]
fn points_make_a_part_that_predicts_them_and_points_between() {
    let place = placed(&(HEADER.to_owned() + &points("h100_sxm")));
    let printed = place.stdout("machine fit points.csv -o fitted.yaml");
    for words in ["h100-sxm: 36 bf16 products", "80 % within", "all rows", "written to fitted.yaml"] {
        assert!(printed.contains(words), "{words:?} is not in {printed}");
    }
    let text = fs::read_to_string(place.path("fitted.yaml")).expect("written");
    assert!(text.contains("fulcrum machine fit points.csv") && text.starts_with("gpu: h100-sxm"), "{text}");
    place.stdout("machine check fitted.yaml");
    let known = place.stdout("predict fitted.yaml --ops points.csv");
    assert!(known.lines().skip(1).all(|row| row.contains(",measured,")), "{known}");
    fs::write(place.path("ops.csv"), "dtype,m,n,k\nbf16,64,2048,8192\nbf16,99999,2048,8192\n")
        .expect("written");
    let new = place.stdout("predict fitted.yaml --ops ops.csv");
    assert!(new.contains(",interpolated,") && new.contains(",extrapolated,"), "{new}");
}

#[test]
fn several_gpus_make_a_folder_that_predict_takes_by_the_rows_names() {
    let place = placed(&(HEADER.to_owned() + &points("h100_sxm") + &points("l40s")));
    place.stdout("machine fit points.csv -o fits");
    assert!(place.path("fits/h100-sxm.yaml").is_file() && place.path("fits/l40s.yaml").is_file());
    let rows = place.stdout("predict fits --ops points.csv");
    assert!(rows.lines().skip(1).all(|row| row.contains(",measured,")), "{rows}");
    place.stdout("machine fit points.csv --only l40s -o one.yaml");
    let json = place.stdout("--json machine fit points.csv --only l40s");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["fitted"][0]["gpu"], "l40s");
    assert_eq!(json["written"], serde_json::json!([]));
}

#[test]
fn points_that_cannot_be_fitted_are_refused_and_nothing_is_written() {
    let with = |rows: &str| placed(&(HEADER.to_owned() + rows));
    let fit = "machine fit points.csv -o out.yaml";
    with("h100-sxm,bf16,1,2,3,0\n").refused(fit, 2, &["points.csv:2: latency_us: '0'", "above zero"]);
    with("h100-sxm,bf16,1,2,3,NaN\n").refused(fit, 2, &["points.csv:2: latency_us: 'NaN'"]);
    with("h100-sxm,bf16,1,2,3,1\nh100-sxm,bf16,1,2,3,9\n").refused(
        fit,
        2,
        &["points.csv:3", "points.csv:2", "9.0 times"],
    );
    with("h100-xxl,bf16,1,2,3,1\n").refused(fit, 2, &["h100-xxl", "h100-sxm", "--gpu"]);
    with("xeon-8460h,bf16,1,2,3,1\n").refused(fit, 2, &["xeon-8460h", "a GPU"]);
    with("h100-sxm,bf16,1,2,3,1\nl40s,bf16,1,2,3,1\n").refused(
        fit,
        2,
        &["out.yaml", "h100-sxm.yaml", "folder"],
    );
    let place = with("h100-sxm,bf16,1,2,3,1\n");
    place.refused("machine fit points.csv --only l40s", 2, &["l40s", "h100-sxm"]);
    place.refused("machine fit points.csv --gpu l40s", 2, &["h100-sxm", "l40s", "--only"]);
    place.refused("machine fit absent.csv", 2, &["absent.csv"]);
    place.refused("machine fit", 2, &["POINTS"]);
    placed("dtype,m,n,k,latency_us\nbf16,1,2,3,4\n").refused(fit, 2, &["--gpu h100-sxm", "gpu"]);
    placed(HEADER).refused(fit, 2, &["points.csv:1", "no points"]);
}

const LAYERS: &str = "layer,tokens,time_us\nlayernorm,1,2\nlayernorm,4,4\nlayernorm,512,90\n";

#[test]
fn layer_times_of_an_engine_become_points_a_small_kernel_and_a_link() {
    let mut layers = LAYERS.to_owned();
    let mut attention = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n64,0,4,128,50\n".to_owned();
    for tokens in [1, 16, 256, 1024] {
        for layer in ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"] {
            writeln!(layers, "{layer},{tokens},{}", 30 + tokens / 4).expect("a String takes it");
        }
        writeln!(attention, "{},0,0,0,{}", 16 * tokens, 10 + tokens).expect("a String takes it");
        writeln!(attention, "0,0,{tokens},1024,{}", 10 + tokens).expect("a String takes it");
    }
    let experts = "tokens,activated_experts,time_us\n1,8,50\n";
    let sums = "ranks,bytes,time_us\n2,2048,20\n2,2000000000,100020\n";
    let texts = [("dense.csv", &layers), ("attention.csv", &attention)];
    let files = texts.map(|(name, text)| (name, text.as_bytes()));
    let place =
        Place::with(&[files[0], files[1], ("moe.csv", experts.as_bytes()), ("sums.csv", sums.as_bytes())]);
    let fit = "machine fit dense.csv attention.csv moe.csv sums.csv --gpu rtx-4090";
    place.refused(fit, 2, &["dense.csv", "--model"]);
    let printed = place.stdout(&format!("{fit} --model llama-3.1-8b --tensor-parallel 2 -o fitted"));
    for words in [
        "16 bf16 products",
        "a small kernel: 3 us",
        "all-reduce: 10 us a step + bytes / 20 GB/s",
        "1 experts",
    ] {
        assert!(printed.contains(words), "{words:?} is not in {printed}");
    }
    let part = fs::read_to_string(place.path("fitted/rtx-4090.yaml")).expect("a part");
    // Half of 6144 rows, and half of 32 heads.
    assert!(part.contains("1,3072,4096,30") && part.contains("decode,16,1,1023,16,4,128,26"), "{part}");
    place.stdout("machine check fitted/rtx-4090.yaml");
    place.stdout("machine check fitted/rtx-4090-peer.yaml");
}

#[test]
fn a_table_of_llama_bench_makes_a_machine_that_every_command_takes() {
    let bench = "\
| model | backend | ngl | fa | test | t/s |
| ----- | ------- | --: | -: | ---: | --: |
| qwen3 8B Q4_K - Medium | CUDA | 99 | 1 | pp512 | 2000.00 ± 12.91 |
| qwen3 8B Q4_K - Medium | CUDA | 99 | 1 | tg128 | 45.00 ± 0.42 |
";
    let place = Place::with(&[("bench.md", bench.as_bytes())]);
    place.refused("machine fit bench.md", 2, &["llama-bench", "--machine"]);
    let machine = "--machine rtx-3060-12,ryzen-5600,32GB";
    place.refused(&format!("machine fit bench.md {machine}"), 2, &["which model", "--model"]);
    place.refused(&format!("machine fit bench.md {machine} --gpu l40s"), 2, &["--gpu"]);
    let printed = place.stdout(&format!("machine fit bench.md {machine} --model qwen3-8b -o mine.yaml"));
    assert!(printed.contains("the GPU reads memory at 0.89") && printed.contains("mine.yaml"), "{printed}");
    assert!(printed.contains("two or three tell more"), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    let rate = |machine: &str| {
        let asked = "--model qwen3-8b --format q4_k_m --context 640 --prompt 512 --micro-batch 512";
        let text = place.stdout(&format!("--json advise --machine {machine} {asked}"));
        let advice: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        advice["rows"][0]["tok_s"].as_f64().expect("a rate")
    };
    let (promised, fitted) = (rate("rtx-3060-12,ryzen-5600,32GB"), rate("mine.yaml"));
    assert!(promised > 1.04 * fitted && fitted > 45.0, "{promised} {fitted}");
}
