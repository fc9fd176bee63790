//! What is read: files and standard input; never a device, and never a file that is written.

use crate::place::Place;
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

const SCENARIO: &[u8] = b"machine: example-loopback
model: fulcrum-tiny
workload: {batch: 1, prompt_tokens: 8, output_tokens: 4}
";

fn placed() -> Place {
    Place::with(&[("s.yaml", SCENARIO)])
}

/// Runs `fulcrum ARGUMENTS` with this standard input.
fn fed(place: &Place, arguments: &str, input: &[u8]) -> Output {
    let mut child = place
        .command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("piped").write_all(input).expect("read");
    child.wait_with_output().expect("it ends")
}

#[test]
fn a_dash_is_standard_input_and_standard_output() {
    let place = placed();
    let plan = place.stdout("plan s.yaml");
    let wanted = place.stdout("sim s.yaml");
    for name in ["-", "/dev/stdin"] {
        let planned = fed(&place, &format!("plan {name}"), SCENARIO);
        assert_eq!(String::from_utf8_lossy(&planned.stdout), plan, "{name}");
        for text in [SCENARIO, plan.as_bytes()] {
            let simulated = fed(&place, &format!("sim {name}"), text);
            assert_eq!(String::from_utf8_lossy(&simulated.stdout), wanted, "{name}");
        }
    }
    // What is told beside a file that is standard output goes to standard error.
    for name in ["-", "/dev/stdout"] {
        let (out, err) = place.outputs(&format!("plan s.yaml -o {name}"));
        assert_eq!((&out, err.contains("TPOT")), (&plan, true), "{name}: {err}");
    }
    // Relative paths in what comes by standard input start at the current folder.
    place.stdout("model init fulcrum-tiny -o model");
    let own = String::from_utf8_lossy(SCENARIO).replace("fulcrum-tiny", "model");
    assert!(fed(&place, "plan /dev/stdin", own.as_bytes()).status.success());
    fs::write(place.path("plan.yaml"), plan).expect("written");
    let page = fed(&place, "report - -o page.html", &fs::read(place.path("plan.yaml")).expect("a plan"));
    assert!(page.status.success(), "{}", String::from_utf8_lossy(&page.stderr));
}

#[test]
fn a_device_or_a_pipe_that_nobody_writes_to_is_refused() {
    let place = placed();
    let made = Command::new("mkfifo").arg(place.path("pipe")).status().expect("mkfifo");
    assert!(made.success());
    for (name, words) in [("/dev/zero", "a device"), ("pipe", "a pipe"), (".", "a folder")] {
        for command in ["plan", "sim", "explain", "report", "sweep -o t.csv", "predict h100-sxm --ops"] {
            let output = place.fulcrum(&format!("{command} {name}"));
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{command} {name}: {message}");
            assert!(message.contains(words) && message.contains(name), "{command} {name}: {message}");
        }
    }
    // A shell's pipe has somebody who writes to it.
    let command = format!("'{}' sim <(cat s.yaml)", env!("CARGO_BIN_EXE_fulcrum"));
    let output = Command::new("bash").args(["-c", &command]).current_dir(place.path(".")).output();
    assert!(output.expect("a shell").status.success());
}

#[test]
fn no_command_overwrites_what_it_reads_or_writes_a_file_twice() {
    let place = placed();
    place.stdout("plan s.yaml -o plan.yaml");
    fs::create_dir(place.path("folder")).expect("a folder");
    std::os::unix::fs::symlink(place.path("plan.yaml"), place.path("link.yaml")).expect("a link");
    let same = "is the same file";
    for arguments in [
        "plan s.yaml -o s.yaml",
        "plan s.yaml -o folder/../s.yaml",
        "plan link.yaml -o plan.yaml",
        "explain plan.yaml --dot plan.yaml",
        "sim plan.yaml --trace link.yaml",
        "sim s.yaml --trace t.json --perfetto t.json",
        "sim s.yaml --trace t.json --perfetto ./t.json",
        "report plan.yaml -o plan.yaml",
        "sweep s.yaml -o s.yaml",
        "merge plan.yaml s.yaml -o s.yaml",
        "plan s.yaml --set machine=plan.yaml -o plan.yaml",
    ] {
        place.refused(arguments, 2, &[same, "give it another name"]);
    }
    place.stdout("plan s.yaml -o plan.yaml");
}

/// A scenario whose files are all its own, and a batch of the same machine and model.
const FILES: &str = "machine: m.yaml\nmodel: model\nengine: {file: e.yaml}\nslo: {ttft: 1 s}\ncapacity: {machines: [m.yaml]}\n\
                     workload: {trace: requests.csv}\n";
const BATCH: &str =
    "machine: m.yaml\nmodel: model\nworkload: {batch: 1, prompt_tokens: 8, output_tokens: 4}\n";

/// A folder with these two, the files that they name, and a plan.
fn with_own_files() -> Place {
    let place = Place::with(&[]);
    let (_, machine) = hwprofiles::shipped().find(|(name, _)| *name == "example-loopback").expect("shipped");
    for (name, text) in [
        ("m.yaml", machine),
        ("s.yaml", FILES),
        ("b.yaml", BATCH),
        ("e.yaml", "engine: mine\n"),
        ("requests.csv", "arrival_s,prompt_tokens,output_tokens\n0,8,4\n"),
        ("this.yaml", "host: mine\n"),
    ] {
        fs::write(place.path(name), text).expect("written");
    }
    place.stdout("model init fulcrum-tiny -o model");
    place.stdout("plan b.yaml -o plan.yaml");
    place
}

#[test]
fn no_command_overwrites_a_file_that_its_input_names() {
    let place = with_own_files();
    fs::hard_link(place.path("m.yaml"), place.path("hard.yaml")).expect("a link");
    std::os::unix::fs::symlink("model/model.safetensors", place.path("weights")).expect("a link");
    for arguments in [
        "plan b.yaml -o m.yaml",
        "plan b.yaml -o model/../m.yaml",
        "plan b.yaml -o hard.yaml",
        "plan b.yaml -o model/config.json",
        "plan b.yaml -o weights",
        "explain plan.yaml --dot m.yaml",
        "sim plan.yaml --trace model/tokenizer.json",
        "sim s.yaml --requests requests.csv",
        "sim s.yaml --series e.yaml",
        "sweep s.yaml --set workload.requests=1,2 -o requests.csv",
        "capacity s.yaml -o m.yaml",
        "report plan.yaml -o m.yaml",
        "run plan.yaml --model-dir model --prompt x --trace model/config.json",
        "validate plan.yaml --model-dir model -o m.yaml",
        "validate plan.yaml --model-dir model --html this.yaml",
        "predict m.yaml --ops requests.csv -o m.yaml",
        "bench --check -o this.yaml",
    ] {
        place.refused(arguments, 2, &["is the same file, which is read: give it another name"]);
    }
    // Names that the command itself chooses, in a folder.
    fs::copy(place.path("plan.yaml"), place.path("nearest.yaml")).expect("copied");
    place.refused("export nearest.yaml --to llama.cpp -o .", 2, &["nearest.yaml", "which is read"]);
    fs::copy(place.path("s.yaml"), place.path("answers")).expect("copied");
    place.refused(
        "sweep answers --set workload.requests=1,2 --cache . -o t.csv",
        2,
        &["answers", "which is read"],
    );
    // What is kept in a model's folder and not read may be replaced.
    place.stdout("plan b.yaml -o model/plan.yaml");
    place.stdout("plan b.yaml -o model/plan.yaml");
}

#[test]
fn no_command_overwrites_a_file_that_a_scenario_or_a_plan_from_a_pipe_names() {
    let place = with_own_files();
    for (arguments, text) in [
        ("plan - -o m.yaml", BATCH),
        ("plan /dev/stdin -o model/config.json", BATCH),
        ("sim - --requests requests.csv", FILES),
        ("sweep - --set workload.requests=1,2 -o e.yaml", FILES),
        ("explain - --dot m.yaml", &fs::read_to_string(place.path("plan.yaml")).expect("a plan")),
    ] {
        let output = fed(&place, arguments, text.as_bytes());
        let message = String::from_utf8_lossy(&output.stderr);
        let wanted = "is the same file, which is read: give it another name";
        assert!(output.status.code() == Some(2) && message.contains(wanted), "{arguments}: {message}");
    }
    // One that names itself is read once.
    let output = fed(&place, "plan - -o planned.yaml", b"machine: /dev/stdin\nmodel: m\n");
    assert_eq!(output.status.code(), Some(2));
    // A file that is standard input is itself read.
    let mut command = place.command("plan - -o b.yaml");
    command.stdin(fs::File::open(place.path("b.yaml")).expect("written"));
    let message = String::from_utf8(command.output().expect("it starts").stderr).expect("text");
    assert!(message.contains("is the same file, which is read"), "{message}");
    let planned = fed(&place, "plan - -o planned.yaml", BATCH.as_bytes());
    assert!(planned.status.success(), "{}", String::from_utf8_lossy(&planned.stderr));
    assert_eq!(fs::read(place.path("planned.yaml")).ok(), fs::read(place.path("plan.yaml")).ok());
}
