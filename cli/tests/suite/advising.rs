//! `fulcrum advise`: a screen of 80 columns that starts with the answer.

use crate::place::Place;
use regex::Regex;
use serde_json::Value;

/// Words for machines, with underscores for spaces because tests split arguments at spaces.
const DESKTOP: &str = "RTX_4090,i7-14700K,64GB_DDR5-6000";

fn advise(arguments: &str) -> String {
    Place::with(&[]).stdout(&format!("advise {arguments}"))
}

/// The text with numbers as `#`, which improve with the model of costs; those of names stay.
fn without_figures(text: &str) -> String {
    Regex::new(r"([ (-])[0-9][0-9.]*").expect("a pattern").replace_all(text, "${1}#").into_owned()
}

#[test]
fn a_screen_is_eighty_columns_wide_and_ends_with_what_to_do_next() {
    for arguments in [
        format!("--machine {DESKTOP}"),
        "--machine M4_Max,64GB --for code".to_owned(),
        "--machine 2x_RTX_3090,EPYC_7543,512GB --for batch --all".to_owned(),
        "--machine Xeon_Gold_6138,96GB --engine ik_llama.cpp".to_owned(),
        format!("--machine {DESKTOP} --model gpt-oss-120b"),
        "--machine RTX_3060,Ryzen_5_5600,32GB --model qwen3-30b-a3b".to_owned(),
    ] {
        let text = advise(&arguments);
        for line in text.lines().filter(|line| !line.starts_with("  llama-server")) {
            assert!(line.chars().count() <= 80, "{arguments}: {line:?}");
        }
        assert!(text.contains("\nBest: ") && text.contains("To start it:\n  "), "{text}");
        assert!(!text.contains('\u{1b}'), "no colour in a pipe");
    }
}

#[test]
fn the_words_for_three_machines() {
    for (machine, words) in [
        (
            DESKTOP,
            "rtx-# # GB, i7-#k, # GB DDR5-#\nassumed: link pcie4-x16\nchat with llama.cpp: prompt #, answer #, \
             room for # tokens, at least #\n  tok/s\n\nBest: qwen3-#b in q4_k_m, about # tok/s\n",
        ),
        (
            "M4_Max,64GB",
            "apple-m4-max, # GB\nassumed: macOS lends the GPU # % of # GB; memory at LPDDR5X, the CPU's fastest\n",
        ),
        ("Xeon_Gold_6138,96GB", "xeon-gold-#, # GB\nassumed: memory at #x DDR4-#, the CPU's fastest\n"),
    ] {
        let text = without_figures(&advise(&format!("--machine {machine} --model qwen3-8b --format q4_k_m")));
        assert!(text.starts_with(words), "{text}\nwanted:\n{words}");
        let placed = [
            "all on the GPU\n\nTo start it:\n  llama-server -hf Qwen/Qwen3-#B-GGUF:Q4_K_M -c # -ngl #\n",
            "all in shared memory\n\nTo start it:\n  llama-server -hf Qwen/Qwen3-#B-GGUF:Q4_K_M -c # -ngl #\n",
            "all on the CPU\n\nTo start it:\n  llama-server -hf Qwen/Qwen3-#B-GGUF:Q4_K_M -c #\n",
        ];
        assert!(placed.iter().any(|placed| text.contains(placed)), "{text}");
    }
}

#[test]
fn json_has_what_the_screen_says() {
    let told: Value = serde_json::from_str(&advise(&format!("--machine {DESKTOP} --json"))).expect("JSON");
    let rows = told["rows"].as_array().expect("rows");
    assert!(rows.len() > 10 && told["left_out"].as_array().is_some_and(|left| !left.is_empty()));
    for row in rows {
        let [low, rate, high] = [&row["tok_s_band"][0], &row["tok_s"], &row["tok_s_band"][1]];
        assert!(low.as_f64() < rate.as_f64() && rate.as_f64() < high.as_f64(), "{row}");
        let fast = rate.as_f64() >= told["min_rate"].as_f64();
        assert_eq!(row["fast_enough"], Value::Bool(fast), "{row}");
    }
    let code: Value =
        serde_json::from_str(&advise(&format!("--machine {DESKTOP} --for code --json"))).expect("JSON");
    assert_eq!((&code["purpose"], &code["load"]["prompt_tokens"]), (&"code".into(), &8192.into()));
}

#[test]
fn what_is_wanted_changes_the_answer() {
    let first = |arguments: &str| {
        let told: Value =
            serde_json::from_str(&advise(&format!("--machine {DESKTOP} --json {arguments}"))).expect("JSON");
        told["rows"][0].clone()
    };
    let [slow, fast] = ["--min-tps 2", "--min-tps 100"].map(first);
    assert!(fast["tok_s"].as_f64() >= Some(100.0), "{fast}");
    assert!(slow["score"].as_f64() >= fast["score"].as_f64());
    let ours = first("--engine ollama");
    assert!(ours["command"].as_str().is_some_and(|command| command.starts_with("ollama run ")), "{ours}");
}

#[test]
fn bad_questions_say_what_was_understood_and_what_is_near() {
    let place = Place::with(&[("prices.csv", b"kind,name,usd,date,source\ngpu,rtx-3090,free,2025,me\n")]);
    for (arguments, status, words) in [
        ("--machine RTX_4095,i7-14700K", 2, &["understood: i7-14700k", "rtx 4095", "did you mean"][..]),
        ("--machine RTX", 2, &["understood: nothing", "missing: a GPU or a CPU"]),
        ("--machine RTX_4090,0GB", 2, &["0 GB of memory", "as 64 GB"]),
        ("--machine RTX_4090 --model gpt-oss-12b", 2, &["gpt-oss-12b", "gpt-oss-120b"]),
        ("--machine RTX_4090 --model qwen3-8b --format q4_k_x", 2, &["q4_k_x", "q4_k"]),
        ("--machine RTX_4090 --format q4", 2, &["'q4' is not a format", "did you mean q4_k_m"]),
        ("--machine RTX_4090 --format nvfpp4", 2, &["'nvfpp4' is not a format", "did you mean nvfp4"]),
        ("RTX_4090,32", 2, &["'32' has no unit", "32 GB"]),
        ("--machine RTX_4090 --engine vlm", 2, &["vlm", "vllm"]),
        ("--machine i7-14700K,64GB --engine vllm", 2, &["needs a GPU", "--engine llama.cpp"]),
        ("--machine RTX_4090 --engine ktransformers --model qwen3-8b", 2, &["qwen3-8b", "has none"]),
        ("--machine RTX_4090 --min-tps 0", 2, &["min-tps", "above 0"]),
        ("--machine RTX_4090 --for fun", 2, &["fun", "chat, code, batch"]),
        ("--machine RTX_4090 --model qwen3-8b --prices prices.csv", 2, &["prices.csv:2", "above 0"]),
    ] {
        place.refused(&format!("advise {arguments}"), status, words);
    }
}

#[test]
fn a_model_that_does_not_fit_says_what_would_make_it_fit() {
    let output = Place::with(&[]).fulcrum("advise --machine RTX_3060,Ryzen_5_5600,32GB --model gpt-oss-120b");
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        text.contains("Nothing fits.") && text.contains("One upgrade") && text.contains("of memory"),
        "{text}"
    );
    assert!(String::from_utf8(output.stderr).expect("text").contains("GB of memory"));
}
