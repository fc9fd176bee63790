//! Intel's tile registers (AMX): whether this process may use them, and how they are shaped.
//!
//! Eight tiles of up to 16 rows of 64 bytes. A multiplication takes 16 cycles, whatever the tiles hold: 1024 bf16 or 2048
//! int8 operations per cycle and core.

#[cfg(test)]
pub(crate) mod emulator;

use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::sync::OnceLock;

/// What this process may use of AMX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Amx {
    /// TDPBF16PS.
    pub(crate) bf16: bool,
    /// TDPBSSD and its kin.
    pub(crate) int8: bool,
}

/// What the processor has, the operating system saves and this process was granted, asked once.
pub(crate) fn amx() -> Amx {
    static AMX: OnceLock<Amx> = OnceLock::new();
    *AMX.get_or_init(detect)
}

fn detect() -> Amx {
    const NONE: Amx = Amx { bf16: false, int8: false };
    // Leaf 1 ECX bit 27: the system has enabled XGETBV; bits 17 and 18 of XCR0: it saves the tiles.
    const OSXSAVE: u32 = 1 << 27;
    const TILE_STATE: u64 = 0b11 << 17;
    if __cpuid_count(0, 0).eax < 7 || __cpuid_count(1, 0).ecx & OSXSAVE == 0 {
        return NONE;
    }
    // SAFETY: OSXSAVE says that XGETBV is there.
    if unsafe { xcr0() } & TILE_STATE != TILE_STATE {
        return NONE;
    }
    let features = __cpuid_count(7, 0).edx;
    let has = |bit: u32| features >> bit & 1 == 1;
    let (bf16, tile, int8) = (has(22), has(24), has(25));
    // Linux grants the tiles' 8 KiB of state to processes that ask.
    if tile && ask_for_tiles() { Amx { bf16, int8 } } else { NONE }
}

/// # Safety
/// The processor has XGETBV and the system enabled it.
#[target_feature(enable = "xsave")]
unsafe fn xcr0() -> u64 {
    // SAFETY: the caller's promise.
    unsafe { _xgetbv(0) }
}

/// Asks Linux for the right to use the tiles, for all threads of this process.
fn ask_for_tiles() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call takes two numbers and changes nothing but the permission.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

/// The operand of LDTILECFG (palette 1): bytes per row and rows of each tile.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(crate) struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl TileConfig {
    /// Tiles 0–7 with these rows and bytes per row; a tile of zero rows is not used.
    pub(crate) fn new(tiles: [(usize, usize); 8]) -> Self {
        let mut config =
            Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        for (tile, (rows, row_bytes)) in tiles.into_iter().enumerate() {
            assert!(rows <= 16 && row_bytes <= 64, "a tile has at most 16 rows of 64 bytes");
            // An unused tile must have neither rows nor columns.
            let (rows, row_bytes) = if rows * row_bytes == 0 { (0, 0) } else { (rows, row_bytes) };
            (config.rows[tile], config.row_bytes[tile]) = (rows as u8, row_bytes as u16);
        }
        config
    }

    /// All eight tiles whole.
    pub(crate) fn whole() -> Self {
        Self::new([(16, 64); 8])
    }
}
