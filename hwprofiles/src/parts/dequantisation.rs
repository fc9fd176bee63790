//! The cost of dequantisation of parts that do not state one.
//!
//! **GPUs**: a multiprocessor turns 20 values of a 4-bit format into 16 bits per cycle, beyond
//! reading. gpt-fast's table (`pytorch-labs/gpt-fast`, README) has Llama-2 on an A100 with 104.9,
//! 155.6 and 196.8 tokens/s for 7 B in bf16, int8 and int4, and 19.13 and 25.25 for 70 B in int8
//! and int4. At bf16's read rate of 1.40 TB/s the int4 runs take 1.9 and 8.5 ms beyond reading for
//! 6.6 and 68.7 · 10⁹ values: 22 to 53 values per cycle of each of 108 multiprocessors at 1.41 GHz.
//! The lower end is used, rounded down, because most products are as small as the 7 B model's.
//!
//! **CPUs**: a core unpacks and multiplies 8 values of a 4-bit format per cycle with 256-bit
//! vectors and 16 with 512-bit ones. For 64 values of Q4_K that takes llama.cpp's kernel about 16
//! instructions of 256 bits; a core issues two per cycle. Intel's cores have two ports for
//! instructions of 512 bits: shuffles use one of them and multiplications of 32 bits take two
//! steps, so they do 12 values (prior 10 to 16, by the instruction tables of both makers).

use crate::parts::cpu::{CpuPart, InstructionSet};
use crate::parts::gpu::GpuPart;
use crate::rates::Dequantisation;
use crate::units::{ElementsPerSec, Hertz, Provenance, Sourced};

const GPU_VALUES_PER_CYCLE: f64 = 20.0;

/// The clock of busy multiprocessors by architecture, as datasheets give the boost clock.
const GPU_CLOCKS: [(&str, Hertz); 22] = [
    ("pascal", Hertz::new(1.6e9)),
    ("volta", Hertz::new(1.53e9)),
    ("turing", Hertz::new(1.6e9)),
    ("ampere", Hertz::new(1.41e9)),
    ("ada", Hertz::new(2.5e9)),
    ("hopper", Hertz::new(1.8e9)),
    ("blackwell", Hertz::new(1.9e9)),
    ("vega20", Hertz::new(1.75e9)),
    ("cdna", Hertz::new(1.5e9)),
    ("cdna2", Hertz::new(1.7e9)),
    ("cdna3", Hertz::new(2.1e9)),
    ("cdna4", Hertz::new(2.4e9)),
    ("rdna2", Hertz::new(2.25e9)),
    ("rdna3", Hertz::new(2.4e9)),
    ("rdna3.5", Hertz::new(2.9e9)),
    ("rdna4", Hertz::new(2.7e9)),
    ("alchemist", Hertz::new(2.1e9)),
    ("battlemage", Hertz::new(2.67e9)),
    ("apple-m1", Hertz::new(1.28e9)),
    ("apple-m2", Hertz::new(1.4e9)),
    ("apple-m3", Hertz::new(1.38e9)),
    ("apple-m4", Hertz::new(1.58e9)),
];

/// The clock of a GPU of another architecture.
const OTHER_GPU_CLOCK: Hertz = Hertz::new(1.4e9);

const WIDE_VALUES_PER_CYCLE: f64 = 16.0;

/// The same on cores with two ports for such vectors.
const TWO_PORT_VALUES_PER_CYCLE: f64 = 12.0;

const NARROW_VALUES_PER_CYCLE: f64 = 8.0;

/// The clock of busy cores where nothing is known of it.
const CPU_CLOCK: Hertz = Hertz::new(2.5e9);

fn estimated(rate: f64, overlaps: bool, reason: String) -> Dequantisation {
    let rate = Sourced { value: ElementsPerSec::new(rate), source: Provenance::Estimated { reason } };
    Dequantisation { rate, overlaps }
}

impl GpuPart {
    /// The stated cost, or that of its architecture; `None` without a number of multiprocessors.
    pub(crate) fn dequantisation_cost(&self) -> Option<Dequantisation> {
        self.dequantisation.clone().or_else(|| {
            let count = self.multiprocessors.as_ref()?.value;
            let own = self.architecture.as_deref();
            let clock = GPU_CLOCKS.iter().find(|(name, _)| Some(*name) == own);
            let clock = clock.map_or(OTHER_GPU_CLOCK, |(_, clock)| *clock);
            let rate = GPU_VALUES_PER_CYCLE * count as f64 * clock.get();
            let reason = format!(
                "{GPU_VALUES_PER_CYCLE} values per cycle of each of {count} multiprocessors at {clock}: \
                 int4 of Llama-2 on an A100 by gpt-fast, beyond reading at bf16's rate"
            );
            Some(estimated(rate, false, reason))
        })
    }
}

impl CpuPart {
    /// Whether all its instructions of 512 bits share two ports, as on Intel's cores. AMD's have
    /// four, of 256 bits before Zen 5.
    pub(crate) fn shares_wide_ports(&self) -> bool {
        self.architecture.as_ref().is_some_and(|architecture| !architecture.starts_with("zen"))
    }

    /// The cost on `cores` cores.
    pub(crate) fn dequantisation_cost(&self, cores: u64) -> Dequantisation {
        if let Some(stated) = &self.dequantisation {
            let share = cores as f64 / self.cores.value as f64;
            let source = match cores == self.cores.value {
                true => stated.rate.source.clone(),
                false => {
                    let reason = format!("{share} sockets of {} ({})", stated.rate.value, stated.rate.source);
                    Provenance::Estimated { reason }
                }
            };
            let rate = Sourced { value: stated.rate.value * share, source };
            return Dequantisation { rate, overlaps: stated.overlaps };
        }
        let wide = [InstructionSet::Avx512, InstructionSet::Amx];
        let values = match wide.iter().any(|set| self.rates.contains_key(set)) {
            true if self.shares_wide_ports() => TWO_PORT_VALUES_PER_CYCLE,
            true => WIDE_VALUES_PER_CYCLE,
            false => NARROW_VALUES_PER_CYCLE,
        };
        let clock = self.busy_clock.as_ref().or(self.base_clock.as_ref()).map_or(CPU_CLOCK, |it| it.value);
        cost_of_cores(cores, values, clock)
    }
}

/// The cost on `cores` cores of a measured host with these instruction sets.
pub(crate) fn host_dequantisation(cores: usize, features: &[String]) -> Dequantisation {
    let wide = features.iter().any(|feature| feature.starts_with("avx512"));
    let values = if wide { WIDE_VALUES_PER_CYCLE } else { NARROW_VALUES_PER_CYCLE };
    cost_of_cores(cores as u64, values, CPU_CLOCK)
}

fn cost_of_cores(cores: u64, values: f64, clock: Hertz) -> Dequantisation {
    let reason = format!(
        "{values} values per cycle of each of {cores} cores at {clock}: a dot product with Q4_K takes 16 \
         instructions for 64 values"
    );
    estimated(values * cores as f64 * clock.get(), true, reason)
}
