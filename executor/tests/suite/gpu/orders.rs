//! The same tests with the stand-in for the driver, in every order of streams.

use crate::gpu::stand_in;
use tempfile::TempDir;

/// Runs a test of [`crate::gpu::agreement`] with the stand-in. Returns its output where it passes.
fn run(folder: &TempDir, test: &str, words: &str) -> Result<String, String> {
    run_any(folder, &format!("gpu::agreement::{test}"), words)
}

/// The same for any test that prints "they agree".
pub fn run_any(folder: &TempDir, test: &str, words: &str) -> Result<String, String> {
    let output = stand_in::run_in(folder, test, words);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let passed = output.status.success() && text.contains("they agree");
    assert!(text.contains("a GPU: Stand-in 1"), "{text}");
    println!("{words}: {}", text.lines().find(|line| line.contains("largest")).unwrap_or_default());
    if passed { Ok(text) } else { Err(text + &String::from_utf8_lossy(&output.stderr)) }
}

#[test]
fn the_golden_models_run() {
    let folder = stand_in::folder();
    run(&folder, "what_a_gpu_computes_agrees_with_the_golden_models", "late")
        .unwrap_or_else(|text| panic!("{text}"));
}

#[test]
fn every_order_that_events_allow_gives_the_same_bits_and_no_other_order_passes() {
    let (folder, test) = (stand_in::folder(), "every_placement_with_a_gpu_gives_what_the_cpu_does");
    let bits = |words| {
        let text = run(&folder, test, words).unwrap_or_else(|text| panic!("{words}: {text}"));
        text.lines().filter(|line| line.starts_with("bits of ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let early = bits("early");
    assert_eq!(early, bits("late"));
    assert_eq!(early, bits("others"));
    // A stream that does not wait for other streams' events must make the test fail.
    assert!(run(&folder, test, "late forget").is_err());
}

#[test]
fn folders_in_few_bits_run() {
    let folder = stand_in::folder();
    run_any(&folder, "scaled::folders_in_few_bits_run_on_a_gpu_as_on_the_cpu", "late")
        .unwrap_or_else(|text| panic!("{text}"));
}

#[test]
fn files_in_blocks_run() {
    let folder = stand_in::folder();
    run_any(&folder, "gguf_blocks::files_in_blocks_run_on_a_gpu_as_on_the_cpu", "late")
        .unwrap_or_else(|text| panic!("{text}"));
}
