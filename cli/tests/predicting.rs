//! `fulcrum predict`: rows in, the same rows with predictions out, and what is said of rows that cannot be.

use std::fs;
use std::process::{Command, Output};

struct Place(tempfile::TempDir);

impl Place {
    fn new(rows: impl AsRef<[u8]>) -> Self {
        let place = Self(tempfile::tempdir().expect("a temporary folder"));
        fs::write(place.0.path().join("ops.csv"), rows).expect("written");
        place
    }

    fn fulcrum(&self, arguments: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_fulcrum"))
            .args(arguments.split_whitespace())
            .current_dir(self.0.path())
            .env("FULCRUM_HOME", self.0.path())
            .output()
            .expect("the command starts")
    }

    fn done(&self, arguments: &str) -> (String, String) {
        let output = self.fulcrum(arguments);
        let text = |bytes| String::from_utf8(bytes).expect("text");
        let (out, err) = (text(output.stdout), text(output.stderr));
        assert!(output.status.success(), "fulcrum {arguments}: {err}");
        (out, err)
    }

    fn refused(&self, arguments: &str, words: &[&str]) {
        fs::write(self.0.path().join("out.csv"), "kept").expect("written");
        let output = self.fulcrum(arguments);
        let message = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "fulcrum {arguments}: {message}");
        assert_eq!(message.matches("error: ").count(), 1, "{message}");
        for word in words {
            assert!(message.contains(word), "fulcrum {arguments} should say {word:?}: {message}");
        }
        assert!(output.stdout.is_empty(), "no result where there is none");
        assert_eq!(fs::read_to_string(self.0.path().join("out.csv")).expect("still there"), "kept");
        assert_eq!(fs::read_dir(self.0.path()).expect("a folder").count(), 2, "nothing is left behind");
    }
}

#[test]
fn rows_come_back_as_they_were_with_the_prediction_behind() {
    let rows = "\u{feff}note,dtype,m,n,k\r\n\"a, \"\"b\"\"\",fp16, 1 ,4096,4096\r\n\r\nc,bf16,64.0,4096,4096";
    let place = Place::new(rows);
    let (out, err) = place.done("predict h100-sxm --ops ops.csv");
    let lines: Vec<_> = out.split("\r\n").collect();
    assert_eq!(lines[0], "\u{feff}note,dtype,m,n,k,predicted_us,bound,source,low_us,high_us");
    assert!(lines[1].starts_with("\"a, \"\"b\"\"\",fp16, 1 ,4096,4096,"), "{out}");
    assert!(lines[2].starts_with("c,bf16,64.0,4096,4096,"), "{out}");
    assert_eq!((lines.len(), lines[3]), (4, ""));
    assert!(err.starts_with("2 rows: "), "{err}");
    for line in &lines[1..3] {
        let added: Vec<_> = line.rsplitn(6, ',').collect();
        let [high, low, source, bound, time] = [0, 1, 2, 3, 4].map(|i| added[i]);
        let [low, time, high] = [low, time, high].map(|text| text.parse::<f64>().expect("a number"));
        assert!(0.0 < low && low <= time && time <= high, "{line}");
        assert!(["launch", "compute", "memory"].contains(&bound), "{line}");
        assert!(["measured", "interpolated", "extrapolated", "estimated"].contains(&source), "{line}");
    }
}

#[test]
fn a_file_gets_what_stdout_gets_and_may_be_the_input_itself() {
    let place = Place::new("dtype,m,n,k,latency_us\nbf16,1,4096,4096,20\nbf16,64,4096,4096,\n");
    let (rows, summary) = place.done("predict h100-sxm --ops ops.csv");
    let (said, _) = place.done("predict h100-sxm --ops ops.csv -o ops.csv");
    assert_eq!(said, summary + "written to ops.csv\n");
    assert_eq!(fs::read_to_string(place.0.path().join("ops.csv")).expect("a file"), rows);
}

#[test]
fn each_row_can_name_its_gpu_and_the_errors_are_told_by_gpu() {
    let place =
        Place::new("gpu,dtype,m,n,k,latency_us\nh100_sxm,bf16,1,4096,4096,20\nL40S,bf16,1,4096,4096,50\n");
    let (rows, summary) = place.done("predict --ops ops.csv");
    assert_eq!(rows.lines().count(), 3);
    for name in ["all rows", "bf16 products n,k >= 1024", "h100-sxm", "l40s", "worst: line "] {
        assert!(summary.contains(name), "{name} is not in {summary}");
    }
    let (only, _) = place.done("predict h100-sxm --ops ops.csv --only l40s");
    assert_eq!(only.lines().count(), 2, "the row of the other GPU is left out: {only}");
    assert!(only.contains("\nL40S,bf16,"), "{only}");
    let (json, nothing) = place.done("--json predict --ops ops.csv");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (json["rows"].as_u64(), json["errors"][0]["rows"].as_u64(), &nothing[..]),
        (Some(2), Some(2), "")
    );
}

#[test]
fn a_machine_with_several_devices_predicts_for_its_gpu_or_the_device_that_is_named() {
    let place = Place::new("dtype,m,n,k\nbf16,512,4096,4096\n");
    let (alone, _) = place.done("predict h200-sxm --ops ops.csv");
    let (composed, _) = place.done("predict gnr-h200 --ops ops.csv");
    let (cpu, _) = place.done("predict gnr-h200 --device cpu --ops ops.csv");
    assert_eq!(alone, composed);
    assert_ne!(cpu, composed);
}

#[test]
fn what_cannot_be_predicted_is_refused_and_what_was_there_stays() {
    let gemm = |row: &str| Place::new(format!("gpu,dtype,m,n,k\n{row}\n"));
    let out = "--ops ops.csv -o out.csv";
    gemm("h100-sxm,bf16,1,2,x").refused(&format!("predict {out}"), &["ops.csv:2: k: 'x'", "whole number"]);
    gemm("a100_sxm,bf16,1,2,3")
        .refused(&format!("predict h100-sxm {out}"), &["ops.csv:2: gpu", "a100_sxm", "h100-sxm"]);
    gemm("h100-xxl,bf16,1,2,3")
        .refused(&format!("predict {out}"), &["ops.csv:2: gpu", "h100-xxl", "h100-sxm"]);
    gemm(",bf16,1,2,3").refused(&format!("predict {out}"), &["ops.csv:2: gpu", "empty"]);
    gemm("epyc-9654,bf16,1,2,3").refused(&format!("predict {out}"), &["ops.csv:2: gpu", "epyc-9654"]);
    gemm("a100-sxm,fp8,1,2,3").refused(&format!("predict {out}"), &["ops.csv:2: ", "fp8", "bf16", "fulcrum"]);
    let place = Place::new("dtype,m,n,k\nbf16,1,2,3\n");
    place.refused(&format!("predict {out}"), &["ops.csv:1: gpu", "h100-sxm"]);
    place.refused(&format!("predict h100-sxm --only l40s {out}"), &["ops.csv:1: gpu"]);
    place.refused(&format!("predict h100-sxn {out}"), &["h100-sxn", "h100-sxm"]);
    place.refused(&format!("predict pcie5-x16 {out}"), &["pcie5-x16", "a machine"]);
    place.refused(&format!("predict gnr-h200 --device npu {out}"), &["npu", "cpu, gpu"]);
    place.refused(&format!("predict example-loopback {out}"), &["--device", "loopback"]);
    place.refused("predict h100-sxm --ops absent.csv -o out.csv", &["absent.csv"]);
    let again = Place::new("dtype,m,n,k,predicted_us\nbf16,1,2,3,4\n");
    again.refused(&format!("predict h100-sxm {out}"), &["ops.csv:1: predicted_us"]);
}
