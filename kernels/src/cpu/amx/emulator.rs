//! AMX for tests on processors without it: a handler of SIGILL that executes the instruction.
//!
//! The machine code that runs is the same as on a processor with AMX. Each instruction costs about
//! 10 µs, so nothing is timed under the emulator. It is never installed where AMX works.

use crate::runtime::amx_support::amx_support;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Register};
use std::cell::UnsafeCell;
use std::sync::Once;

/// Makes AMX instructions work in this process. Returns the word for a test's output: "real" or
/// "emulated".
pub(crate) fn provide() -> &'static str {
    static INSTALL: Once = Once::new();
    let support = amx_support();
    if support.bf16 && support.int8 {
        return "real";
    }
    INSTALL.call_once(|| {
        // The decoder allocates its tables on first use, which must not happen in the handler.
        assert_eq!(decode(&[0xc4, 0xe2, 0x78, 0x49, 0xc0], 0).code(), Code::VEX_Tilerelease);
        // SAFETY: a sigaction is plain data. SA_ONSTACK is not set, because Rust's alternate stack
        // is too small for the decoder.
        let failed = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_illegal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGILL, &action, std::ptr::null_mut())
        };
        assert_eq!(failed, 0, "the handler of SIGILL");
    });
    "emulated"
}

fn decode(bytes: &[u8], at: u64) -> Instruction {
    Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode()
}

/// The tiles of one thread.
struct ThreadTiles {
    rows: [usize; 8],
    row_bytes: [usize; 8],
    values: [[[u8; 64]; 16]; 8],
}

const NO_TILES: ThreadTiles = ThreadTiles { rows: [0; 8], row_bytes: [0; 8], values: [[[0; 64]; 16]; 8] };

thread_local! {
    static TILES: UnsafeCell<ThreadTiles> = const { UnsafeCell::new(NO_TILES) };
}

extern "C" fn on_illegal(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives an SA_SIGINFO handler the interrupted thread's context, which the
    // handler may change.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let mut done = 0;
    loop {
        let at = registers[libc::REG_RIP as usize] as u64;
        // SAFETY: code lies there, and more than 15 bytes of the program follow any of our
        // functions.
        let bytes = unsafe { std::slice::from_raw_parts(at as *const u8, 15) };
        let instruction = decode(bytes, at);
        // SAFETY: this thread alone uses its tiles, and the handler does not interrupt itself.
        let known = TILES.with(|tiles| execute(unsafe { &mut *tiles.get() }, &instruction, registers));
        if !known {
            break;
        }
        done += 1;
        registers[libc::REG_RIP as usize] = instruction.next_ip() as i64;
    }
    if done == 0 {
        // The instruction is not one of AMX: it runs again without a handler.
        // SAFETY: the default action needs no handler.
        unsafe { libc::signal(libc::SIGILL, libc::SIG_DFL) };
    }
}

/// Runs one instruction; returns false where it is not one of AMX.
fn execute(tiles: &mut ThreadTiles, instruction: &Instruction, registers: &[i64; 23]) -> bool {
    let tile =
        |operand: u32| (instruction.op_register(operand) as usize).wrapping_sub(Register::TMM0 as usize);
    match instruction.code() {
        Code::VEX_Ldtilecfg_m512 => {
            let at = register(instruction.memory_base(), registers) + instruction.memory_displacement64();
            // SAFETY: the program says that a configuration of 64 bytes lies there.
            configure(tiles, unsafe { &*(at as *const [u8; 64]) });
        }
        Code::VEX_Tilerelease => *tiles = NO_TILES,
        Code::VEX_Tilezero_tmm => {
            configured(tiles, tile(0));
            tiles.values[tile(0)] = [[0; 64]; 16];
        }
        Code::VEX_Tileloadd_tmm_sibmem => {
            configured(tiles, tile(0));
            let value = &mut tiles.values[tile(0)];
            *value = [[0; 64]; 16];
            let (rows, bytes) = (tiles.rows[tile(0)], tiles.row_bytes[tile(0)]);
            for (row, to) in value.iter_mut().enumerate().take(rows) {
                let from = row_address(instruction, registers, row) as *const u8;
                // SAFETY: the program says that a row lies there.
                unsafe { to[..bytes].as_mut_ptr().copy_from_nonoverlapping(from, bytes) };
            }
        }
        Code::VEX_Tilestored_sibmem_tmm => {
            configured(tiles, tile(1));
            for (row, from) in tiles.values[tile(1)].iter().enumerate().take(tiles.rows[tile(1)]) {
                let to = row_address(instruction, registers, row) as *mut u8;
                // SAFETY: as above.
                unsafe { to.copy_from_nonoverlapping(from.as_ptr(), tiles.row_bytes[tile(1)]) };
            }
        }
        Code::VEX_Tdpbf16ps_tmm_tmm_tmm => multiply(tiles, [tile(0), tile(1), tile(2)], dot_bf16),
        Code::VEX_Tdpbssd_tmm_tmm_tmm => multiply(tiles, [tile(0), tile(1), tile(2)], dot_int8),
        _ => return false,
    }
    true
}

fn configure(tiles: &mut ThreadTiles, config: &[u8; 64]) {
    *tiles = NO_TILES;
    check(config[0] == 1 && config[2..16].iter().all(|&byte| byte == 0), "palette 1, reserved zeros");
    for tile in 0..8 {
        let row_bytes = u16::from_le_bytes([config[16 + 2 * tile], config[17 + 2 * tile]]);
        (tiles.rows[tile], tiles.row_bytes[tile]) = (config[48 + tile].into(), row_bytes.into());
        check(tiles.rows[tile] <= 16 && row_bytes <= 64, "at most 16 rows of 64 bytes");
        check((tiles.rows[tile] == 0) == (row_bytes == 0), "neither rows nor bytes, or both");
    }
}

/// Adds the products of a row of a and a column of b to c's value of four bytes.
type DotProduct = fn(a: &[u8], b: &[[u8; 64]; 16], column: usize, c: [u8; 4]) -> [u8; 4];

/// c += a·b, value by value.
fn multiply(tiles: &mut ThreadTiles, [c, a, b]: [usize; 3], dot: DotProduct) {
    [c, a, b].into_iter().for_each(|tile| configured(tiles, tile));
    check(c != a && c != b && a != b, "three different tiles");
    check(tiles.rows[c] == tiles.rows[a], "rows of c and a");
    check(tiles.row_bytes[c] == tiles.row_bytes[b], "bytes of c's and b's rows");
    check(tiles.row_bytes[a] == 4 * tiles.rows[b], "groups of a's row and rows of b");
    for row in 0..tiles.rows[c] {
        for column in 0..tiles.row_bytes[c] / 4 {
            let a = &tiles.values[a][row][..tiles.row_bytes[a]];
            let was = tiles.values[c][row][4 * column..][..4].try_into().unwrap_or_default();
            let sum = dot(a, &tiles.values[b], column, was);
            tiles.values[c][row][4 * column..][..4].copy_from_slice(&sum);
        }
    }
}

fn dot_bf16(a: &[u8], b: &[[u8; 64]; 16], column: usize, c: [u8; 4]) -> [u8; 4] {
    let wide = |bytes: &[u8]| flushed(f32::from_bits(u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 24));
    let mut sums = [0.0f32; 2];
    for (pair, b) in a.chunks_exact(4).zip(b) {
        for (half, sum) in sums.iter_mut().enumerate() {
            let product = (wide(&pair[2 * half..]), wide(&b[4 * column + 2 * half..]));
            *sum = flushed(product.0.mul_add(product.1, *sum));
        }
    }
    flushed(flushed(f32::from_le_bytes(c)) + flushed(sums[0] + sums[1])).to_le_bytes()
}

fn dot_int8(a: &[u8], b: &[[u8; 64]; 16], column: usize, c: [u8; 4]) -> [u8; 4] {
    let mut sum = i32::from_le_bytes(c);
    for (four, b) in a.chunks_exact(4).zip(b) {
        for (a, b) in four.iter().zip(&b[4 * column..]) {
            sum = sum.wrapping_add(i32::from(*a as i8) * i32::from(*b as i8));
        }
    }
    sum.to_le_bytes()
}

/// Flushes a denormal to a zero of its sign.
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0.0f32.copysign(x) } else { x }
}

/// The address of row `row` of a tile. The index register holds the distance of rows.
fn row_address(instruction: &Instruction, registers: &[i64; 23], row: usize) -> u64 {
    let base =
        register(instruction.memory_base(), registers).wrapping_add(instruction.memory_displacement64());
    let stride =
        register(instruction.memory_index(), registers) * u64::from(instruction.memory_index_scale());
    base.wrapping_add(stride.wrapping_mul(row as u64))
}

fn register(register: Register, registers: &[i64; 23]) -> u64 {
    let at = match register {
        Register::None => return 0,
        Register::RAX => libc::REG_RAX,
        Register::RBX => libc::REG_RBX,
        Register::RCX => libc::REG_RCX,
        Register::RDX => libc::REG_RDX,
        Register::RSI => libc::REG_RSI,
        Register::RDI => libc::REG_RDI,
        Register::RBP => libc::REG_RBP,
        Register::RSP => libc::REG_RSP,
        Register::R8 => libc::REG_R8,
        Register::R9 => libc::REG_R9,
        Register::R10 => libc::REG_R10,
        Register::R11 => libc::REG_R11,
        Register::R12 => libc::REG_R12,
        Register::R13 => libc::REG_R13,
        Register::R14 => libc::REG_R14,
        Register::R15 => libc::REG_R15,
        _ => return check(false, "a 64-bit register of the general kind") as u64,
    };
    registers[at as usize] as u64
}

fn configured(tiles: &ThreadTiles, tile: usize) {
    check(tiles.rows[tile] > 0, "a tile that is configured");
}

/// Ends the process where the processor would fault. A handler may not unwind, but it may write.
fn check(right: bool, wanted: &str) -> bool {
    if !right {
        for text in ["the AMX emulator misses: ", wanted, "\n"] {
            // SAFETY: the pointer and the length are those of the text.
            unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
        }
        std::process::abort();
    }
    right
}
