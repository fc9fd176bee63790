//! What a program gets of a GPU's memory.
//!
//! Memory chips hold powers of two: the 24 GB of an RTX 4090 are 24 GiB, or 25.8 GB of 10⁹ bytes.
//! CUDA reports 23.5 to 23.7 GiB of them, and 79.1 to 79.3 of an H100's 80, since the driver keeps
//! the rest. A program's context, which holds its kernels and their stacks, takes 300 to 600 MB
//! more before the first weight is loaded.

use crate::parts::gpu::sheet::GpuPart;
use crate::units::{Bytes, Provenance, Sourced};

/// The share of the memory that the driver leaves to programs: 0.98 to 0.99.
const LEFT_BY_DRIVER: f64 = 0.985;

/// The share of the memory beside inline error-correcting codes.
const BESIDE_CODES: f64 = 15.0 / 16.0;

/// What the context of a program takes.
const CONTEXT: Bytes = Bytes::new(450_000_000);

impl GpuPart {
    /// The bytes that one program can allocate. A measured capacity is what the driver reports, so
    /// only the context is taken off it.
    pub fn allocatable(&self) -> Sourced<Bytes> {
        let Sourced { value, source } = &self.capacity;
        let codes = if self.inline_ecc { BESIDE_CODES } else { 1.0 };
        let (left, driver) = match source {
            Provenance::Measured { .. } => (1.0, String::new()),
            _ => (LEFT_BY_DRIVER * codes, format!("{:.1} % of ", 100.0 * LEFT_BY_DRIVER * codes)),
        };
        let reported = Bytes::new((value.as_f64() * left) as u64);
        let all = value.gibibytes();
        let reason = format!("{driver}{all:.1} GiB less {CONTEXT} for a program's context ({source})");
        Sourced::estimated(reported.saturating_sub(CONTEXT), &reason)
    }

    /// The number on its box: gigabytes of 2³⁰ or of 10⁹ bytes, of whichever it has a whole number.
    pub fn gigabytes_as_sold(&self) -> u64 {
        let (binary, decimal) = (self.capacity.value.gibibytes(), self.capacity.value.gigabytes());
        let rest = |size: f64| (size - size.round()).abs();
        (if rest(binary) < rest(decimal) { binary } else { decimal }).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::{Library, Profile};

    fn shipped(name: &str) -> GpuPart {
        match Library::default().profile(name) {
            Ok(Profile::Gpu(part)) => *part,
            other => panic!("{name}: {other:?}"),
        }
    }

    /// GiB that CUDA reports, as PyTorch prints them where memory runs out.
    #[test]
    fn programs_get_what_cuda_reports() {
        let reported = [
            ("rtx-4090", 23.6),
            ("rtx-3090", 23.7),
            ("rtx-3060-12", 11.8),
            ("rtx-5090", 31.4),
            ("t4", 14.6),
            ("l4", 22.1),
            ("a10g", 22.1),
            ("l40s", 44.4),
            ("a100-sxm", 79.2),
            ("h100-sxm", 79.2),
            ("h200-sxm", 139.8),
        ];
        for (name, gibibytes) in reported {
            let got = (shipped(name).allocatable().value + CONTEXT).gibibytes();
            assert!((got / gibibytes - 1.0).abs() < 0.015, "{name}: {got} GiB, CUDA reports {gibibytes}");
        }
    }

    #[test]
    fn the_number_on_the_box_is_told() {
        let sold = [("rtx-4090", 24), ("l4", 24), ("h200-sxm", 141), ("b300-sxm", 288), ("apple-m4", 32)];
        for (name, gigabytes) in sold {
            assert_eq!(shipped(name).gigabytes_as_sold(), gigabytes, "{name}");
        }
    }

    #[test]
    fn a_measured_capacity_loses_the_context_alone() {
        let source = Provenance::Measured { date: "2026-01-01".into(), command: "bench".into(), spread: 0.0 };
        let part =
            GpuPart { capacity: Sourced { value: Bytes::new(10_000_000_000), source }, ..shipped("l4") };
        assert_eq!(part.allocatable().value, Bytes::new(9_550_000_000));
    }
}
