//! What a file holds, as a digest.

use hwprofiles::hexadecimal;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
#[cfg(feature = "run")]
use std::time::UNIX_EPOCH;

/// Files of weights up to this size are read whole, like all others.
const WHOLE: u64 = 256 << 20;
/// The first bytes of larger ones, which hold their description: names, shapes, the vocabulary.
const HEADER: u64 = 32 << 20;
/// Blocks at even distances behind the header; the last one ends the file.
const BLOCKS: u64 = 256;
/// The size of a block.
const BLOCK: u64 = 64 << 10;

/// The SHA-256 of a file; `None` where it cannot be read.
///
/// Of weights of more than 256 MiB it covers the length, the first 32 MiB and 256 blocks at even
/// distances to the end: to read hundreds of gigabytes takes longer than the sweep. Whatever makes
/// other weights of a model changes nearly every block.
pub(crate) fn content_digest(path: &Path) -> Option<String> {
    digest(path).ok().map(|hasher| hexadecimal(&hasher.finalize()))
}

/// The same for a program that computes with weights on this machine. Of weights of more than 256
/// MiB it also covers the time of the last change, which an edit between two blocks changes. Copies
/// on two machines have different times, so a sweep, which reads descriptions only, leaves it out.
#[cfg(feature = "run")]
pub(crate) fn weights_digest(path: &Path) -> io::Result<String> {
    let mut hasher = digest(path)?;
    let found = path.metadata()?;
    if holds_weights(path) && found.len() > WHOLE {
        let changed = found.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        hasher.update(changed.as_nanos().to_le_bytes());
    }
    Ok(hexadecimal(&hasher.finalize()))
}

fn digest(path: &Path) -> io::Result<Sha256> {
    let mut file = hwprofiles::open_input(path)?;
    let length = file.metadata()?.len();
    let mut hasher = Sha256::new();
    hasher.update(length.to_le_bytes());
    if !holds_weights(path) || length <= WHOLE {
        add(&mut hasher, &mut file, u64::MAX)?;
        return Ok(hasher);
    }
    add(&mut hasher, &mut file, HEADER)?;
    let last = length - HEADER - BLOCK;
    for block in 0..BLOCKS {
        let start = u128::from(last) * u128::from(block) / u128::from(BLOCKS - 1);
        file.seek(SeekFrom::Start(HEADER + start as u64))?;
        add(&mut hasher, &mut file, BLOCK)?;
    }
    Ok(hasher)
}

/// Adds the next bytes of `file`, at most `most`.
fn add(hasher: &mut Sha256, file: &mut File, most: u64) -> io::Result<()> {
    let (mut file, mut part) = (file.take(most), vec![0; 1 << 16]);
    loop {
        match file.read(&mut part) {
            Ok(0) => return Ok(()),
            Ok(bytes) => hasher.update(&part[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether a file holds weights.
fn holds_weights(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gguf" || extension == "safetensors")
}

#[cfg(all(test, feature = "run"))]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::time::Duration;

    #[test]
    fn a_byte_anywhere_makes_another_digest() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["trace.csv", "small.safetensors"] {
            let path = folder.path().join(name);
            let file = File::create(&path).expect("a file");
            file.set_len((1 << 26) + 1000).expect("room");
            let before = content_digest(&path).expect("read");
            file.write_all_at(b"x", (1 << 26) + 999).expect("written");
            assert_ne!(content_digest(&path).expect("read"), before, "{name}");
        }
    }

    #[test]
    fn large_weights_are_known_by_header_blocks_length_and_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("large.gguf");
        let file = File::create(&path).expect("a file");
        let length = WHOLE + 1000;
        file.set_len(length).expect("room");
        let mut seen = vec![content_digest(&path).expect("read")];
        let middle = HEADER + (length - HEADER - BLOCK) * 100 / (BLOCKS - 1);
        for place in [10, HEADER - 1, middle + 10, length - 1] {
            file.write_all_at(b"x", place).expect("written");
            let now = content_digest(&path).expect("read");
            assert!(!seen.contains(&now), "{place}");
            seen.push(now);
        }
        let (content, weights) = (content_digest(&path), weights_digest(&path).expect("read"));
        let later =
            file.metadata().and_then(|found| found.modified()).expect("a time") + Duration::from_secs(1);
        file.set_modified(later).expect("another time");
        assert_eq!(content_digest(&path), content);
        assert_ne!(weights_digest(&path).expect("read"), weights);
    }
}
