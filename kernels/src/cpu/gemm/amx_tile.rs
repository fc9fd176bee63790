//! The micro-kernel of AMX: two tiles of x by two tiles of weights, in four accumulators.
//!
//! Two by two needs one load for each multiplication, and the other three accumulators cover an
//! accumulator's latency (52 cycles). One accumulator alone runs at 31 % of the rate. A tile of the
//! next step is loaded as soon as this step has used the tile in its register, so no multiplication
//! waits for a load of its own step.
//!
//! A multiplication adds 32 columns. For each output it sums the even and the odd columns
//! separately, adds the two sums, and adds the result to the accumulator.

use crate::cpu::amx::TileConfig;
use std::arch::asm;

/// Rows of one tile of x.
pub(super) const TILE_ROWS: usize = 16;
/// Bytes of one tile of weights: 16 pairs of columns of 16 outputs.
pub(super) const TILE_BYTES: usize = 1024;

/// Operands of one block of outputs, up to 32 × 32: y (+)= x·w.
pub(super) struct AmxBlock {
    /// The first step's tile of x (bf16): the upper sixteen rows, and those below them.
    pub(super) x: [*const u16; 2],
    /// The distances of x's rows, and of its steps, in bytes.
    pub(super) x_row: usize,
    pub(super) x_step: usize,
    /// The tiles of each panel's weights, one after the other.
    pub(super) w: [*const u8; 2],
    /// Multiplications for each accumulator; each takes 32 columns.
    pub(super) steps: usize,
    pub(super) add: bool,
    /// The sums as tiles of sixteen rows: those of the first panel, then those of the second.
    pub(super) y: *mut f32,
    /// Two places that are needed soon. Each step brings the next two lines of both into the
    /// second-level cache.
    pub(super) ahead: [*const u8; 2],
}

/// The shapes of the tiles for blocks of `rows` ≤ 32 rows. Tiles 0–3 are accumulators, 4 and 5 are
/// x, 6 and 7 are weights.
pub(super) fn config(rows: usize) -> TileConfig {
    let (top, bottom) = (rows.min(TILE_ROWS), rows.saturating_sub(TILE_ROWS));
    let shape = |rows| (rows, 64);
    TileConfig::new([
        shape(top),
        shape(top),
        shape(bottom),
        shape(bottom),
        shape(top),
        shape(bottom),
        shape(16),
        shape(16),
    ])
}

/// Loads the shapes of the tiles.
///
/// # Safety
/// The CPU has AMX-TILE, and this process may use it.
pub(super) unsafe fn configure(config: &TileConfig) {
    // SAFETY: the caller's promise; the configuration is valid by its constructor. Nothing else in
    // the program uses tiles, so they stay configured until `release`.
    unsafe { asm!("ldtilecfg [{0}]", in(reg) config, options(nostack, readonly, preserves_flags)) };
}

/// Releases the tiles, because a thread that holds some makes every context switch save 8 KiB.
///
/// # Safety
/// The CPU has AMX-TILE, and this process may use it.
pub(super) unsafe fn release() {
    // SAFETY: the caller's promise.
    unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) };
}

/// Assembles a block of one shape. The arguments are the instructions that load or clear the
/// accumulators, load the first step's tiles, run a step while the next step's tiles are loaded,
/// multiply the last step, and store the accumulators.
macro_rules! block {
    ($b:expr, load: [$($load:literal)*], zero: [$($zero:literal)*], first: [$($first:literal)*],
        step: [$($step:literal)*], last: [$($last:literal)*], store: [$($store:literal)*]) => {
        asm!(
            "test {add:e}, {add:e}",
            "jz 2f",
            $($load,)*
            "jmp 3f",
            "2:",
            $($zero,)*
            "3:",
            "test {steps}, {steps}",
            "jz 6f",
            $($first,)*
            "jmp 5f",
            "4:",
            $($step,)*
            "sub {ahead0}, -128",
            "sub {ahead1}, -128",
            "5:",
            "add {x0}, {x_step}",
            "add {x1}, {x_step}",
            "add {w0}, 1024",
            "add {w1}, 1024",
            "dec {steps}",
            "jnz 4b",
            $($last,)*
            "6:",
            $($store,)*
            add = in(reg) u32::from($b.add),
            steps = inout(reg) $b.steps => _,
            x0 = inout(reg) $b.x[0] => _,
            x1 = inout(reg) $b.x[1] => _,
            x_row = in(reg) $b.x_row,
            x_step = in(reg) $b.x_step,
            w0 = inout(reg) $b.w[0] => _,
            w1 = inout(reg) $b.w[1] => _,
            line = in(reg) 64usize,
            y = in(reg) $b.y,
            ahead0 = inout(reg) $b.ahead[0] => _,
            ahead1 = inout(reg) $b.ahead[1] => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

impl AmxBlock {
    /// Computes `rows` ≤ 32 rows of `panels` ≤ 2 panels.
    ///
    /// # Safety
    /// The CPU has AMX-BF16, this process may use it, and the tiles are configured for this number
    /// of rows. x and w hold these rows and steps. y has room for a tile of each panel, of two
    /// where there are more than sixteen rows, and nobody else touches it.
    pub(super) unsafe fn run(&self, rows: usize, panels: usize) {
        // SAFETY: the caller's promises.
        unsafe {
            match (rows > TILE_ROWS, panels > 1) {
                (true, true) => self.two_by_two(),
                (true, false) => self.two_by_one(),
                (false, true) => self.one_by_two(),
                (false, false) => self.one_by_one(),
            }
        }
    }

    unsafe fn two_by_two(&self) {
        // SAFETY: (all four) the promises of `run`. A prefetch never faults.
        unsafe {
            block!(self,
                load: ["tileloadd tmm0, [{y} + {line}]" "tileloadd tmm2, [{y} + {line} + 1024]"
                    "tileloadd tmm1, [{y} + {line} + 2048]" "tileloadd tmm3, [{y} + {line} + 3072]"],
                zero: ["tilezero tmm0" "tilezero tmm1" "tilezero tmm2" "tilezero tmm3"],
                first: ["tileloadd tmm6, [{w0} + {line}]" "tileloadd tmm4, [{x0} + {x_row}]"
                    "tileloadd tmm7, [{w1} + {line}]" "tileloadd tmm5, [{x1} + {x_row}]"],
                step: ["tdpbf16ps tmm0, tmm4, tmm6" "prefetcht1 [{ahead0}]" "tdpbf16ps tmm1, tmm4, tmm7"
                    "tileloadd tmm4, [{x0} + {x_row}]" "prefetcht1 [{ahead1}]" "tdpbf16ps tmm2, tmm5, tmm6"
                    "tileloadd tmm6, [{w0} + {line}]" "prefetcht1 [{ahead0} + 64]"
                    "tdpbf16ps tmm3, tmm5, tmm7" "tileloadd tmm7, [{w1} + {line}]"
                    "tileloadd tmm5, [{x1} + {x_row}]" "prefetcht1 [{ahead1} + 64]"],
                last: ["tdpbf16ps tmm0, tmm4, tmm6" "tdpbf16ps tmm1, tmm4, tmm7" "tdpbf16ps tmm2, tmm5, tmm6"
                    "tdpbf16ps tmm3, tmm5, tmm7"],
                store: ["tilestored [{y} + {line}], tmm0" "tilestored [{y} + {line} + 1024], tmm2"
                    "tilestored [{y} + {line} + 2048], tmm1" "tilestored [{y} + {line} + 3072], tmm3"]
            )
        }
    }

    unsafe fn two_by_one(&self) {
        // SAFETY: as above.
        unsafe {
            block!(self,
                load: ["tileloadd tmm0, [{y} + {line}]" "tileloadd tmm2, [{y} + {line} + 1024]"],
                zero: ["tilezero tmm0" "tilezero tmm2"],
                first: ["tileloadd tmm6, [{w0} + {line}]" "tileloadd tmm4, [{x0} + {x_row}]"
                    "tileloadd tmm5, [{x1} + {x_row}]"],
                step: ["tdpbf16ps tmm0, tmm4, tmm6" "prefetcht1 [{ahead0}]" "prefetcht1 [{ahead1}]"
                    "tileloadd tmm4, [{x0} + {x_row}]" "tdpbf16ps tmm2, tmm5, tmm6"
                    "tileloadd tmm6, [{w0} + {line}]" "tileloadd tmm5, [{x1} + {x_row}]"
                    "prefetcht1 [{ahead0} + 64]" "prefetcht1 [{ahead1} + 64]"],
                last: ["tdpbf16ps tmm0, tmm4, tmm6" "tdpbf16ps tmm2, tmm5, tmm6"],
                store: ["tilestored [{y} + {line}], tmm0" "tilestored [{y} + {line} + 1024], tmm2"]
            )
        }
    }

    unsafe fn one_by_two(&self) {
        // SAFETY: as above.
        unsafe {
            block!(self,
                load: ["tileloadd tmm0, [{y} + {line}]" "tileloadd tmm1, [{y} + {line} + 1024]"],
                zero: ["tilezero tmm0" "tilezero tmm1"],
                first: ["tileloadd tmm6, [{w0} + {line}]" "tileloadd tmm4, [{x0} + {x_row}]"
                    "tileloadd tmm7, [{w1} + {line}]"],
                step: ["tdpbf16ps tmm0, tmm4, tmm6" "prefetcht1 [{ahead0}]" "prefetcht1 [{ahead1}]"
                    "tileloadd tmm6, [{w0} + {line}]" "tdpbf16ps tmm1, tmm4, tmm7"
                    "tileloadd tmm4, [{x0} + {x_row}]" "tileloadd tmm7, [{w1} + {line}]"
                    "prefetcht1 [{ahead0} + 64]" "prefetcht1 [{ahead1} + 64]"],
                last: ["tdpbf16ps tmm0, tmm4, tmm6" "tdpbf16ps tmm1, tmm4, tmm7"],
                store: ["tilestored [{y} + {line}], tmm0" "tilestored [{y} + {line} + 1024], tmm1"]
            )
        }
    }

    unsafe fn one_by_one(&self) {
        // SAFETY: as above.
        unsafe {
            block!(self,
                load: ["tileloadd tmm0, [{y} + {line}]"],
                zero: ["tilezero tmm0"],
                first: ["tileloadd tmm6, [{w0} + {line}]" "tileloadd tmm4, [{x0} + {x_row}]"],
                step: ["tdpbf16ps tmm0, tmm4, tmm6" "prefetcht1 [{ahead0}]" "prefetcht1 [{ahead1}]"
                    "tileloadd tmm6, [{w0} + {line}]" "tileloadd tmm4, [{x0} + {x_row}]"
                    "prefetcht1 [{ahead0} + 64]" "prefetcht1 [{ahead1} + 64]"],
                last: ["tdpbf16ps tmm0, tmm4, tmm6"],
                store: ["tilestored [{y} + {line}], tmm0"]
            )
        }
    }
}
