//! `fulcrum sweep` and `fulcrum merge`.

use crate::column::column;
use crate::killed::{killed_at, lines};
use crate::place::Place;
use hwprofiles::Seconds;
use std::fs;
use std::process::Command;

const SCENARIO: &str = "machine: h100-sxm
model: llama-3.2-1b
workload: {batch: 1, prompt_tokens: 64, output_tokens: 8}
";

fn placed() -> Place {
    Place::with(&[("s.yaml", SCENARIO.as_bytes())])
}

fn read(place: &Place, name: &str) -> String {
    fs::read_to_string(place.path(name)).expect("a table")
}

const AXES: &str = "--set workload.batch=1..32*2 --set workload.prompt_tokens=32,64,96";

#[test]
fn every_point_has_a_row_in_the_order_of_an_odometer() {
    let place = placed();
    let printed = place.stdout(&format!("sweep s.yaml {AXES} -o all.csv"));
    assert!(printed.contains("18 ok"), "{printed}");
    let table = read(&place, "all.csv");
    let points: Vec<_> = (0..18).map(|point: u32| point.to_string()).collect();
    assert_eq!(column(&table, "point"), points);
    assert_eq!(column(&table, "workload.batch")[..6], ["1", "1", "1", "2", "2", "2"]);
    assert_eq!(column(&table, "workload.prompt_tokens")[..4], ["32", "64", "96", "32"]);
    let times: Vec<f64> =
        column(&table, "tpot_s_mean").iter().map(|cell| cell.parse().expect("a number")).collect();
    assert!(times[0] < times[17] && times.iter().all(|time| *time > 0.0), "{times:?}");
    let inputs = column(&table, "inputs");
    assert!(inputs[0].len() == 16 && inputs[0] != inputs[1]);
    assert!(!place.path("all.csv.journal").exists());
    // A plan has the same numbers.
    let plan = place.stdout("--json plan s.yaml --set workload.batch=32 --set workload.prompt_tokens=96");
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("JSON");
    let ttft: hwprofiles::Seconds =
        plan["predicted"]["simulated"]["ttft"].as_str().expect("a time").parse().expect("a time");
    let row: f64 = column(&table, "ttft_s_mean")[17].parse().expect("a number");
    assert!((row / ttft.get() - 1.0).abs() < 1e-12, "{row} and {ttft}");
}

#[test]
fn shards_join_to_the_table_of_the_whole_whatever_their_order() {
    let place = placed();
    place.stdout(&format!("sweep s.yaml {AXES} -o all.csv"));
    for shard in 0..4 {
        place.stdout(&format!("sweep s.yaml {AXES} --shard {shard}/4 -o part{shard}.csv"));
    }
    place.stdout("merge part2.csv part0.csv part3.csv part1.csv -o merged.csv");
    assert_eq!(read(&place, "merged.csv"), read(&place, "all.csv"));
    let gap = "merge part2.csv part0.csv part3.csv -o gap.csv";
    place.refused(gap, 2, &["shard 1/4 is missing", "all shards"]);
    let twice = "merge part0.csv part1.csv part2.csv part0.csv part3.csv -o twice.csv";
    place.refused(twice, 2, &["part0.csv and part0.csv are both shard 0/4", "once"]);
    place.refused("merge s.yaml -o x.csv", 2, &["s.yaml:1", "point"]);
    assert!(!place.path("gap.csv").exists());
}

#[test]
fn tables_that_are_no_whole_shards_of_one_sweep_are_refused_by_name() {
    let place = placed();
    let axes = "--set workload.batch=1,2,3,4,5";
    for shard in 0..2 {
        place.stdout(&format!("sweep s.yaml {axes} --shard {shard}/2 -o part{shard}.csv"));
    }
    let merge = "merge part0.csv part1.csv -o all.csv";
    let whole = read(&place, "part1.csv");
    // The last shard is missing, which no gap between the other points shows.
    place.refused("merge part0.csv -o all.csv", 2, &["shard 1/2 is missing"]);
    // The table is of another sweep with the same columns.
    place.stdout("sweep s.yaml --set workload.batch=1,2,3,4,6 --shard 1/2 -o part1.csv");
    place.refused(merge, 2, &["part1.csv is of another sweep than part0.csv"]);
    place.stdout(&format!("sweep s.yaml {axes} --shard 1/3 -o part1.csv"));
    place.refused(merge, 2, &["part1.csv is one of 3 shards and part0.csv one of 2"]);
    // The table is cut within a line, and between two lines.
    place.stdout(&format!("sweep s.yaml {axes} --shard 1/2 -o part1.csv"));
    assert_eq!(read(&place, "part1.csv"), whole);
    for (bytes, words) in
        [(whole.len() - 3, "no end"), (whole.trim_end().rfind('\n').expect("rows") + 1, "1 rows of 2")]
    {
        fs::write(place.path("part1.csv"), &whole[..bytes]).expect("written");
        place.refused(merge, 2, &["part1.csv", words, "cut short"]);
    }
    fs::write(place.path("part1.csv"), &whole).expect("written");
    fs::remove_file(place.path("part1.csv.stamp")).expect("it is there");
    place.refused(merge, 2, &["part1.csv.stamp", "--shard"]);
    fs::write(place.path("part1.csv.stamp"), "{}").expect("written");
    place.refused(merge, 2, &["part1.csv.stamp", "sweep"]);
    assert!(!place.path("all.csv").exists());
}

#[test]
fn a_whole_table_that_was_cut_or_changed_is_refused_by_name() {
    let place = placed();
    place.stdout("sweep s.yaml --set workload.batch=1,2,3 -o all.csv");
    place.stdout("sweep s.yaml --set workload.batch=1,2,3 -o all.parquet");
    for shard in 0..2 {
        place
            .stdout(&format!("sweep s.yaml --set workload.batch=1,2,3 --shard {shard}/2 -o part{shard}.csv"));
    }
    place.stdout("merge part0.csv part1.csv -o merged.csv");
    assert_eq!(read(&place, "merged.csv.stamp"), read(&place, "all.csv.stamp"));
    for name in ["all.csv", "all.parquet", "merged.csv"] {
        let (report, path) = (format!("report {name} -o page.html"), place.path(name));
        place.stdout(&report);
        let whole = fs::read(&path).expect("a table");
        for at in (0..whole.len()).step_by(whole.len() / 4) {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&path, changed).expect("written");
            place.refused(&report, 2, &[name]);
        }
        let last = whole.iter().rposition(|byte| byte.is_ascii_digit()).expect("a digit");
        let mut changed = whole.clone();
        changed[last] = if changed[last] == b'7' { b'8' } else { b'7' };
        fs::write(&path, changed).expect("written");
        place.refused(&report, 2, &[name, "changed since", &format!("{name}.stamp")]);
        fs::write(&path, &whole).expect("written");
    }
    let whole = read(&place, "all.csv");
    let cut = &whole[..=whole.trim_end().rfind('\n').expect("rows")];
    fs::write(place.path("all.csv"), cut).expect("written");
    place.refused("report all.csv -o page.html", 2, &["all.csv has 2 rows of 3", "cut short"]);
    place.refused("merge all.csv -o again.csv", 2, &["all.csv has 2 rows of 3", "cut short"]);
    // Whoever cuts it on purpose has a table of their own, and its page says that nobody knows.
    let unknown = "There is no stamp beside this table";
    fs::write(place.path("all.csv"), &whole).expect("written");
    for (name, kept) in [("all.csv", true), ("all.parquet", true), ("all.csv", false), ("all.parquet", false)]
    {
        if !kept {
            fs::remove_file(place.path(&format!("{name}.stamp"))).expect("it is there");
        }
        place.stdout(&format!("report {name} -o page.html"));
        assert_eq!(read(&place, "page.html").contains(unknown), !kept, "{name}");
    }
}

#[test]
fn a_sweep_that_is_killed_again_and_again_ends_as_one_that_is_not() {
    let place = placed();
    let axes = "--set workload.batch=1..40 --set workload.prompt_tokens=32,64,96";
    place.stdout(&format!("sweep s.yaml {axes} -o whole.csv"));
    let journal = place.path("killed.csv.journal");
    let mut before = 0;
    for _ in 0..5 {
        // Each run goes on until it has come further than the one before.
        let arguments = format!("sweep s.yaml {axes} --resume -o killed.csv");
        killed_at(&place, &arguments, "killed.csv.journal", before + 4);
        before = lines(&place, "killed.csv.journal").max(before);
    }
    assert!(before >= 20, "{before} lines");
    // The part of a line that a kill leaves is not a row.
    let mut text = fs::read(&journal).expect("a journal");
    text.extend_from_slice(b"119 119,40,96,ok,,torn");
    fs::write(&journal, text).expect("written");
    place.refused(&format!("sweep s.yaml {axes} -o killed.csv"), 2, &["killed.csv.journal", "--resume"]);
    place.refused(&format!("sweep s.yaml {AXES} --resume -o killed.csv"), 2, &["another sweep"]);
    let printed = place.stdout(&format!("--json sweep s.yaml {axes} --resume -o killed.csv"));
    let counts: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    let count = |key: &str| counts[key].as_u64().expect("a count");
    // A line says which sweep it is, and each run has one that says which process it was.
    assert!(count("finished_before") >= 20 - 1 - 5, "{printed}");
    assert_eq!(count("ok") + count("finished_before"), 120);
    assert_eq!(read(&place, "killed.csv"), read(&place, "whole.csv"));
}

#[test]
fn a_point_that_fails_is_a_row_and_not_the_end() {
    let place = placed();
    let printed =
        place.stdout("sweep s.yaml --set workload.batch=1,0,4 --set model=llama-3.2-1b,nobody -o out.csv");
    assert!(printed.contains("2 ok") && printed.contains("4 invalid"), "{printed}");
    let table = read(&place, "out.csv");
    assert_eq!(column(&table, "status"), ["ok", "invalid", "invalid", "invalid", "ok", "invalid"]);
    assert!(column(&table, "message")[2].contains("from 1"), "{table}");
    let tight = "sweep s.yaml --set model=llama-3.1-70b --set workload.batch=1,1000000 --set slo={ttft:1us} -o tight.csv";
    place.stdout(&tight.replace("{ttft:1us}", r#"{"ttft":"1us"}"#));
    assert!(column(&read(&place, "tight.csv"), "status").iter().all(|status| status != "ok"));
    // Where nothing was answered, the command says so, and the table is there all the same.
    let none = place.fulcrum("sweep s.yaml --set workload.batch=0,-1 -o none.csv");
    let told = String::from_utf8_lossy(&none.stderr);
    assert!(none.status.code() == Some(2) && told.contains("none of the 2 points"), "{told}");
    assert_eq!(column(&read(&place, "none.csv"), "status"), ["invalid", "invalid"]);
}

#[test]
fn a_sweep_with_search_is_as_good_as_plans_and_says_when_it_is_not() {
    let place = placed();
    let asked =
        "sweep s.yaml --set model=qwen3-30b-a3b --set machine=rtx4090-desktop --set workload.batch=1,4";
    let quick = place.stdout(&format!("{asked} -o quick.csv"));
    let searched = place.stdout(&format!("{asked} --search -o searched.csv"));
    assert!(quick.contains("without the last search of `fulcrum plan`"), "{quick}");
    assert!(!searched.contains("without the last search"), "{searched}");
    let times = |file: &str| -> Vec<f64> {
        column(&read(&place, file), "e2el_s_mean").iter().map(|time| time.parse().expect("a time")).collect()
    };
    let (quick, searched) = (times("quick.csv"), times("searched.csv"));
    for (at, batch) in [1, 4].into_iter().enumerate() {
        let set =
            format!("--set model=qwen3-30b-a3b --set machine=rtx4090-desktop --set workload.batch={batch}");
        let plan: serde_json::Value =
            serde_json::from_str(&place.stdout(&format!("--json plan s.yaml {set} -o p.yaml")))
                .expect("JSON");
        let [ttft, tpot] = ["ttft", "tpot"].map(|name| {
            let told = plan["predicted"]["simulated"][name].as_str().expect("a time");
            told.parse::<Seconds>().expect("a time").get()
        });
        assert!((searched[at] / (ttft + 7.0 * tpot) - 1.0).abs() < 1e-6, "{plan}");
        assert!(searched[at] <= quick[at] * 1.0001, "{searched:?} {quick:?}");
    }
}

#[test]
fn a_served_day_is_a_point_too() {
    let place = placed();
    let load = r#"workload={"concurrency":4,"requests":20,"prompt_tokens":64,"output_tokens":8}"#;
    place.stdout(&format!("sweep s.yaml --set {load} --set engine=vllm,sglang -o day.csv"));
    let table = read(&place, "day.csv");
    assert_eq!(column(&table, "requests_completed"), ["20", "20"]);
    assert_eq!(column(&table, "plan")[0].split(',').next(), Some("all on gpu"));
    let day = place.stdout(&format!("--json sim s.yaml --set {load} --set engine=sglang"));
    let day: serde_json::Value = serde_json::from_str(&day).expect("JSON");
    assert_eq!(column(&table, "ttft_s_p99")[1], day["ttft_s"]["p99"].to_string());
}

#[test]
fn tables_and_zipped_keys_are_axes() {
    let place = placed();
    let rows = "workload.batch,dtype\n2,\"{weights: int8, kv: bf16}\"\n4,\n";
    fs::write(place.path("rows.csv"), rows).expect("written");
    place.stdout("sweep s.yaml --table rows.csv --set workload.prompt_tokens=32,64 -o out.csv");
    let table = read(&place, "out.csv");
    assert_eq!(column(&table, "workload.batch"), ["2", "2", "4", "4"]);
    assert_eq!(column(&table, "workload.prompt_tokens"), ["32", "64", "32", "64"]);
    let plans = column(&table, "plan");
    assert!(plans[0].contains("int8") && !plans[2].contains("int8"), "{plans:?}");
    let zip = "sweep s.yaml --set workload.batch=1,2 --set workload.prompt_tokens=32,64";
    place.stdout(&format!("{zip} --zip workload.batch,workload.prompt_tokens -o zip.csv"));
    assert_eq!(column(&read(&place, "zip.csv"), "workload.prompt_tokens"), ["32", "64"]);
    place.refused(
        &format!("{zip},96 --zip workload.batch,workload.prompt_tokens -o x.csv"),
        2,
        &["2 values", "3"],
    );
    place.refused(&format!("{zip} --zip workload.batch,model -o x.csv"), 2, &["model is not set"]);
    fs::write(place.path("rows.csv"), "workload.batch,model\n2\n").expect("written");
    place.refused("sweep s.yaml --table rows.csv -o x.csv", 2, &["rows.csv:2", "2 columns"]);
}

#[test]
fn errors_of_a_sweep_come_before_it_begins() {
    let place = placed();
    place.refused("sweep s.yaml --set workload.btch=1,2 -o x.csv", 2, &["workload.btch", "batch"]);
    place.refused("sweep s.yaml --set workload.batch=1,big -o x.csv", 2, &["one kind"]);
    place.refused("sweep s.yaml --set workload.batch=8..1 -o x.csv", 2, &["8..1", "goes nowhere"]);
    place.refused("sweep s.yaml --set workload.batch=1..8*1 -o x.csv", 2, &["goes nowhere"]);
    let many = "--set workload.batch=1..1000000 --set workload.prompt_tokens=1..1000000";
    place.refused(&format!("sweep s.yaml {many} -o x.csv"), 2, &["1000000000000", "at most"]);
    place.refused("sweep s.yaml --shard 4/4 -o x.csv", 2, &["4/4", "i/n"]);
    place.refused("sweep s.yaml -o nowhere/x.csv", 1, &["nowhere/x.csv.journal"]);
    assert!(!place.path("x.csv").exists() && !place.path("x.csv.journal").exists());
}

#[test]
fn cached_answers_are_not_computed_again_and_the_rows_are_the_same() {
    let place = placed();
    place.stdout(&format!("sweep s.yaml {AXES} -o plain.csv"));
    let cached = |out: &str| place.stdout(&format!("sweep s.yaml {AXES} --cache kept -o {out}"));
    cached("first.csv");
    let answers = || fs::read_to_string(place.path("kept/answers")).expect("a cache");
    let first = answers();
    assert_eq!(first.lines().filter(|line| !line.is_empty()).count(), 18);
    cached("second.csv");
    assert_eq!(answers(), first, "nothing was computed again");
    for table in ["first.csv", "second.csv"] {
        assert_eq!(read(&place, table), read(&place, "plain.csv"));
    }
    // A line that is torn or changed is no answer, and its point is computed again.
    let torn = first.replacen(",planned", ",plonned", 1).replacen("all on gpu", "all on gnu", 1);
    fs::write(place.path("kept/answers"), &torn[..torn.len() - 40]).expect("written");
    cached("third.csv");
    assert_eq!(read(&place, "third.csv"), read(&place, "plain.csv"));
    fs::write(place.path("file"), "").expect("written");
    place.refused("sweep s.yaml --cache file -o x.csv", 1, &["--cache file"]);
}

#[test]
fn a_file_whose_content_changes_makes_another_sweep_and_other_answers() {
    let place = placed();
    let machine = |note: &str| {
        format!(
            "name: mine\nnote: {note}\nparts: {{cpu: xeon-8480p, dram: {{capacity: {{value: 512 GB, source: {{estimated: {{reason: x}}}}}}}}, gpu: gpu.yaml, link: pcie5-x16}}\n"
        )
    };
    let gpu = |bandwidth: &str| {
        format!(
            "gpu: small\ncapacity: {{value: 24 GB, source: &x {{estimated: {{reason: x}}}}}}\nbandwidth: {{value: {bandwidth}, source: *x}}\npeak: {{bf16: {{value: 100 TFLOP/s, source: *x}}}}\nlaunch: {{value: 4 us, source: *x}}\nsync: {{value: 6 us, source: *x}}\n"
        )
    };
    fs::write(place.path("mine.yaml"), machine("one")).expect("written");
    fs::write(place.path("gpu.yaml"), gpu("300 GB/s")).expect("written");
    let sweep =
        "sweep s.yaml --set machine=mine.yaml --set workload.batch=1..4 --cache kept --resume -o out.csv";
    place.stdout(sweep);
    let slow = read(&place, "out.csv");
    // When a part of the machine has changed, an older journal is that of another sweep.
    let longer = "sweep s.yaml --set machine=mine.yaml --set workload.batch=1..4000 --resume -o out.csv";
    killed_at(&place, longer, "out.csv.journal", 2);
    fs::write(place.path("gpu.yaml"), gpu("600 GB/s")).expect("written");
    place.refused(longer, 2, &["another sweep", "files"]);
    fs::remove_file(place.path("out.csv.journal")).expect("removed");
    place.stdout(sweep);
    let fast = read(&place, "out.csv");
    let times = |table: &str| {
        column(table, "tpot_s_mean")
            .iter()
            .map(|cell| cell.parse::<f64>().expect("a number"))
            .collect::<Vec<_>>()
    };
    assert!(times(&fast).iter().zip(times(&slow)).all(|(fast, slow)| *fast < slow), "{fast}{slow}");
    assert_ne!(column(&fast, "inputs"), column(&slow, "inputs"));
}

#[test]
fn a_sweep_with_a_cache_that_is_killed_again_and_again_ends_as_one_that_is_not() {
    let place = placed();
    let axes = "--set workload.batch=1..40 --set workload.prompt_tokens=32,64,96";
    place.stdout(&format!("sweep s.yaml {axes} -o whole.csv"));
    let answers = place.path("kept/answers");
    for _ in 0..5 {
        let _ = fs::remove_file(place.path("killed.csv.journal"));
        let known = lines(&place, "kept/answers");
        killed_at(
            &place,
            &format!("sweep s.yaml {axes} --cache kept -o killed.csv"),
            "kept/answers",
            known + 4,
        );
        // A kill can leave a part of a line.
        let mut text = fs::read(&answers).expect("a cache");
        text.extend_from_slice(b"\n0123456789abcdef0123456789abcdef 0011");
        fs::write(&answers, text).expect("written");
    }
    let _ = fs::remove_file(place.path("killed.csv.journal"));
    place.stdout(&format!("sweep s.yaml {axes} --cache kept -o killed.csv"));
    assert_eq!(read(&place, "killed.csv"), read(&place, "whole.csv"));
}

#[test]
fn a_full_disk_ends_a_sweep_with_its_rows_safe() {
    let place = placed();
    let bytes = |name: &str| fs::read(place.path(name)).expect("a table");
    // The journal of two rows fits and their Parquet table does not; the journal of 24 rows does
    // not fit either.
    for (batches, end, rows_fit) in
        [("1..24", "csv", false), ("1..24", "parquet", false), ("1,2", "parquet", true)]
    {
        let (full, whole) = (format!("full.{end}"), format!("whole.{end}"));
        let axes = format!("--set workload.batch={batches}");
        place.stdout(&format!("sweep s.yaml {axes} -o {whole}"));
        // Files may have 4 blocks of 512 bytes (of 1024 in some shells).
        let command = format!(
            "ulimit -f 4; trap '' XFSZ; exec {} sweep s.yaml {axes} -o {full}",
            env!("CARGO_BIN_EXE_fulcrum")
        );
        let ended = Command::new("sh").args(["-c", &command]).current_dir(place.path(".")).output();
        let ended = ended.expect("it starts");
        let message = String::from_utf8(ended.stderr).expect("text");
        assert_eq!(ended.status.code(), Some(1), "{message}");
        assert_eq!(message.contains(&format!("{full} cannot be written")), rows_fit, "{message}");
        assert!(message.contains(&format!("{full}.journal")) && message.contains("--resume"), "{message}");
        assert!(!place.path(&full).exists());
        let printed = place.stdout(&format!("--json sweep s.yaml {axes} --resume -o {full}"));
        let counts: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
        let before = counts["finished_before"].as_u64().expect("a count");
        assert!(if rows_fit { before == 2 } else { (1..24).contains(&before) }, "{printed}");
        assert_eq!(bytes(&full), bytes(&whole));
        fs::remove_file(place.path(&full)).expect("removed");
    }
}

#[test]
fn parquet_has_the_rows_of_the_csv() {
    let place = placed();
    place.stdout(&format!("sweep s.yaml {AXES} --set engine=vllm,sglang -o all.parquet"));
    let bytes = fs::read(place.path("all.parquet")).expect("a table");
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    let text = String::from_utf8_lossy(&bytes);
    for name in ["workload.prompt_tokens", "engine", "status", "tpot_s_mean", "inputs"] {
        assert!(text.contains(name), "{name}");
    }
    place.refused(&format!("sweep s.yaml {AXES} --shard 0/2 -o all.parquet"), 2, &["all.parquet", "CSV"]);
    place.refused("sweep s.yaml -o .", 2, &["folder"]);
}

#[test]
fn a_search_finds_the_largest_that_a_grid_shows() {
    let place = placed();
    let limit = r#"--set slo={"tpot":"1.8ms"}"#;
    place.stdout(&format!(
        "sweep s.yaml {limit} --set workload.batch=1..64 --set workload.prompt_tokens=64,1024 -o grid.csv"
    ));
    let grid = read(&place, "grid.csv");
    place.stdout(&format!(
        "sweep s.yaml {limit} --set workload.prompt_tokens=64,1024 --find workload.batch=1..64 -o found.csv"
    ));
    let found = read(&place, "found.csv");
    for (row, prompt) in ["64", "1024"].into_iter().enumerate() {
        let (batches, prompts, statuses) = (
            column(&grid, "workload.batch"),
            column(&grid, "workload.prompt_tokens"),
            column(&grid, "status"),
        );
        let kept = (0..batches.len()).filter(|&at| prompts[at] == prompt && statuses[at] == "ok");
        let most = kept.map(|at| batches[at].parse::<u64>().expect("a number")).max().expect("one is kept");
        assert_eq!(column(&found, "workload.batch")[row], most.to_string(), "{found}");
        let beyond = if most == 64 { String::new() } else { (most + 1).to_string() };
        assert_eq!(column(&found, "beyond")[row], beyond);
    }
    // The row with the least of a column is shown.
    let best = place.stdout(&format!("--json sweep s.yaml {AXES} --least tpot_s_mean -o least.csv"));
    let best: serde_json::Value = serde_json::from_str(&best).expect("JSON");
    let times = column(&read(&place, "least.csv"), "tpot_s_mean");
    let least = times.iter().map(|cell| cell.parse::<f64>().expect("a number")).fold(f64::INFINITY, f64::min);
    assert_eq!(best["best"]["tpot_s_mean"].as_f64(), Some(least));
    place.refused("sweep s.yaml --least plan -o x.csv", 2, &["plan", "ttft_s_mean"]);
    let none = r#"sweep s.yaml --set slo={"tpot":"1ns"} --find workload.batch=1..64 -o none.csv"#;
    place.stdout(none);
    assert_eq!(column(&read(&place, "none.csv"), "status"), ["infeasible"]);
    let free = place.stdout("sweep s.yaml --find workload.batch=1..4 -o free.csv");
    let told = "workload.batch=4: the end of the range; no slo is set, so nothing stopped it";
    assert!(free.contains(told), "{free}");
    for name in ["x.html", "x.txt"] {
        let words = [name, "a name that ends in .csv or .parquet is wanted"];
        place.refused(&format!("sweep s.yaml {AXES} -o {name}"), 2, &words);
    }
    place.refused("report none.csv -o x.pdf", 2, &["x.pdf", "a name that ends in .html or .htm is wanted"]);
    place.refused("sweep s.yaml --find workload.batch=8..1 -o x.csv", 2, &["8..1"]);
    place.refused(
        "sweep s.yaml --find workload.batch=1..8 --set workload.batch=1,2 -o x.csv",
        2,
        &["set already"],
    );
    place.refused("sweep s.yaml --find workload.btch=1..8 -o x.csv", 2, &["workload.btch"]);
}

/// A sweep of 40 points that was killed after a few of its rows.
fn stopped(place: &Place) -> &'static str {
    let sweep = "sweep s.yaml --set workload.batch=1..40 -o out.csv";
    place.stdout("sweep s.yaml --set workload.batch=1..40 -o whole.csv");
    killed_at(place, sweep, "out.csv.journal", 8);
    assert!(place.path("out.csv.journal").exists(), "the sweep ended before it was killed");
    sweep
}

#[test]
fn a_second_sweep_of_the_same_table_is_told_who_writes_it() {
    let place = placed();
    let sweep = "sweep s.yaml --set workload.batch=1..20000 -o out.csv";
    let mut first = place.command(sweep).stderr(std::process::Stdio::null()).spawn().expect("it starts");
    while lines(&place, "out.csv.journal") < 4 {
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(first.try_wait().expect("asked").is_none(), "it still works");
    }
    let holder = format!("process {}", first.id());
    for second in [sweep.to_owned(), format!("{sweep} --resume"), sweep.replace("out.csv", "./out.csv")] {
        let output = place.fulcrum(&second);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{message}");
        for word in [&*holder, "out.csv.journal", "another -o"] {
            assert!(message.contains(word), "{word}: {message}");
        }
    }
    first.kill().expect("killed");
    first.wait().expect("gone");
    // Nobody holds it now.
    place.refused(sweep, 2, &["--resume"]);
}

#[test]
fn no_changed_bit_of_a_journal_or_a_shard_is_published() {
    let place = placed();
    let sweep = stopped(&place);
    let (journal, whole) = (place.path("out.csv.journal"), read(&place, "whole.csv"));
    let bytes = fs::read(&journal).expect("a journal");
    let first_line = bytes.iter().position(|&byte| byte == b'\n').expect("a line") + 1;
    // Bits spread over the rows, each in a run of its own.
    for turn in 0..12 {
        let bit = 8 * first_line + turn * (8 * (bytes.len() - first_line)) / 12;
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        fs::write(&journal, changed).expect("written");
        let (_, err) = place.outputs(&format!("{sweep} --resume"));
        assert_eq!(read(&place, "out.csv"), whole, "bit {bit}");
        assert!(err.contains("have changed") || turn > 10, "bit {bit}: {err}");
    }
    for shard in 0..2 {
        place.stdout(&format!("sweep s.yaml --set workload.batch=1..40 --shard {shard}/2 -o {shard}.csv"));
    }
    place.stdout("merge 0.csv 1.csv -o merged.csv");
    assert_eq!(read(&place, "merged.csv"), whole);
    let bytes = fs::read(place.path("1.csv")).expect("a table");
    for turn in 0..40 {
        let mut changed = bytes.clone();
        let bit = turn * (8 * bytes.len() - 1) / 39;
        changed[bit / 8] ^= 1 << (bit % 8);
        fs::write(place.path("1.csv"), changed).expect("written");
        let output = place.fulcrum("merge 0.csv 1.csv -o wrong.csv");
        assert_eq!(output.status.code(), Some(2), "bit {bit}");
        assert!(!place.path("wrong.csv").exists());
    }
}
