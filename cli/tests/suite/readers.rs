//! Readers of what strangers make, on the seeds of their fuzz targets and on changes of each seed.

#[path = "../../../fuzz/src/lib.rs"]
mod fuzz_readers;

use fuzz_readers::READERS;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

/// Words at which readers have failed before, here or elsewhere.
const WORDS: [&str; 24] = [
    "0",
    "-1",
    "1",
    "1e308",
    "5e-324",
    "nan",
    ".inf",
    "18446744073709551615",
    "9223372036854775808",
    "4294967296",
    "null",
    "true",
    "\"",
    "'",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\n",
    "\\u0000",
    "平",
    "<s>",
];

/// Numbers that look random and are the same each time (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end.max(1) as u64) as usize
    }

    /// A part of `bytes`, most often a short one.
    fn part(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.below(bytes.len() + 1);
        let longest = if self.below(4) == 0 { bytes.len() } else { 8 };
        start..(start + self.below(longest + 1)).min(bytes.len())
    }

    /// A change of `seed`, with parts of `other`.
    fn change(&mut self, seed: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..1 + self.below(4) {
            let part = self.part(&bytes);
            match self.below(6) {
                0 if !part.is_empty() => bytes[part.start] ^= 1 << self.below(8),
                1 => drop(bytes.drain(part)),
                2 => drop(bytes.splice(part, WORDS[self.below(WORDS.len())].bytes())),
                3 => drop(bytes.splice(part, other[self.part(other)].iter().copied())),
                4 => bytes.truncate(part.end),
                _ => {
                    let again = bytes[part.clone()].to_vec();
                    drop(bytes.splice(part.start..part.start, again));
                }
            }
        }
        bytes
    }
}

/// What `read` says of `bytes`; where it panics, a test that fails with what to give it again.
fn read(name: &str, read: fn(&[u8]) -> bool, bytes: &[u8]) -> bool {
    panic::catch_unwind(AssertUnwindSafe(|| read(bytes))).unwrap_or_else(|_| {
        panic!("the reader '{name}' fails at b\"{}\"", bytes.escape_ascii());
    })
}

#[test]
fn no_reader_fails_at_a_seed_or_at_a_change_of_one() {
    let percent = std::env::var("FULCRUM_CASES").map_or(100, |text| text.parse().expect("a whole number"));
    let changes = 2 * percent;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
    let mut refused = Vec::new();
    for (name, reader) in READERS {
        let files = std::fs::read_dir(folder.join(name)).expect("each reader has a folder of seeds");
        let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        files.sort();
        assert!(!files.is_empty(), "'{name}' has no seed");
        let seeds: Vec<_> = files.iter().map(|file| std::fs::read(file).expect("a seed")).collect();
        for (file, seed) in files.iter().zip(&seeds) {
            refused.extend((!read(name, reader, seed)).then(|| file.clone()));
        }
        let mut numbers = Numbers(changes);
        let taken = (0..changes).filter(|_| {
            let [seed, other] = [(); 2].map(|()| &seeds[numbers.below(seeds.len())]);
            read(name, reader, &numbers.change(seed, other))
        });
        let taken = taken.count() as u64;
        assert!(taken < changes, "'{name}' takes every change: it reads nothing");
    }
    assert!(refused.is_empty(), "seeds that are refused: {refused:?}");
}
