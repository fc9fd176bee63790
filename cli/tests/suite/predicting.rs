//! `fulcrum predict`: rows in, the same rows with predictions out, and errors of rows.

use crate::place::Place;
use std::fs;

/// A folder with these rows, and with the result of an earlier run.
fn placed(rows: impl AsRef<[u8]>) -> Place {
    Place::with(&[("ops.csv", rows.as_ref()), ("out.csv", b"kept")])
}

#[test]
fn rows_come_back_as_they_were_with_the_prediction_behind() {
    let rows = "\u{feff}note,dtype,m,n,k\r\n\"a, \"\"b\"\"\",fp16, 1 ,4096,4096\r\n\r\nc,bf16,64.0,4096,4096";
    let place = placed(rows);
    let (out, err) = place.outputs("predict h100-sxm --ops ops.csv");
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
    let place = placed("dtype,m,n,k,latency_us\nbf16,1,4096,4096,20\nbf16,64,4096,4096,\n");
    let (rows, summary) = place.outputs("predict h100-sxm --ops ops.csv");
    let printed = place.stdout("predict h100-sxm --ops ops.csv -o ops.csv");
    assert_eq!(printed, summary + "written to ops.csv\n");
    assert_eq!(fs::read_to_string(place.path("ops.csv")).expect("a file"), rows);
}

#[test]
fn each_row_can_name_its_gpu_and_errors_are_summed_up_by_gpu() {
    let place =
        placed("gpu,dtype,m,n,k,latency_us\nh100_sxm,bf16,1,4096,4096,20\nL40S,bf16,1,4096,4096,50\n");
    let (rows, summary) = place.outputs("predict --ops ops.csv");
    assert_eq!(rows.lines().count(), 3);
    for name in ["all rows", "bf16 products n,k >= 1024", "h100-sxm", "l40s", "worst: line "] {
        assert!(summary.contains(name), "{name} is not in {summary}");
    }
    let only = place.stdout("predict h100-sxm --ops ops.csv --only l40s");
    assert_eq!(only.lines().count(), 2, "the row of the other GPU is left out: {only}");
    assert!(only.contains("\nL40S,bf16,"), "{only}");
    let (json, nothing) = place.outputs("--json predict --ops ops.csv");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (json["rows"].as_u64(), json["errors"][0]["rows"].as_u64(), &nothing[..]),
        (Some(2), Some(2), "")
    );
}

#[test]
fn a_machine_with_several_devices_predicts_for_its_gpu_or_the_device_that_is_named() {
    let place = placed("dtype,m,n,k\nbf16,512,4096,4096\n");
    let alone = place.stdout("predict h200-sxm --ops ops.csv");
    let composed = place.stdout("predict gnr-h200 --ops ops.csv");
    let cpu = place.stdout("predict gnr-h200 --device cpu --ops ops.csv");
    assert_eq!(alone, composed);
    assert_ne!(cpu, composed);
}

#[test]
fn rows_that_cannot_be_predicted_are_refused_and_the_old_file_stays() {
    let gemm = |row: &str| placed(format!("gpu,dtype,m,n,k\n{row}\n"));
    let out = "--ops ops.csv -o out.csv";
    gemm("h100-sxm,bf16,1,2,x").refused(&format!("predict {out}"), 2, &["ops.csv:2: k: 'x'", "whole number"]);
    gemm("a100_sxm,bf16,1,2,3").refused(
        &format!("predict h100-sxm {out}"),
        2,
        &["ops.csv:2: gpu", "a100_sxm", "h100-sxm"],
    );
    gemm("h100-xxl,bf16,1,2,3").refused(
        &format!("predict {out}"),
        2,
        &["ops.csv:2: gpu", "h100-xxl", "h100-sxm"],
    );
    gemm(",bf16,1,2,3").refused(&format!("predict {out}"), 2, &["ops.csv:2: gpu", "empty"]);
    gemm("epyc-9654,bf16,1,2,3").refused(&format!("predict {out}"), 2, &["ops.csv:2: gpu", "epyc-9654"]);
    gemm("a100-sxm,int2,1,2,3").refused(
        &format!("predict {out}"),
        2,
        &["ops.csv:2: ", "int2", "bf16", "fulcrum"],
    );
    let place = placed("dtype,m,n,k\nbf16,1,2,3\n");
    place.refused(&format!("predict {out}"), 2, &["ops.csv:1: gpu", "h100-sxm"]);
    place.refused(&format!("predict h100-sxm --only l40s {out}"), 2, &["ops.csv:1: gpu"]);
    place.refused(&format!("predict h100-sxn {out}"), 2, &["h100-sxn", "h100-sxm"]);
    place.refused(&format!("predict pcie5-x16 {out}"), 2, &["pcie5-x16", "a machine"]);
    place.refused(&format!("predict gnr-h200 --device npu {out}"), 2, &["npu", "cpu, gpu"]);
    place.refused(&format!("predict example-loopback {out}"), 2, &["--device", "loopback"]);
    place.refused("predict h100-sxm --ops absent.csv -o out.csv", 2, &["absent.csv"]);
    let again = placed("dtype,m,n,k,predicted_us\nbf16,1,2,3,4\n");
    again.refused(&format!("predict h100-sxm {out}"), 2, &["ops.csv:1: predicted_us"]);
}
