//! The operations of vectors that the kernels of blocks need, with 256 and with 512 bits.
//!
//! A vector has 32 bits of each of 8 or 16 rows of a panel. All functions are inlined into a kernel
//! that enables the instructions.

mod avx2;
mod avx512;

pub(super) use avx2::Avx2;
pub(super) use avx512::Avx512;

/// Vectors of one width.
///
/// # Safety
/// Every function needs the CPU to have the instructions. Those with an address read from it the
/// bytes that they name, or write them.
pub(super) trait Lanes: Copy {
    /// 32 bits for each row.
    type Int: Copy;
    /// An f32 for each row.
    type Float: Copy;
    /// Rows.
    const COUNT: usize;

    /// Four bytes for each row.
    unsafe fn words(at: *const u8) -> Self::Int;
    /// Two bytes for each row, with zeros above.
    unsafe fn shorts(at: *const u8) -> Self::Int;
    /// One byte for each row, with zeros above.
    unsafe fn bytes(at: *const u8) -> Self::Int;
    /// An f16 for each row.
    unsafe fn halves(at: *const u8) -> Self::Float;
    /// The same word for each row.
    unsafe fn splat(word: u32) -> Self::Int;
    unsafe fn and(a: Self::Int, b: Self::Int) -> Self::Int;
    unsafe fn or(a: Self::Int, b: Self::Int) -> Self::Int;
    unsafe fn xor(a: Self::Int, b: Self::Int) -> Self::Int;
    unsafe fn add(a: Self::Int, b: Self::Int) -> Self::Int;
    /// The larger of signed words.
    unsafe fn max(a: Self::Int, b: Self::Int) -> Self::Int;
    /// The smaller of signed words.
    unsafe fn min(a: Self::Int, b: Self::Int) -> Self::Int;
    unsafe fn right(a: Self::Int, bits: u32) -> Self::Int;
    unsafe fn left(a: Self::Int, bits: u32) -> Self::Int;
    /// As `left`, by a number of bits of each row's own.
    unsafe fn left_each(a: Self::Int, bits: Self::Int) -> Self::Int;
    /// A right shift that repeats the sign.
    unsafe fn right_signed(a: Self::Int, bits: u32) -> Self::Int;
    /// A table of sixteen bytes.
    unsafe fn table(entries: &[u8; 16]) -> Self::Int;
    /// The table's entry for each byte, which is below 16.
    unsafe fn look_up(table: Self::Int, bytes: Self::Int) -> Self::Int;
    /// Signed words as floats.
    unsafe fn to_float(a: Self::Int) -> Self::Float;
    /// The floats of these bits.
    unsafe fn from_bits(a: Self::Int) -> Self::Float;
    unsafe fn zero() -> Self::Float;
    unsafe fn splat_float(value: f32) -> Self::Float;
    unsafe fn mul(a: Self::Float, b: Self::Float) -> Self::Float;
    /// a·b + c.
    unsafe fn mul_add(a: Self::Float, b: Self::Float, c: Self::Float) -> Self::Float;
    /// c − a·b.
    unsafe fn mul_sub(a: Self::Float, b: Self::Float, c: Self::Float) -> Self::Float;
    unsafe fn store(to: *mut f32, value: Self::Float);
    /// start + the products of unsigned bytes `quads[FROM..TO]`, four columns each, with sixteen
    /// integers of x at `x` (see `input`).
    unsafe fn products<const FROM: usize, const TO: usize>(
        quads: &[Self::Int; 8],
        x: *const i32,
        start: i32,
    ) -> Self::Int;
}
