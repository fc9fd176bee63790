//! Rows in the order in which they are finished, so that whatever stops a sweep loses none of them.
//!
//! The first line says which sweep it is; each further one is a point's position, a blank and its row. A line without its end
//! is one that was not finished.

use crate::exit::{Failure, Outcome, Sort};
use anyhow::{Context, anyhow};
use hwprofiles::Draft;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A sweep's journal.
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Where the next line goes.
    end: u64,
    /// By position: where the row stands, and its bytes; zero bytes where it is not finished.
    rows: Vec<(u64, u32)>,
}

impl Journal {
    /// The journal beside `out` of the sweep `fingerprint` of so many points, and which of them are finished.
    ///
    /// # Errors
    /// One that is there without `resume`, of another sweep, or a path that cannot be written.
    pub fn open(out: &Path, fingerprint: &str, points: u64, resume: bool) -> Outcome<(Self, Vec<bool>)> {
        let mut name = OsString::from(out);
        name.push(".journal");
        let path = PathBuf::from(name);
        let shown = path.display().to_string();
        if path.exists() && !resume {
            return Err(Failure::Input(anyhow!(
                "{shown} is of a sweep that did not end: --resume goes on with it, or remove it to begin anew"
            )));
        }
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = open.with_context(|| format!("{shown} cannot be written")).or_failed()?;
        let mut journal = Self { path, file, end: 0, rows: vec![(0, 0); points as usize] };
        let title = format!("sweep {fingerprint}");
        match journal.read(&title).or_failed()? {
            true => {}
            false => {
                return Err(Failure::Input(anyhow!(
                    "{shown} is of another sweep (another scenario, other lists, another shard or another version): remove \
                     it to begin anew"
                )));
            }
        }
        let done = journal.rows.iter().map(|(_, bytes)| *bytes > 0).collect();
        Ok((journal, done))
    }

    /// Reads what is there, or begins; `false` where it is of another sweep.
    fn read(&mut self, title: &str) -> anyhow::Result<bool> {
        let mut reader = BufReader::new(&self.file);
        let mut line = Vec::new();
        let (mut end, mut first) = (0, true);
        loop {
            line.clear();
            let bytes = reader.read_until(b'\n', &mut line)? as u64;
            if line.pop() != Some(b'\n') {
                break;
            }
            if first && line != title.as_bytes() {
                return Ok(false);
            }
            if !first
                && let Some(blank) = line.iter().position(|&byte| byte == b' ')
                && let Some(position) =
                    std::str::from_utf8(&line[..blank]).ok().and_then(|text| text.parse::<usize>().ok())
                && let Some(row) = self.rows.get_mut(position)
            {
                *row = (end + blank as u64 + 1, (line.len() - blank - 1) as u32);
            }
            first = false;
            end += bytes;
        }
        drop(reader);
        // A line that was not finished is written again.
        self.file.set_len(end)?;
        self.file.seek(SeekFrom::Start(end))?;
        self.end = end;
        if first {
            self.append(title)?;
        }
        Ok(true)
    }

    fn append(&mut self, line: &str) -> anyhow::Result<()> {
        let written = self.file.write_all(format!("{line}\n").as_bytes());
        written.with_context(|| {
            format!(
                "{} cannot be written: the rows that are there are safe, --resume goes on behind them",
                self.path.display()
            )
        })?;
        self.end += line.len() as u64 + 1;
        Ok(())
    }

    /// The row of the point at `position` is there.
    pub fn add(&mut self, position: u64, row: &str) -> anyhow::Result<()> {
        let number = position.to_string();
        self.rows[position as usize] = (self.end + number.len() as u64 + 1, row.len() as u32);
        self.append(&format!("{number} {row}"))
    }

    /// Writes the rows in the order of their points under `header` to `out`, and removes the journal.
    pub fn publish(mut self, header: &str, out: &Path) -> anyhow::Result<()> {
        let mut draft = Draft::of(out)?;
        writeln!(draft, "{header}")?;
        let mut row = Vec::new();
        for &(start, bytes) in &self.rows {
            row.resize(bytes as usize, 0);
            self.file.seek(SeekFrom::Start(start))?;
            self.file.read_exact(&mut row)?;
            row.push(b'\n');
            draft.write_all(&row)?;
            row.pop();
        }
        draft.publish()?;
        std::fs::remove_file(&self.path)?;
        Ok(())
    }
}
