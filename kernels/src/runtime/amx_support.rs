//! Whether this process may use Intel's tile registers (AMX).

use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::sync::OnceLock;

/// The parts of AMX that this process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AmxSupport {
    /// TDPBF16PS.
    pub(crate) bf16: bool,
    /// TDPBSSD and the other 8-bit products.
    pub(crate) int8: bool,
}

/// The parts of AMX that the processor has, that the operating system saves, and that this process
/// was granted. The first call asks; later calls repeat the answer.
pub(crate) fn amx_support() -> AmxSupport {
    static SUPPORT: OnceLock<AmxSupport> = OnceLock::new();
    *SUPPORT.get_or_init(detect)
}

fn detect() -> AmxSupport {
    const NONE: AmxSupport = AmxSupport { bf16: false, int8: false };
    // Leaf 1 ECX bit 27 says that the system enabled XGETBV. Bits 17 and 18 of XCR0 say that it
    // saves the tiles.
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
    if tile && request_tiles() { AmxSupport { bf16, int8 } } else { NONE }
}

/// # Safety
/// The processor has XGETBV and the system enabled it.
#[target_feature(enable = "xsave")]
unsafe fn xcr0() -> u64 {
    // SAFETY: the caller's promise.
    unsafe { _xgetbv(0) }
}

/// Asks Linux for the right to use the tiles, for all threads of this process.
fn request_tiles() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call takes two numbers and changes nothing but the permission.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}
