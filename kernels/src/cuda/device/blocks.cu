// Weights in the blocks of quantised files, in panels as kernels/src/cpu/blocks/layout.rs
// interleaves them: where a row's block has a unit of one, two or four bytes, the panel has this
// unit of each of its rows. So a word of sixteen rows is 64 consecutive bytes, and half a warp
// reads it at once.
//
// All kernels of a format are made from one description here, by groups of 32 columns:
// - SHAPE: columns and bytes of a block, bytes of a row's own scale in front of a panel's blocks,
//   what is added to numbers to make them unsigned, whether there is a minimum, how many columns
//   share bytes, and whether the halves of a group have scales of their own
// - quad_*: the numbers of four columns, as bytes
// - scales_*: by what they are multiplied, and what is subtracted
//
// A value is scale * (byte - offset) - minimum, times the row's scale; the definition is in
// kernels/src/cpu/blocks/decode.rs.
#ifndef BLOCK_FORMATS
#define BLOCK_FORMATS(M) M(q8_0) M(q6_k) M(q5_k) M(q4_k) M(q4_0) M(iq4_xs) M(iq4_nl) M(mxfp4) M(nvfp4)
#endif
#define FORMATS(M) PLAIN_FORMATS(M) BLOCK_FORMATS(M)

// One row's block in a panel of `height` rows.
typedef struct {
    const u8 *block;
    int height, lane;
} BlockRow;

// Of a group's first sixteen columns and of its last; the minimum of all.
typedef struct {
    float first, last, minimum;
} BlockScales;

// The word that begins at byte `at` of a row's block. A panel of fewer rows has words at any
// address.
static __device__ inline u32 block_word(BlockRow row, int at)
{
    const u8 *unit = row.block + at * row.height + 4 * row.lane;
    if (row.height == PANEL) return *(const u32 *)unit;
    return unit[0] | (u32)unit[1] << 8 | (u32)unit[2] << 16 | (u32)unit[3] << 24;
}

static __device__ inline u32 block_short(BlockRow row, int at)
{
    return ((const u16 *)(row.block + at * row.height))[row.lane];
}

static __device__ inline float block_half(BlockRow row, int at)
{
    return wide_half((u16)block_short(row, at));
}

static __device__ inline BlockScales one_scale(float scale)
{
    const BlockScales scales = {scale, scale, 0};
    return scales;
}

// A byte less `offset`: as the last byte of a float it is added to 2^23, exactly.
static __device__ inline float block_number(u32 quad, int i, int offset)
{
    return __uint_as_float(__byte_perm(quad, 0x4b000000u, 0x7440u | (u32)i)) - (float)(0x800000 + offset);
}

// The low or the high halves of four bytes.
static __device__ inline u32 half_bytes(u32 word, int high)
{
    return word >> (4 * high) & 0x0f0f0f0fu;
}

// The same, with the entries of a table of sixteen bytes for them.
static __device__ inline u32 look_up(uint4 table, u32 word, int high)
{
    // Three bits of each number choose among eight entries, its fourth bit between two such
    // choices.
    u32 entry = word & 0x77777777u, upper = (word & 0x88888888u) >> 1 | 0x32103210u;
    u32 front = __byte_perm(__byte_perm(table.x, table.y, entry), __byte_perm(table.z, table.w, entry), upper);
    entry >>= 16;
    upper >>= 16;
    u32 back = __byte_perm(__byte_perm(table.x, table.y, entry), __byte_perm(table.z, table.w, entry), upper);
    return __byte_perm(front, back, high ? 0x7531 : 0x6420);
}

// The values of 4-bit numbers in iq4_nl and iq4_xs, plus 128.
static __device__ inline u32 unequal_steps(u32 word, int high)
{
    const uint4 table = {0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u};
    return look_up(table, word, high);
}

// Twice the values of numbers of E2M1 (one sign, two exponent bits, one fraction bit), plus 12.
static __device__ inline u32 doubled_floats(u32 word, int high)
{
    const uint4 table = {0x0f0e0d0cu, 0x18141210u, 0x090a0b0cu, 0x00040608u};
    return look_up(table, word, high);
}

#define SHAPE(format, columns, bytes, own, offset, minimum, together, halves)                                     \
    enum {                                                                                                        \
        COLUMNS_##format = columns,                                                                               \
        BYTES_##format = bytes,                                                                                   \
        OWN_##format = own,                                                                                       \
        OFFSET_##format = offset,                                                                                 \
        MINIMUM_##format = minimum,                                                                               \
        TOGETHER_##format = together,                                                                             \
        HALVES_##format = halves                                                                                  \
    };

SHAPE(q8_0, 32, 34, 0, 128, 0, 32, 0)
static __device__ inline BlockScales scales_q8_0(BlockRow row, int group) { (void)group; return one_scale(block_half(row, 0)); }
// A signed byte plus 128 has the other sign bit.
static __device__ inline u32 quad_q8_0(BlockRow row, int group, int i) { (void)group; return block_word(row, 2 + 4 * i) ^ 0x80808080u; }

SHAPE(q4_0, 32, 18, 0, 8, 0, 32, 0)
static __device__ inline BlockScales scales_q4_0(BlockRow row, int group) { return scales_q8_0(row, group); }
static __device__ inline u32 quad_q4_0(BlockRow row, int group, int i) { (void)group; return half_bytes(block_word(row, 2 + i % 4 * 4), i / 4); }

SHAPE(iq4_nl, 32, 18, 0, 128, 0, 32, 0)
static __device__ inline BlockScales scales_iq4_nl(BlockRow row, int group) { return scales_q8_0(row, group); }
static __device__ inline u32 quad_iq4_nl(BlockRow row, int group, int i) { (void)group; return unequal_steps(block_word(row, 2 + i % 4 * 4), i / 4); }

SHAPE(mxfp4, 32, 17, 0, 12, 0, 32, 0)
static __device__ inline BlockScales scales_mxfp4(BlockRow row, int group)
{
    u32 e = row.block[row.lane];
    (void)group;
    // 2^(e - 128), subnormal for e < 2.
    return one_scale(__uint_as_float(e < 2 ? 0x200000u << e : (e - 1) << 23));
}
static __device__ inline u32 quad_mxfp4(BlockRow row, int group, int i) { (void)group; return doubled_floats(block_word(row, 1 + i % 4 * 4), i / 4); }

SHAPE(nvfp4, 64, 36, 4, 12, 0, 32, 1)
static __device__ inline BlockScales scales_nvfp4(BlockRow row, int group)
{
    u32 two = block_word(row, 0) >> (16 * group);
    const BlockScales scales = {wide_float8(two & 127) * 0.5f, wide_float8(two >> 8 & 127) * 0.5f, 0};
    return scales;
}
// Of eight bytes, the low halves are the first eight columns.
static __device__ inline u32 quad_nvfp4(BlockRow row, int group, int i)
{
    return doubled_floats(block_word(row, 4 + 16 * group + i / 4 * 8 + i % 2 * 4), i / 2 % 2);
}

SHAPE(iq4_xs, 256, 136, 0, 128, 0, 32, 0)
static __device__ inline BlockScales scales_iq4_xs(BlockRow row, int group)
{
    u32 six = (block_word(row, 4) >> (4 * group) & 15) | (block_short(row, 2) >> (2 * group) & 3) << 4;
    return one_scale(block_half(row, 0) * ((float)six - 32));
}
static __device__ inline u32 quad_iq4_xs(BlockRow row, int group, int i) { return unequal_steps(block_word(row, 8 + 16 * group + i % 4 * 4), i / 4); }

SHAPE(q4_k, 256, 144, 0, 0, 1, 64, 0)
// Six bits each. Those of the first four groups are in one byte; those of the last four are in half
// a byte and the upper bits of another.
static __device__ inline BlockScales scales_q4_k(BlockRow row, int group)
{
    int shift = group % 4 * 8;
    u32 scale = block_word(row, 4) >> shift & 255, minimum = block_word(row, 8) >> shift & 255;
    if (group < 4) {
        scale &= 63;
        minimum &= 63;
    } else {
        u32 both = block_word(row, 12) >> shift;
        scale = (both & 15) | (scale >> 6) << 4;
        minimum = (both >> 4 & 15) | (minimum >> 6) << 4;
    }
    BlockScales scales = one_scale(block_half(row, 0) * (float)scale);
    scales.minimum = block_half(row, 2) * (float)minimum;
    return scales;
}
static __device__ inline u32 quad_q4_k(BlockRow row, int group, int i) { return half_bytes(block_word(row, 16 + group / 2 * 32 + 4 * i), group % 2); }

SHAPE(q5_k, 256, 176, 0, 0, 1, 64, 0)
static __device__ inline BlockScales scales_q5_k(BlockRow row, int group) { return scales_q4_k(row, group); }
// Bit `group` of a byte is the fifth of its number.
static __device__ inline u32 quad_q5_k(BlockRow row, int group, int i)
{
    u32 fifth = block_word(row, 16 + 4 * i) >> group & 0x01010101u;
    return half_bytes(block_word(row, 48 + group / 2 * 32 + 4 * i), group % 2) | fifth << 4;
}

SHAPE(q6_k, 256, 210, 0, 32, 0, 128, 1)
static __device__ inline BlockScales scales_q6_k(BlockRow row, int group)
{
    float d = block_half(row, 208);
    u32 two = block_word(row, 192 + group / 2 * 4) >> (16 * (group % 2));
    const BlockScales scales = {d * (signed char)two, d * (signed char)(two >> 8), 0};
    return scales;
}
// Within 128 columns, groups use the low halves of 64 bytes first, then the high halves.
static __device__ inline u32 quad_q6_k(BlockRow row, int group, int i)
{
    int part = group / 4, within = group % 4;
    u32 upper = block_word(row, 128 + 32 * part + 4 * i) >> (2 * within) & 0x03030303u;
    return half_bytes(block_word(row, 64 * part + within % 2 * 32 + 4 * i), within / 2) | upper << 4;
}

// What follows from the description of a format:
// - row_bytes_*: bytes of a row
// - block_*: the block of a row that has a column
// - own_*: by what a row's values are multiplied
// - value_*: one value: the reference, for places where speed does not matter
// - eight_*: quads i and i + 4 of the group that begins at `column`, as bf16; they may share bytes
#define DESCRIBED(format)                                                                                         \
    static __device__ inline u64 row_bytes_##format(int columns)                                                  \
    {                                                                                                             \
        return OWN_##format + (u64)(columns / COLUMNS_##format) * BYTES_##format;                                 \
    }                                                                                                             \
    static __device__ inline BlockRow block_##format(const u8 *panel, int height, int lane, int column)          \
    {                                                                                                             \
        const BlockRow row = {panel + row_bytes_##format(column) * height, height, lane};                         \
        return row;                                                                                               \
    }                                                                                                             \
    static __device__ inline float own_##format(const u8 *panel, int lane)                                       \
    {                                                                                                             \
        return OWN_##format ? ((const float *)panel)[lane] : 1;                                                   \
    }                                                                                                             \
    static __device__ inline float value_##format(const u8 *panel, int height, int columns, int lane, int column) \
    {                                                                                                             \
        BlockRow row = block_##format(panel, height, lane, column);                                               \
        int group = column % COLUMNS_##format / GROUP, i = column % GROUP / 4;                                    \
        BlockScales scales = scales_##format(row, group);                                                         \
        float number = block_number(quad_##format(row, group, i), column % 4, OFFSET_##format);                   \
        (void)columns;                                                                                            \
        return ((i < 4 ? scales.first : scales.last) * number - scales.minimum) * own_##format(panel, lane);      \
    }                                                                                                             \
    static __device__ inline uint4 eight_##format(const u8 *panel, int height, int lane, int column, int i)       \
    {                                                                                                             \
        BlockRow row = block_##format(panel, height, lane, column);                                               \
        int group = column % COLUMNS_##format / GROUP;                                                            \
        BlockScales scales = scales_##format(row, group);                                                         \
        float own = own_##format(panel, lane);                                                                    \
        u32 pairs[4];                                                                                             \
        _Pragma("unroll") for (int half = 0; half < 2; half++) {                                                                    \
            u32 quad = quad_##format(row, group, i + 4 * half);                                                   \
            float values[4];                                                                                      \
            for (int j = 0; j < 4; j++)                                                                           \
                values[j] = ((half ? scales.last : scales.first) * block_number(quad, j, OFFSET_##format) - scales.minimum) * own; \
            pairs[2 * half] = narrow_pair(values[0], values[1]);                                                  \
            pairs[2 * half + 1] = narrow_pair(values[2], values[3]);                                              \
        }                                                                                                         \
        const uint4 eight = {pairs[0], pairs[1], pairs[2], pairs[3]};                                             \
        return eight;                                                                                             \
    }

BLOCK_FORMATS(DESCRIBED)
