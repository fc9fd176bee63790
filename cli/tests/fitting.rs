//! `fulcrum machine fit`: points in, a GPU's file out, and predictions from that file.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

struct Place(tempfile::TempDir);

impl Place {
    fn new(points: &str) -> Self {
        let place = Self(tempfile::tempdir().expect("a temporary folder"));
        fs::write(place.path("points.csv"), points).expect("written");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn fulcrum(&self, arguments: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_fulcrum"))
            .args(arguments.split_whitespace())
            .current_dir(self.0.path())
            .env("FULCRUM_HOME", self.0.path())
            .output()
            .expect("the command starts")
    }

    fn done(&self, arguments: &str) -> String {
        let output = self.fulcrum(arguments);
        assert!(output.status.success(), "fulcrum {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    fn refused(&self, arguments: &str, words: &[&str]) {
        let output = self.fulcrum(arguments);
        let message = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "fulcrum {arguments}: {message}");
        assert_eq!(message.matches("error: ").count(), 1, "{message}");
        for word in words {
            assert!(message.contains(word), "fulcrum {arguments} should say {word:?}: {message}");
        }
        assert_eq!(fs::read_dir(self.0.path()).expect("a folder").count(), 1, "nothing is written");
    }
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
fn points_make_a_part_that_predicts_them_and_what_lies_between() {
    let place = Place::new(&(HEADER.to_owned() + &points("h100_sxm")));
    let said = place.done("machine fit points.csv -o fitted.yaml");
    for words in ["h100-sxm: 36 bf16 products", "80 % within", "all rows", "written to fitted.yaml"] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    let text = fs::read_to_string(place.path("fitted.yaml")).expect("written");
    assert!(text.contains("fulcrum machine fit points.csv") && text.starts_with("gpu: h100-sxm"), "{text}");
    place.done("machine check fitted.yaml");
    let known = place.done("predict fitted.yaml --ops points.csv");
    assert!(known.lines().skip(1).all(|row| row.contains(",measured,")), "{known}");
    fs::write(place.path("ops.csv"), "dtype,m,n,k\nbf16,64,2048,8192\nbf16,99999,2048,8192\n")
        .expect("written");
    let new = place.done("predict fitted.yaml --ops ops.csv");
    assert!(new.contains(",interpolated,") && new.contains(",extrapolated,"), "{new}");
}

#[test]
fn several_gpus_make_a_folder_that_predict_takes_by_the_rows_names() {
    let place = Place::new(&(HEADER.to_owned() + &points("h100_sxm") + &points("l40s")));
    place.done("machine fit points.csv -o fits");
    assert!(place.path("fits/h100-sxm.yaml").is_file() && place.path("fits/l40s.yaml").is_file());
    let rows = place.done("predict fits --ops points.csv");
    assert!(rows.lines().skip(1).all(|row| row.contains(",measured,")), "{rows}");
    place.done("machine fit points.csv --only l40s -o one.yaml");
    let json = place.done("--json machine fit points.csv --only l40s");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["fitted"][0]["gpu"], "l40s");
    assert_eq!(json["written"], serde_json::json!([]));
}

#[test]
fn points_that_cannot_be_fitted_are_refused_and_nothing_is_written() {
    let with = |rows: &str| Place::new(&(HEADER.to_owned() + rows));
    let fit = "machine fit points.csv -o out.yaml";
    with("h100-sxm,bf16,1,2,3,0\n").refused(fit, &["points.csv:2: latency_us: '0'", "above zero"]);
    with("h100-sxm,bf16,1,2,3,NaN\n").refused(fit, &["points.csv:2: latency_us: 'NaN'"]);
    with("h100-sxm,bf16,1,2,3,1\nh100-sxm,bf16,1,2,3,9\n")
        .refused(fit, &["points.csv:3", "points.csv:2", "9.0 times"]);
    with("h100-xxl,bf16,1,2,3,1\n").refused(fit, &["h100-xxl", "h100-sxm", "--gpu"]);
    with("xeon-8460h,bf16,1,2,3,1\n").refused(fit, &["xeon-8460h", "a GPU"]);
    with("h100-sxm,bf16,1,2,3,1\nl40s,bf16,1,2,3,1\n").refused(fit, &["out.yaml", "h100-sxm.yaml", "folder"]);
    let place = with("h100-sxm,bf16,1,2,3,1\n");
    place.refused("machine fit points.csv --only l40s", &["l40s", "h100-sxm"]);
    place.refused("machine fit points.csv --gpu l40s", &["h100-sxm", "l40s", "--only"]);
    place.refused("machine fit absent.csv", &["absent.csv"]);
    place.refused("machine fit", &["POINTS"]);
    Place::new("dtype,m,n,k,latency_us\nbf16,1,2,3,4\n").refused(fit, &["--gpu h100-sxm", "gpu"]);
    Place::new(HEADER).refused(fit, &["points.csv:1", "no points"]);
}
