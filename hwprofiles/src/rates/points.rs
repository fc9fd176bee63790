//! Measured points from CSV files, which profiles are fitted to.
//!
//! The columns of a file tell what was measured. A column `gpu` names the device; other columns are
//! ignored:
//!
//! - products and attention: the columns of [`Operations`], with `latency_us`;
//! - the device's memory: `stream` (read or copy; a copy counts the bytes it reads and those it
//!   writes), `bytes`, `gb_per_s`;
//! - its link: `direction` (h2d, d2h or both), `memory` (pinned or pageable), `bytes` each way,
//!   `latency_us`.

use crate::files::{RowsError, TableRows, plain_name};
use crate::rates::attention::{AttentionPoint, Phase};
use crate::rates::gemm::GemmPoint;
use crate::rates::operations::{Operation, Operations, microseconds, whole};
use crate::rates::transfer::{Direction, HostMemory, TransferPoint};
use crate::statistics::{CONTRADICTION, median, upper_median};
use crate::units::{Bytes, BytesPerSec, DType, Seconds};
use std::collections::BTreeMap;
use std::io::BufRead;

/// The points of several files, by the device that they were measured on.
#[derive(Debug, Clone, Default)]
pub struct MeasuredPoints {
    files: Vec<String>,
    devices: BTreeMap<String, DevicePoints>,
}

/// The points of one device.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DevicePoints {
    measured: BTreeMap<PointSubject, Repeats>,
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PointSubject {
    Operation(Operation),
    Stream(DeviceStream, Bytes),
    Transfer(Direction, HostMemory, Bytes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DeviceStream {
    Read,
    Copy,
}

/// Repeated measurements: value, index of the file, line. Values are seconds, or bytes/s for
/// streams.
#[derive(Debug, Clone, Default, PartialEq)]
struct Repeats(Vec<(f64, usize, u64)>);

impl MeasuredPoints {
    /// Adds the points of a file. `file` is its name in messages.
    ///
    /// Refuses rows that are not points and names their line: unknown words, counts and times that
    /// are not above zero, and a time that contradicts an earlier one of the same thing (more than
    /// twice or less than half of it). Nearer times are repeats, and their median counts.
    pub fn read(&mut self, reader: impl BufRead, file: &str) -> Result<(), RowsError> {
        let rows = TableRows::new(reader, file)?;
        self.files.push(file.to_owned());
        let has = |name: &str| rows.names().iter().any(|it| it == name);
        let read = if has("direction") {
            self.transfers(rows)?
        } else if has("stream") {
            self.streams(rows)?
        } else {
            self.operations(rows)?
        };
        if read == 0 {
            return Err(RowsError {
                file: file.to_owned(),
                line: 1,
                column: String::new(),
                message: "there are no points below the header: give at least one".to_owned(),
            });
        }
        Ok(())
    }

    /// The devices and their points. Names are in plain spelling, and empty where a file names no
    /// device.
    pub fn devices(&self) -> impl Iterator<Item = (&str, &DevicePoints)> {
        self.devices.iter().map(|(name, points)| (name.as_str(), points))
    }

    fn operations<R: BufRead>(&mut self, rows: TableRows<R>) -> Result<usize, RowsError> {
        let mut operations = Operations::from_rows(rows)?;
        let column = needed(operations.rows(), "latency_us")?;
        let gpu = operations.gpu_column();
        let mut read = 0;
        while let Some(operation) = operations.advance()? {
            let time = microseconds(operations.rows(), column)?;
            self.add(operations.rows(), gpu, column, PointSubject::Operation(operation), time.get())?;
            read += 1;
        }
        Ok(read)
    }

    fn streams<R: BufRead>(&mut self, mut rows: TableRows<R>) -> Result<usize, RowsError> {
        let [stream, bytes, rate] = columns(&rows, ["stream", "bytes", "gb_per_s"])?;
        let gpu = rows.column("gpu")?;
        let mut read = 0;
        while rows.advance()? {
            let kind = word(&rows, stream, &[("read", DeviceStream::Read), ("copy", DeviceStream::Copy)])?;
            let subject = PointSubject::Stream(kind, size(&rows, bytes)?);
            let value = number(&rows, rate).ok_or_else(|| {
                let message =
                    format!("'{}' is not a rate: write GB/s above zero, as 3350.5", rows.shown(rate));
                rows.refuse(rate, message)
            })?;
            self.add(&rows, gpu, rate, subject, value * 1e9)?;
            read += 1;
        }
        Ok(read)
    }

    fn transfers<R: BufRead>(&mut self, mut rows: TableRows<R>) -> Result<usize, RowsError> {
        let names = ["direction", "memory", "bytes", "latency_us"];
        let [direction, memory, bytes, latency] = columns(&rows, names)?;
        let gpu = rows.column("gpu")?;
        let directions =
            [("h2d", Direction::ToDevice), ("d2h", Direction::ToHost), ("both", Direction::Both)];
        let memories = [("pinned", HostMemory::Pinned), ("pageable", HostMemory::Pageable)];
        let mut read = 0;
        while rows.advance()? {
            let way = word(&rows, direction, &directions)?;
            let kind = word(&rows, memory, &memories)?;
            let subject = PointSubject::Transfer(way, kind, size(&rows, bytes)?);
            let time = microseconds(&rows, latency)?;
            self.add(&rows, gpu, latency, subject, time.get())?;
            read += 1;
        }
        Ok(read)
    }

    /// Adds the value that stands in `column` of the row.
    fn add<R: BufRead>(
        &mut self,
        rows: &TableRows<R>,
        gpu: Option<usize>,
        column: usize,
        subject: PointSubject,
        value: f64,
    ) -> Result<(), RowsError> {
        let name = gpu.map_or(String::new(), |gpu| plain_name(&String::from_utf8_lossy(rows.cell(gpu))));
        if let Some(gpu) = gpu.filter(|_| name.is_empty()) {
            return Err(rows.refuse(gpu, "the cell is empty: every point must name its GPU"));
        }
        let device = self.devices.entry(name).or_default();
        let repeats = device.measured.entry(subject).or_default();
        let contradicts = |&&(other, _, _): &&(f64, usize, u64)| {
            value > CONTRADICTION * other || other > CONTRADICTION * value
        };
        if let Some(&(other, file, line)) = repeats.0.iter().find(contradicts) {
            let (shown, times) = (rows.shown(column), value.max(other) / value.min(other));
            let message = format!(
                "'{shown}' contradicts {}:{line}, which measured the same and differs {times:.1} times: keep the \
                 right one, or measure again",
                self.files[file]
            );
            return Err(rows.refuse(column, message));
        }
        repeats.0.push((value, self.files.len() - 1, rows.line()));
        Ok(())
    }
}

impl DevicePoints {
    /// How many things were measured. Repeats are not counted.
    pub fn len(&self) -> usize {
        self.measured.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.measured.is_empty()
    }

    /// Products and attention with their median times.
    pub fn operations(&self) -> impl Iterator<Item = (Operation, Seconds)> {
        self.measured.iter().filter_map(|(subject, repeats)| match subject {
            PointSubject::Operation(operation) => Some((*operation, Seconds::new(repeats.median()))),
            _ => None,
        })
    }

    /// Products by format.
    pub fn gemm(&self) -> BTreeMap<DType, Vec<GemmPoint>> {
        let mut points: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (operation, time) in self.operations() {
            if let Operation::Gemm { dtype, m, n, k } = operation {
                points.entry(dtype).or_default().push(GemmPoint { m, n, k, time });
            }
        }
        points
    }

    /// Attention by format of the KV cache.
    pub fn attention(&self) -> BTreeMap<DType, Vec<AttentionPoint>> {
        let mut points: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (operation, time) in self.operations() {
            if let Operation::Attention { kv, shape } = operation {
                points.entry(kv).or_default().push(AttentionPoint { shape, time });
            }
        }
        points
    }

    /// The rate of the largest read of the device's memory, or of the largest copy where there is
    /// no read.
    pub fn bandwidth(&self) -> Option<BytesPerSec> {
        let largest = |wanted| {
            let streams = self.measured.iter().filter_map(move |(subject, repeats)| match subject {
                PointSubject::Stream(kind, bytes) if *kind == wanted => Some((*bytes, repeats.median())),
                _ => None,
            });
            streams.max_by_key(|(bytes, _)| *bytes).map(|(_, rate)| BytesPerSec::new(rate))
        };
        largest(DeviceStream::Read).or_else(|| largest(DeviceStream::Copy))
    }

    /// Transfers over the link, by direction, memory and size.
    pub fn transfers(&self) -> Vec<TransferPoint> {
        let transfer = |(subject, repeats): (&PointSubject, &Repeats)| match *subject {
            PointSubject::Transfer(direction, memory, bytes) => {
                Some(TransferPoint { direction, memory, bytes, time: Seconds::new(repeats.median()) })
            }
            _ => None,
        };
        self.measured.iter().filter_map(transfer).collect()
    }

    /// The spread of repeats, (largest − smallest) ÷ median: the median over everything measured
    /// more than once, zero where nothing was.
    pub fn spread(&self) -> f64 {
        let spreads: Vec<_> =
            self.measured.values().filter(|it| it.0.len() > 1).map(Repeats::spread).collect();
        upper_median(&spreads).unwrap_or(0.0)
    }

    /// Splits the points for cross-validation: every `of`-th product and attention of its kind from
    /// the `index`-th on, to test a fit on, and all other points, to fit to. A kind with fewer than
    /// `of` points stays whole among the others.
    pub fn fold(&self, index: usize, of: usize) -> (Self, Self) {
        let mut counts: BTreeMap<FoldKind, usize> = BTreeMap::new();
        let kind = |operation: &Operation| match operation {
            Operation::Gemm { dtype, .. } => FoldKind::Gemm(*dtype),
            Operation::Attention { kv, shape } => FoldKind::Attention(shape.phase, *kv),
        };
        for (operation, _) in self.operations() {
            *counts.entry(kind(&operation)).or_default() += 1;
        }
        let mut seen: BTreeMap<FoldKind, usize> = BTreeMap::new();
        let (mut test, mut rest) = (Self::default(), Self::default());
        for (subject, repeats) in &self.measured {
            let mut tested = false;
            if let PointSubject::Operation(operation) = subject {
                let kind = kind(operation);
                let number = seen.entry(kind).or_default();
                tested = counts[&kind] >= of && *number % of == index;
                *number += 1;
            }
            let side = if tested { &mut test } else { &mut rest };
            side.measured.insert(*subject, repeats.clone());
        }
        (test, rest)
    }
}

/// Operations that are tested together: products of one format, or attention of one phase and
/// format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FoldKind {
    Gemm(DType),
    Attention(Phase, DType),
}

impl Repeats {
    fn values(&self) -> Vec<f64> {
        self.0.iter().map(|(value, ..)| *value).collect()
    }

    fn median(&self) -> f64 {
        median(&self.values()).expect("a point has a value")
    }

    fn spread(&self) -> f64 {
        let values = self.values();
        let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
        (largest - smallest) / self.median()
    }
}

/// The index of the column called `name`; refuses a file without it.
fn needed<R: BufRead>(rows: &TableRows<R>, name: &str) -> Result<usize, RowsError> {
    let message = "there is no such column, and points need it";
    rows.column(name)?.ok_or_else(|| rows.refuse_header(name, message))
}

fn columns<R: BufRead, const N: usize>(
    rows: &TableRows<R>,
    names: [&str; N],
) -> Result<[usize; N], RowsError> {
    let mut found = [0; N];
    for (place, name) in found.iter_mut().zip(names) {
        *place = needed(rows, name)?;
    }
    Ok(found)
}

/// What the word in the cell stands for.
fn word<R: BufRead, T: Copy>(
    rows: &TableRows<R>,
    column: usize,
    words: &[(&str, T)],
) -> Result<T, RowsError> {
    let cell = rows.cell(column);
    let found = words.iter().find(|(word, _)| cell.eq_ignore_ascii_case(word.as_bytes()));
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let known = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        rows.refuse(column, format!("'{}' is none of {known}", rows.shown(column)))
    })
}

/// A finite number above zero.
fn number<R: BufRead>(rows: &TableRows<R>, column: usize) -> Option<f64> {
    let number = std::str::from_utf8(rows.cell(column)).ok()?.parse::<f64>().ok()?;
    (number.is_finite() && number > 0.0).then_some(number)
}

/// A number of bytes.
fn size<R: BufRead>(rows: &TableRows<R>, column: usize) -> Result<Bytes, RowsError> {
    whole(rows.cell(column)).filter(|&bytes| bytes > 0).map(Bytes::new).ok_or_else(|| {
        let message =
            format!("'{}' is not a size: write a whole number of bytes above zero", rows.shown(column));
        rows.refuse(column, message)
    })
}
