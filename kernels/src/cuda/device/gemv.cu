// y = x * W^T for few rows of x, the weights packed in whatever format and dequantised in
// registers.
//
// Reading the weights takes most of the time, so they are read once, in whole lines, with many
// loads under way. A panel is laid out for that: 16 bytes per lane are 512 consecutive bytes, and a
// lane's bytes belong to a few rows and a few columns:
// - bf16: 8 pairs of columns, 4 lanes each; a lane has 4 rows of a pair
// - int8: a group of 32 columns, 2 lanes for each pair; a lane has 8 rows of a pair
// - int4: two groups of 32 columns, 4 lanes for each eight; a lane has 4 rows of an eight
// - fp8 and fp8_block: 16 pairs of columns, 2 lanes each; a lane has 8 rows of a pair
//
// In formats of blocks, the scales of a row take several instructions. So a lane has one row and 32
// of its columns, whose scales it decodes once. Half a warp reads the same word of sixteen rows, 64
// consecutive bytes, and has all words of the 32 columns under way; the other half has the next 32.
//
// A block takes one panel, and its eight warps take turns. At the end their sums are added in a
// fixed order, so the result does not depend on the schedule. x is staged in shared memory as f32,
// CHUNK columns at a time and padded with zeros, so that no load of it needs a bound.
//
// Eight warps with two loads each and two to eight blocks on a multiprocessor keep 16 to 64 KiB
// under way.
#define CHUNK 2048
#define WARPS 8
// Rows of a lane, and columns of a warp at a time.
enum { EACH_bf16 = 4, EACH_int8 = 8, EACH_int4 = 4, EACH_fp8 = 8, EACH_fp8_block = 8 };
enum { STEP_bf16 = 16, STEP_int8 = 32, STEP_int4 = 64, STEP_fp8 = 32, STEP_fp8_block = 32 };
// The same columns in formats of blocks.
#define STEP_COLUMNS(format) (TOGETHER_##format > 2 * GROUP ? TOGETHER_##format : 2 * GROUP)

typedef struct {
    const u16 *x; // rows of `columns` values, `x_stride` values apart
    const u8 *w;  // packed, [rows][columns]
    void *y;      // rows of `rows` values, `y_stride` values apart: bf16, or f32 where `wide`
    int rows, columns, x_stride, y_stride, wide, unused;
} Gemv;

static __device__ inline void put(const Gemv *a, int row, float sum)
{
    u64 at = (u64)blockIdx.y * a->y_stride + blockIdx.x * PANEL + row;
    if (a->wide) ((float *)a->y)[at] = sum;
    else ((u16 *)a->y)[at] = narrow(sum);
}

static __device__ inline void stage(float *x, const Gemv *a, int from)
{
    const u16 *row = a->x + (u64)blockIdx.y * a->x_stride;
    // Other threads may still read the previous chunk.
    __syncthreads();
    for (int i = threadIdx.x; i < CHUNK; i += blockDim.x) x[i] = from + i < a->columns ? wide(row[from + i]) : 0;
    __syncthreads();
}

// Each adds its lane's part of the step that begins at column `from + column` of `columns`; `x` holds
// the columns from `from` on, up to `from + to`.
static __device__ inline void step_bf16(float *sums, const u8 *panel, const float *x, int from, int column, int to, int columns)
{
    (void)columns;
    int lane = threadIdx.x % WARP;
    column += lane / 4 * 2;
    const u8 *pair = panel + (u64)(from + column) * 2 * PANEL;
    if (column + 1 < to) {
        uint4 four = *(const uint4 *)(pair + 16 * (lane % 4));
        sums[0] += low(four.x) * x[column] + high(four.x) * x[column + 1];
        sums[1] += low(four.y) * x[column] + high(four.y) * x[column + 1];
        sums[2] += low(four.z) * x[column] + high(four.z) * x[column + 1];
        sums[3] += low(four.w) * x[column] + high(four.w) * x[column + 1];
    } else if (column < to) { // the last of an odd number has no partner
        for (int i = 0; i < 4; i++) sums[i] += wide(((const u16 *)pair)[lane % 4 * 4 + i]) * x[column];
    }
}

static __device__ inline float integers(u32 word, int at, float first, float second)
{
    return (float)(signed char)(word >> at) * first + (float)(signed char)(word >> (at + 8)) * second;
}

static __device__ inline void step_int8(float *sums, const u8 *panel, const float *x, int from, int column, int to, int columns)
{
    (void)columns;
    int lane = threadIdx.x % WARP;
    const u8 *group = panel + (u64)((from + column) / GROUP) * PANEL * (2 + GROUP);
    // The scales of this lane's eight rows, then their values.
    uint4 scales = *(const uint4 *)(group + 16 * (lane % 2)), q = *(const uint4 *)(group + 2 * PANEL + 16 * lane);
    float first = x[column + lane / 2 * 2], second = x[column + lane / 2 * 2 + 1];
    const u32 scale[4] = {scales.x, scales.y, scales.z, scales.w}, word[4] = {q.x, q.y, q.z, q.w};
    (void)to; // columns of a group beyond the last are zeros, and so is x there
    for (int i = 0; i < 4; i++) {
        sums[2 * i] += wide_half((u16)scale[i]) * integers(word[i], 0, first, second);
        sums[2 * i + 1] += wide_half((u16)(scale[i] >> 16)) * integers(word[i], 16, first, second);
    }
}

static __device__ inline void step_int4(float *sums, const u8 *panel, const float *x, int from, int column, int to, int columns)
{
    (void)columns;
    int lane = threadIdx.x % (WARP / 2);
    column += threadIdx.x % WARP / (WARP / 2) * GROUP;
    if (column >= to) return;
    const u8 *group = panel + (u64)((from + column) / GROUP) * PANEL * (2 + GROUP / 2);
    uint2 scales = *(const uint2 *)(group + 8 * (lane % 4));
    uint4 q = *(const uint4 *)(group + 2 * PANEL + 16 * lane);
    const float *eight = x + column + lane / 4 * 8;
    const u32 word[4] = {q.x, q.y, q.z, q.w};
    const u16 scale[4] = {(u16)scales.x, (u16)(scales.x >> 16), (u16)scales.y, (u16)(scales.y >> 16)};
    for (int i = 0; i < 4; i++) {
        float sum = 0;
        // Nibbles j and j + 4 are columns 2j and 2j + 1.
        for (int j = 0; j < 4; j++) {
            sum += ((float)(word[i] >> (4 * j) & 15) - 8) * eight[2 * j];
            sum += ((float)(word[i] >> (4 * j + 16) & 15) - 8) * eight[2 * j + 1];
        }
        sums[i] += wide_half(scale[i]) * sum;
    }
}

// The products of 8 rows of a pair of columns at `pair` with x, times `scale`.
static __device__ inline void add_float8(float *sums, const u8 *pair, const float *x, float scale, int column, int to)
{
    int lane = threadIdx.x % WARP;
    column += lane / 2 * 2;
    pair += (u64)(lane / 2) * 2 * PANEL;
    if (column + 1 < to) {
        uint4 four = *(const uint4 *)(pair + 16 * (lane % 2));
        const u32 word[4] = {four.x, four.y, four.z, four.w};
        float first = scale * x[column], second = scale * x[column + 1];
        for (int i = 0; i < 4; i++) {
            sums[2 * i] += wide_float8(word[i]) * first + wide_float8(word[i] >> 8) * second;
            sums[2 * i + 1] += wide_float8(word[i] >> 16) * first + wide_float8(word[i] >> 24) * second;
        }
    } else if (column < to) { // the last of an odd number has no partner
        for (int i = 0; i < 8; i++) sums[i] += wide_float8(pair[lane % 2 * 8 + i]) * scale * x[column];
    }
}

// The scales of rows are left to the end.
static __device__ inline void step_fp8(float *sums, const u8 *panel, const float *x, int from, int column, int to, int columns)
{
    (void)columns;
    add_float8(sums, panel + (u64)(4 + from + column) * PANEL, x, 1, column, to);
}

static __device__ inline void step_fp8_block(float *sums, const u8 *panel, const float *x, int from, int column, int to, int columns)
{
    const u8 *pair = panel + (u64)((columns + 511) / 512 + from + column) * PANEL;
    add_float8(sums, pair, x, ((const float *)panel)[(from + column) / 128], column, to);
}

// The product of a group's row with x, which half a warp reads at the same addresses.
#define DOT(format)                                                                                               \
    static __device__ inline float dot_##format(const u8 *panel, const float *x, int column)                     \
    {                                                                                                             \
        int lane = threadIdx.x % PANEL, group = column % COLUMNS_##format / GROUP;                                \
        BlockRow row = block_##format(panel, PANEL, lane, column);                                                \
        BlockScales scales = scales_##format(row, group);                                                         \
        float first = 0, last = 0, all = 0;                                                                       \
        _Pragma("unroll") for (int i = 0; i < 8; i++) {                                                           \
            u32 quad = quad_##format(row, group, i);                                                              \
            uint4 four = *(const uint4 *)(x + 4 * i);                                                             \
            float sum = block_number(quad, 0, OFFSET_##format) * __uint_as_float(four.x);                         \
            sum += block_number(quad, 1, OFFSET_##format) * __uint_as_float(four.y);                              \
            sum += block_number(quad, 2, OFFSET_##format) * __uint_as_float(four.z);                              \
            sum += block_number(quad, 3, OFFSET_##format) * __uint_as_float(four.w);                              \
            if (i < 4) first += sum;                                                                              \
            else last += sum;                                                                                     \
        }                                                                                                         \
        if (MINIMUM_##format) {                                                                                   \
            all = x[lane] + x[lane + PANEL];                                                                      \
            for (int apart = PANEL / 2; apart > 0; apart /= 2) all += __shfl_xor_sync(ALL, all, apart);           \
        }                                                                                                         \
        return scales.first * first + scales.last * last - scales.minimum * all;                                  \
    }

// A block of a format with minima has an even number of groups, so all lanes take part in the
// shuffles.
#define STEP(format)                                                                                              \
    DOT(format)                                                                                                   \
    static __device__ inline void step_##format(float *sums, const u8 *panel, const float *x, int from, int column, int to, int columns) \
    {                                                                                                             \
        int end = column + STEP_COLUMNS(format);                                                                  \
        (void)columns;                                                                                            \
        for (column += threadIdx.x % WARP / PANEL * GROUP; column < end; column += 2 * GROUP)                     \
            if (column < to) sums[0] += dot_##format(panel, x + column, from + column);                           \
    }                                                                                                             \
    static __device__ inline void scale_##format(float *sums, const u8 *panel)                                   \
    {                                                                                                             \
        sums[0] *= own_##format(panel, threadIdx.x % PANEL);                                                      \
    }

BLOCK_FORMATS(STEP)

// Each multiplies its lane's sums by the scales of their rows, in formats that have such.
static __device__ inline void scale_bf16(float *sums, const u8 *panel) { (void)sums, (void)panel; }
static __device__ inline void scale_int8(float *sums, const u8 *panel) { (void)sums, (void)panel; }
static __device__ inline void scale_int4(float *sums, const u8 *panel) { (void)sums, (void)panel; }
static __device__ inline void scale_fp8_block(float *sums, const u8 *panel) { (void)sums, (void)panel; }

static __device__ inline void scale_fp8(float *sums, const u8 *panel)
{
    for (int i = 0; i < 8; i++) sums[i] *= ((const float *)panel)[threadIdx.x % 2 * 8 + i];
}

// Adds up `each` rows per lane over the lanes that have the same rows (those whose number is the
// same modulo PANEL / each), then over the warps, and writes the panel's rows.
static __device__ inline void finish(const Gemv *a, float *sums, int each)
{
    __shared__ float of_warp[WARPS][PANEL];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, apart = PANEL / each;
    for (int i = 0; i < each; i++) {
        for (int other = apart; other < WARP; other *= 2) sums[i] += __shfl_xor_sync(ALL, sums[i], other);
        if (lane < apart) of_warp[warp][lane * each + i] = sums[i];
    }
    __syncthreads();
    if (threadIdx.x < PANEL) {
        float sum = 0;
        for (int i = 0; i < WARPS; i++) sum += of_warp[i][threadIdx.x];
        put(a, threadIdx.x, sum);
    }
}

// A last panel of fewer rows has no lines of 512 bytes, so a warp takes a row, value by value.
#define LAST(format)                                                                                              \
    static __device__ inline void last_##format(const Gemv *a, const u8 *panel, int height)                      \
    {                                                                                                             \
        const u16 *x = a->x + (u64)blockIdx.y * a->x_stride;                                                      \
        for (int lane = threadIdx.x / WARP; lane < height; lane += WARPS) {                                       \
            float sum = 0;                                                                                        \
            for (int column = threadIdx.x % WARP; column < a->columns; column += WARP)                            \
                sum += wide(x[column]) * value_##format(panel, height, a->columns, lane, column);                 \
            sum = warp_sum(sum);                                                                                  \
            if (threadIdx.x % WARP == 0) put(a, lane, sum);                                                       \
        }                                                                                                         \
    }

FORMATS(LAST)

// Panel blockIdx.x of row blockIdx.y. `each` rows per lane, `step` columns per warp.
#define PRODUCT(format, each, step)                                                                               \
    static __device__ inline void product_##format(const Gemv *a)                                                \
    {                                                                                                             \
        __shared__ __align__(16) float x[CHUNK];                                                                                \
        const u8 *panel = a->w + (u64)blockIdx.x * PANEL * row_bytes_##format(a->columns);                        \
        int height = height_of(blockIdx.x, a->rows), warp = threadIdx.x / WARP;                                   \
        if (height < PANEL) {                                                                                     \
            last_##format(a, panel, height);                                                                      \
            return;                                                                                               \
        }                                                                                                         \
        float sums[each] = {0};                                                                                   \
        for (int from = 0; from < a->columns; from += CHUNK) {                                                    \
            stage(x, a, from);                                                                                    \
            int to = a->columns - from < CHUNK ? a->columns - from : CHUNK;                                       \
            _Pragma("unroll 4") for (int column = warp * step; column < to; column += WARPS * step)               \
                step_##format(sums, panel, x, from, column, to, a->columns);                                      \
        }                                                                                                         \
        scale_##format(sums, panel);                                                                              \
        finish(a, sums, each);                                                                                    \
    }

#define PRODUCT_OF_PLAIN(format) PRODUCT(format, EACH_##format, STEP_##format)
PLAIN_FORMATS(PRODUCT_OF_PLAIN)
#define PRODUCT_OF_BLOCKS(format) PRODUCT(format, 1, STEP_COLUMNS(format))
BLOCK_FORMATS(PRODUCT_OF_BLOCKS)

// Grid: panels, rows of x.
#define GEMV(format)                                                                                              \
    KERNEL(gemv_##format, Gemv, 256) { product_##format(&a); }

FORMATS(GEMV)

typedef struct {
    const u16 *x;     // rows of `columns` values, each for `per_row` results
    u16 *y;           // [results][rows]
    const int *ids;   // [results], which expert
    int rows, columns, per_row, first, count, unused;
    const u8 *w[EXPERTS]; // of expert `first` and those that follow it, `count` of them
} Experts;

// Each result by its own expert's matrix. Results of experts that this call does not have are left
// alone. Grid: panels, results.
#define EXPERT(format)                                                                                            \
    KERNEL(gemv_experts_##format, Experts, 256)                                                                   \
    {                                                                                                             \
        int expert = a.ids[blockIdx.y] - a.first;                                                                 \
        if (expert < 0 || expert >= a.count) return;                                                              \
        const u16 *x = a.x + (u64)(blockIdx.y / a.per_row) * a.columns;                                           \
        const Gemv one = {x, a.w[expert], a.y, a.rows, a.columns, 0, a.rows, 0, 0};                               \
        product_##format(&one);                                                                                   \
    }

FORMATS(EXPERT)
