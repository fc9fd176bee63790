//! A command that is killed while it works.

use crate::place::Place;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

/// Runs the command and kills it as soon as a file has `least` lines.
pub fn killed_at(place: &Place, arguments: &str, file: &str, least: usize) {
    let mut child = place
        .command(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command starts");
    while lines(place, file) < least && child.try_wait().expect("it is asked").is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("it is killed");
    child.wait().expect("it is gone");
}

/// How many whole lines a file has; 0 where there is no file. A process that is killed while it
/// writes leaves part of a line.
pub fn lines(place: &Place, file: &str) -> usize {
    fs::read(place.path(file)).map_or(0, |bytes| bytes.iter().filter(|&&byte| byte == b'\n').count())
}
