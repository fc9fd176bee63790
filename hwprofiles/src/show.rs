//! A machine as a table of at most 80 columns.

use crate::dtype::DType;
use crate::machine::{Device, Machine};
use crate::rates::{AttentionRates, GemmPoint, GemmRates};
use crate::units::Flop;
use std::fmt;

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  [{}]", self.name, self.fingerprint())?;
        for device in &self.devices {
            self.fmt_device(device, f)?;
        }
        writeln!(
            f,
            "\n{:<16} {:<9} {:>10} {:>11} {:>9}  from",
            "memory", "kind", "capacity", "bandwidth", "latency"
        )?;
        for memory in &self.memories {
            let kind = format!("{:?}", memory.kind).to_lowercase();
            let latency = memory.latency.as_ref().map_or("-".to_owned(), |l| l.value.to_string());
            let (capacity, bandwidth) = (memory.capacity.value, memory.bandwidth.value);
            let name = shortened(&memory.name, 16);
            let source = memory.bandwidth.source.word();
            write!(f, "{name:<16} {kind:<9} {capacity:>10} {bandwidth:>11} {latency:>9}  {source}")?;
            match memory.within {
                Some(outer) => writeln!(f, "\n  within {}", shortened(&self.memory(outer).name, 60))?,
                None => writeln!(f)?,
            }
        }
        writeln!(f, "\n{:<26} {:>11} {:>11}  from", "link", "latency", "bandwidth")?;
        for link in &self.links {
            let (name, source) = (shortened(&link.name, 26), link.bandwidth.source.word());
            writeln!(f, "{name:<26} {:>11} {:>11}  {source}", link.latency.value, link.bandwidth.value)?;
        }
        Ok(())
    }
}

impl Machine {
    fn fmt_device(&self, device: &Device, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = format!("{:?}", device.kind).to_lowercase();
        let memory = shortened(&self.memory(device.memory).name, 20);
        writeln!(f, "\ndevice {} ({kind}, memory {memory}, {})", shortened(&device.name, 20), cores(device))?;
        let (launch, sync, rate) = (device.launch.value, device.sync.value, device.elementwise.value);
        writeln!(f, "  launch {launch}, sync {sync}, elementwise {rate}")?;
        if !device.gemm.is_empty() {
            writeln!(f, "  {:<6} {:>22} {:>24} {:>7}  from", "gemm", "weights read", "rate", "points")?;
        }
        for (dtype, rates) in &device.gemm {
            fmt_gemm(*dtype, rates, f)?;
        }
        if !device.attention.is_empty() {
            writeln!(f, "  {:<6} {:>22} {:>24} {:>7}  from", "kv", "decode reads", "prefill rate", "points")?;
        }
        for (dtype, rates) in &device.attention {
            fmt_attention(*dtype, rates, f)?;
        }
        Ok(())
    }
}

/// The best rates of a table: of reading weights with the fewest rows, of computing with the most.
fn fmt_gemm(dtype: DType, rates: &GemmRates, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let fewest = rates.points.iter().map(|p| p.m).min().unwrap_or(0);
    let most = rates.points.iter().map(|p| p.m).max().unwrap_or(0);
    let read = |p: &GemmPoint| dtype.matrix_bytes(p.n, p.k) / p.time;
    let flop = |p: &GemmPoint| Flop::new(2 * u128::from(p.m) * u128::from(p.n) * u128::from(p.k)) / p.time;
    let at = |m| rates.points.iter().filter(move |p| p.m == m);
    let reads = at(fewest).map(read).max_by(|a, b| a.total_cmp(b)).unwrap_or_default();
    let computes = at(most).map(flop).max_by(|a, b| a.total_cmp(b)).unwrap_or_default();
    let (reads, computes) = (format!("{reads} (m = {fewest})"), format!("{computes} (m = {most})"));
    let (points, source) = (rates.points.len(), rates.source.word());
    writeln!(f, "  {dtype:<6} {reads:>22} {computes:>24} {points:>7}  {source}")
}

fn fmt_attention(dtype: DType, rates: &AttentionRates, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let decode = rates.decode.iter().map(|p| p.rate).max_by(|a, b| a.total_cmp(b)).unwrap_or_default();
    let prefill = rates.prefill.iter().map(|p| p.rate).max_by(|a, b| a.total_cmp(b)).unwrap_or_default();
    let (points, source) = (rates.decode.len() + rates.prefill.len(), rates.source.word());
    writeln!(f, "  {dtype:<6} {decode:>22} {prefill:>24} {points:>7}  {source}")
}

fn cores(device: &Device) -> String {
    match device.cores.as_slice() {
        [] => "no host core".to_owned(),
        [one] => format!("core {one}"),
        many => format!("{} cores", many.len()),
    }
}

/// A name cut to its column.
fn shortened(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    name.chars().take(width - 1).chain(['…']).collect()
}
