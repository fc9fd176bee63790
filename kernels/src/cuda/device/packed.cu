// Weights as kernels/src/cpu/weights/mod.rs packs them for the CPU: panels of 16 rows. The GPU
// reads the same bytes, so that a matrix in the host's memory is streamed and multiplied without
// being packed again.
#define PANEL 16
#define GROUP 32
// The most experts of one call: a structure of arguments is at most 4 KiB.
#define EXPERTS 128

// Kernels are made for each of these formats and of those in blocks.cu. A program that is compiled
// for one format defines both lists before.
#ifndef PLAIN_FORMATS
#define PLAIN_FORMATS(M) M(bf16) M(int8) M(int4) M(fp8) M(fp8_block)
#endif

// The exact difference of two pairs of bf16.
static __device__ inline u32 pair_less(u32 a, u32 b)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    u32 difference;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(difference) : "r"(b), "r"(0xbf80bf80u), "r"(a)); // b * -1 + a
    return difference;
#else
    return narrow_pair(low(a) - low(b), high(a) - high(b));
#endif
}

// Bytes i and i + 1 less `offset`, as bf16. As the lower half of a bf16 whose upper half is 0x43, a
// number below 128 counts from 128 on; the upper bit of a byte is taken off what is subtracted.
static __device__ inline u32 numbers_of(u32 quad, int i, int offset)
{
    const u32 places = i ? 0x4342u : 0x4140u, ones = 0x43434343u;
    if (offset < 128) {
        const u32 zero = __float_as_uint((float)(128 + offset)) >> 16;
        return pair_less(__byte_perm(quad, ones, places), zero << 16 | zero);
    }
    // 128 where the bit is set, and 256 where it is not.
    return pair_less(__byte_perm(quad & 0x7f7f7f7fu, ones, places), __byte_perm(~quad & 0x80808080u, ones, places));
}

// Two numbers of E4M3 in bytes i and i + 1, as bf16: their exponents are 120 too small at first.
static __device__ inline u32 float8_pair(u32 quad, int i)
{
    u32 bytes = __byte_perm(quad, 0, i ? 0x3424u : 0x1404u);
    u32 small = (bytes & 0x80008000u) | (bytes >> 4 & 0x07f007f0u);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    u32 pair;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(small), "r"(0x7b807b80u), "r"(0x80008000u)); // * 2^120 - 0
    return pair;
#else
    return narrow_pair(low(small) * __uint_as_float(0x7b800000u), high(small) * __uint_as_float(0x7b800000u));
#endif
}

// Nibbles i and i + 4 of a word of eight 4-bit numbers, less 8, as bf16: columns 2 i and 2 i + 1.
static __device__ inline u32 nibble_pair(u32 word, int i)
{
    return pair_less((word >> (4 * i) & 0x000f000fu) | 0x43004300u, 0x43084308u);
}

// Bytes of a row: with its share of scales, in whole groups.
static __device__ inline u64 row_bytes_bf16(int columns) { return 2 * (u64)columns; }
static __device__ inline u64 row_bytes_int8(int columns) { return (u64)((columns + GROUP - 1) / GROUP) * (2 + GROUP); }
static __device__ inline u64 row_bytes_int4(int columns) { return (u64)((columns + GROUP - 1) / GROUP) * (2 + GROUP / 2); }
static __device__ inline u64 row_bytes_fp8(int columns) { return 4 + (u64)columns; }
static __device__ inline u64 row_bytes_fp8_block(int columns) { return (u64)((columns + 511) / 512) + columns; }

// Rows of a panel: the last may have fewer.
static __device__ inline int height_of(int panel, int rows)
{
    int left = rows - panel * PANEL;
    return left < PANEL ? left : PANEL;
}

// Which of a panel's values is that of a row and a column: columns lie in pairs.
static __device__ inline int pair_slot(int height, int columns, int lane, int column)
{
    int alone = columns % 2 == 1 && column == columns - 1;
    return column / 2 * 2 * height + (alone ? lane : 2 * lane + column % 2);
}

// One value: the reference, for places where speed does not matter.
static __device__ inline float value_bf16(const u8 *panel, int height, int columns, int lane, int column)
{
    return wide(((const u16 *)panel)[pair_slot(height, columns, lane, column)]);
}

static __device__ inline float value_int8(const u8 *panel, int height, int columns, int lane, int column)
{
    const u8 *group = panel + (u64)(column / GROUP) * height * (2 + GROUP);
    int offset = column % GROUP;
    (void)columns;
    return wide_half(((const u16 *)group)[lane]) * (signed char)group[2 * height + (offset / 2 * height + lane) * 2 + offset % 2];
}

static __device__ inline float value_int4(const u8 *panel, int height, int columns, int lane, int column)
{
    const u8 *group = panel + (u64)(column / GROUP) * height * (2 + GROUP / 2);
    int offset = column % GROUP, eighth = offset % 8, nibble = eighth / 2 + 4 * (eighth % 2);
    (void)columns;
    u8 pair = group[2 * height + (offset / 8 * height + lane) * 4 + nibble / 2];
    return wide_half(((const u16 *)group)[lane]) * ((float)(pair >> 4 * (nibble % 2) & 15) - 8);
}

static __device__ inline float value_fp8(const u8 *panel, int height, int columns, int lane, int column)
{
    u8 number = panel[4 * height + pair_slot(height, columns, lane, column)];
    return ((const float *)panel)[lane] * wide_float8(number);
}

// Panels are whole, and 128 columns of all rows share a scale.
static __device__ inline float value_fp8_block(const u8 *panel, int height, int columns, int lane, int column)
{
    u8 number = panel[(columns + 511) / 512 * height + pair_slot(height, columns, lane, column)];
    return ((const float *)panel)[column / 128] * wide_float8(number);
}
