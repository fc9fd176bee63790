// y = x * W^T for few rows of x, the weights packed in whatever format and widened in registers.
//
// Reading the weights takes most of the time, so they are read once for all rows of x of a block,
// with many bytes under way, and multiplied by tensor cores where those multiply bf16: the 16 rows
// of a panel are the rows of `multiply`'s a, and 8 rows of x are the columns of its b. A number of
// a quantised format is an integer or a short float, which bf16 has exactly; the scales multiply
// the sums in f32.
//
// A block takes one panel, and its warps take turns at the columns: each brings its next columns to
// shared memory as they lie, while it multiplies others. At the end their sums are added in a fixed
// order, so the result does not depend on the schedule. Each lane gets the words of two rows of the
// panel, 32 columns at a time; which columns these are differs between formats, and x is read in
// the same order.
#define WARPS 4
#define THREADS (WARPS * WARP)

typedef struct {
    const u16 *x; // rows of `columns` values, `x_stride` values apart
    const u8 *w;  // packed, [rows][columns]
    void *y;      // rows of `rows` values, `y_stride` values apart: bf16, or f32 where `wide`
    int rows, columns, x_stride, y_stride, wide;
    int m; // rows of x
} Gemv;

// 32 columns of a panel: what a lane has of them, and by what their sums are multiplied. With g =
// lane / 4 and t = lane % 4 it has two rows; their first words are the columns of the first
// product, the others those of the second.
typedef struct {
    u32 numbers[2][4];
    float first[2], last[2], minimum[2]; // of each row; of the first 16 columns and of the last
} Group;

// How the 32 columns are divided: a lane has eight that follow each other from 8 t on, or four of
// the first half and four of the last, where the halves have scales of their own.
#define EIGHTS 0
#define QUADS 1
enum { ORDER_bf16 = EIGHTS, ORDER_int8 = EIGHTS, ORDER_int4 = EIGHTS, ORDER_fp8 = EIGHTS, ORDER_fp8_block = EIGHTS };
// The rows that a lane has: g and g + 8, or 2 g and 2 g + 1, where a word has bytes of both.
#define APART_ROWS 0
#define ADJACENT_ROWS 1
enum { ROWS_bf16 = APART_ROWS, ROWS_int8 = ADJACENT_ROWS, ROWS_int4 = APART_ROWS, ROWS_fp8 = ADJACENT_ROWS, ROWS_fp8_block = ADJACENT_ROWS };
// What is multiplied by scales: nothing before the end, 32 columns of a row, halves of them, or 128
// columns of all rows.
#define UNSCALED 0
#define BY_GROUP 1
#define BY_HALF 2
#define BY_COLUMNS 3
enum { SCALES_bf16 = UNSCALED, SCALES_int8 = BY_GROUP, SCALES_int4 = BY_GROUP, SCALES_fp8 = UNSCALED, SCALES_fp8_block = BY_COLUMNS };
// Columns of a warp at a time.
enum { STEP_bf16 = 32, STEP_int8 = 64, STEP_int4 = 128, STEP_fp8 = 64, STEP_fp8_block = 64 };

static __device__ inline int row_of(int rows, int which)
{
    int g = threadIdx.x % WARP / 4;
    return rows == APART_ROWS ? g + which * (PANEL / 2) : 2 * g + which;
}

// Bytes in front of a panel's numbers, besides those of scales of 128 columns. Columns of a block,
// and bytes of a panel's block.
enum { FRONT_bf16, FRONT_int8 = 0, FRONT_int4 = 0, FRONT_fp8 = 4 * PANEL, FRONT_fp8_block = 0 };
enum { COLUMNS_bf16 = GROUP, COLUMNS_int8 = GROUP, COLUMNS_int4 = GROUP, COLUMNS_fp8 = GROUP, COLUMNS_fp8_block = GROUP };
enum { BLOCK_bf16 = 2 * GROUP * PANEL, BLOCK_int8 = (2 + GROUP) * PANEL, BLOCK_int4 = (2 + GROUP / 2) * PANEL };
enum { BLOCK_fp8 = GROUP * PANEL, BLOCK_fp8_block = GROUP * PANEL };

// Each reads group `number` of a panel's block.
static __device__ inline void read_bf16(Group *group, const u8 *block, int number)
{
    int t = threadIdx.x % 4, g = threadIdx.x % WARP / 4;
    const u32 *pairs = (const u32 *)block + 4 * t * PANEL + g;
    (void)number;
#pragma unroll
    for (int i = 0; i < 8; i++) group->numbers[i / 4][i % 4] = pairs[(i / 4 * 2 + i % 4 / 2) * PANEL + i % 2 * (PANEL / 2)];
}

static __device__ inline void read_int8(Group *group, const u8 *block, int number)
{
    int t = threadIdx.x % 4, g = threadIdx.x % WARP / 4;
    const u32 *words = (const u32 *)block;
    u32 scales = words[g];
    (void)number;
    group->first[0] = wide_half((u16)scales);
    group->first[1] = wide_half((u16)(scales >> 16));
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 word = words[PANEL / 2 + (4 * t + i) * (PANEL / 2) + g] ^ 0x80808080u;
        group->numbers[i / 2][i % 2 * 2] = numbers_of(word, 0, 128);
        group->numbers[i / 2][i % 2 * 2 + 1] = numbers_of(word, 2, 128);
    }
}

static __device__ inline void read_int4(Group *group, const u8 *block, int number)
{
    int t = threadIdx.x % 4, g = threadIdx.x % WARP / 4;
    const u32 *words = (const u32 *)(block + 2 * PANEL) + t * PANEL + g;
    (void)number;
#pragma unroll
    for (int which = 0; which < 2; which++) {
        u32 word = words[which * (PANEL / 2)];
        group->first[which] = wide_half(((const u16 *)block)[g + which * (PANEL / 2)]);
#pragma unroll
        for (int i = 0; i < 4; i++) group->numbers[i / 2][i % 2 * 2 + which] = nibble_pair(word, i);
    }
}

// The scales of rows are left to the end, and those of 128 columns to the caller.
static __device__ inline void read_fp8(Group *group, const u8 *block, int number)
{
    int t = threadIdx.x % 4, g = threadIdx.x % WARP / 4;
    const u32 *words = (const u32 *)block + 4 * t * (PANEL / 2) + g;
    (void)number;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 word = words[i * (PANEL / 2)];
        group->numbers[i / 2][i % 2 * 2] = float8_pair(word, 0);
        group->numbers[i / 2][i % 2 * 2 + 1] = float8_pair(word, 2);
    }
}

static __device__ inline void read_fp8_block(Group *group, const u8 *block, int number) { read_fp8(group, block, number); }

#define READ_BLOCKS(format)                                                                                       \
    enum {                                                                                                        \
        ORDER_##format = QUADS,                                                                                   \
        ROWS_##format = APART_ROWS,                                                                               \
        SCALES_##format = HALVES_##format ? BY_HALF : BY_GROUP,                                                   \
        FRONT_##format = OWN_##format * PANEL,                                                                    \
        BLOCK_##format = BYTES_##format * PANEL,                                                                  \
        STEP_##format = COLUMNS_##format > 4 * GROUP ? COLUMNS_##format : BYTES_##format > 32 && COLUMNS_##format == GROUP ? 2 * GROUP : 4 * GROUP \
    };                                                                                                            \
    static __device__ inline void read_##format(Group *group, const u8 *block, int number)                       \
    {                                                                                                             \
        int t = threadIdx.x % 4;                                                                                  \
        _Pragma("unroll") for (int which = 0; which < 2; which++) {                                               \
            const BlockRow row = {block, PANEL, row_of(APART_ROWS, which)};                                       \
            BlockScales scales = scales_##format(row, number);                                                    \
            group->first[which] = scales.first;                                                                   \
            group->last[which] = scales.last;                                                                     \
            group->minimum[which] = scales.minimum;                                                               \
            _Pragma("unroll") for (int half = 0; half < 2; half++) {                                              \
                u32 quad = quad_##format(row, number, t + 4 * half);                                              \
                group->numbers[half][which] = numbers_of(quad, 0, OFFSET_##format);                               \
                group->numbers[half][which + 2] = numbers_of(quad, 2, OFFSET_##format);                           \
            }                                                                                                     \
        }                                                                                                         \
    }

BLOCK_FORMATS(READ_BLOCKS)

// Adds the product of 32 columns with `tiles` times 8 rows of x. What is subtracted of a column is
// the group's minimum times the value of x, so a product with ones gives the sums of x.
static __device__ inline void add_group(float sums[][4], const Group *group, u32 x[][4], int tiles, int scales, int has_minimum)
{
    const u32 ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
#pragma unroll
    for (int tile = 0; tile < tiles; tile++) {
        if (scales == UNSCALED) {
            multiply(sums[tile], group->numbers[0], x[tile]);
            multiply(sums[tile], group->numbers[1], x[tile] + 2);
            continue;
        }
        float first[4] = {0}, last[4] = {0}, all[4] = {0};
        multiply(first, group->numbers[0], x[tile]);
        multiply(scales == BY_HALF ? last : first, group->numbers[1], x[tile] + 2);
        if (has_minimum) {
            multiply(all, ones, x[tile]);
            multiply(all, ones, x[tile] + 2);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sums[tile][i] += group->first[i / 2] * first[i];
            if (scales == BY_HALF) sums[tile][i] += group->last[i / 2] * last[i];
            if (has_minimum) sums[tile][i] -= group->minimum[i / 2] * all[i];
        }
    }
}

static __device__ inline void put(const Gemv *a, int row, int column, float sum)
{
    u64 at = (u64)row * a->y_stride + column;
    if (a->wide) ((float *)a->y)[at] = sum;
    else ((u16 *)a->y)[at] = narrow(sum);
}

// By what the sums of a row of W are multiplied at the end.
static __device__ inline float scale_of_bf16(const u8 *panel, int row) { (void)panel, (void)row; return 1; }
static __device__ inline float scale_of_int8(const u8 *panel, int row) { return scale_of_bf16(panel, row); }
static __device__ inline float scale_of_int4(const u8 *panel, int row) { return scale_of_bf16(panel, row); }
static __device__ inline float scale_of_fp8_block(const u8 *panel, int row) { return scale_of_bf16(panel, row); }
static __device__ inline float scale_of_fp8(const u8 *panel, int row) { return ((const float *)panel)[row]; }
#define SCALE_OF_BLOCKS(format)                                                                                   \
    static __device__ inline float scale_of_##format(const u8 *panel, int row) { return own_##format(panel, row); }
BLOCK_FORMATS(SCALE_OF_BLOCKS)
enum { MINIMUM_bf16, MINIMUM_int8 = 0, MINIMUM_int4 = 0, MINIMUM_fp8 = 0, MINIMUM_fp8_block = 0 };

// A last panel of fewer rows does not lie in whole words, so a warp takes a row, value by value.
#define LAST(format)                                                                                              \
    static __device__ inline void last_##format(const Gemv *a, const u8 *panel, int height, int from, int to)    \
    {                                                                                                             \
        for (int i = threadIdx.x / WARP; i < height * (to - from); i += WARPS) {                                  \
            int row = from + i / height, lane = i % height;                                                       \
            float sum = 0;                                                                                        \
            for (int column = threadIdx.x % WARP; column < a->columns; column += WARP)                            \
                sum += wide(a->x[(u64)row * a->x_stride + column]) * value_##format(panel, height, a->columns, lane, column); \
            sum = warp_sum(sum);                                                                                  \
            if (threadIdx.x % WARP == 0) put(a, row, a->rows - height + lane, sum);                               \
        }                                                                                                         \
    }

FORMATS(LAST)

// `count` blocks of a panel in shared memory, from `column` on, times `tiles` times 8 rows of x.
// `panel` is where the panel lies in memory.
#define BLOCKS(format, name, tiles)                                                                               \
    static __device__ inline void name##_blocks_##format(float sums[tiles][4], const u8 *panel, const u8 *blocks, const u16 *const *x_of, int column, int count) \
    {                                                                                                             \
        int t = threadIdx.x % 4;                                                                                  \
        _Pragma("unroll") for (int part = 0; part < count * (COLUMNS_##format / GROUP); part++) {                 \
            u32 x[tiles][4];                                                                                      \
            _Pragma("unroll") for (int tile = 0; tile < tiles; tile++)                                            \
                _Pragma("unroll") for (int half = 0; half < 2; half++) {                                          \
                    int first = ORDER_##format == EIGHTS ? 8 * t + 4 * half : 4 * t + GROUP / 2 * half;           \
                    uint2 four = *(const uint2 *)(x_of[tile] + column + part * GROUP + first);                    \
                    x[tile][2 * half] = four.x;                                                                   \
                    x[tile][2 * half + 1] = four.y;                                                               \
                }                                                                                                 \
            Group group;                                                                                          \
            read_##format(&group, blocks + part * GROUP / COLUMNS_##format * BLOCK_##format, part % (COLUMNS_##format / GROUP)); \
            if (SCALES_##format == BY_COLUMNS)                                                                    \
                group.first[0] = group.first[1] = ((const float *)panel)[(column + part * GROUP) / 128];          \
            add_group(sums, &group, x, tiles, SCALES_##format, MINIMUM_##format);                                 \
        }                                                                                                         \
    }

// Begins to bring `bytes` bytes, a multiple of 16, to a warp's part of shared memory.
static __device__ inline void bring(u8 *to, const u8 *from, int bytes)
{
    for (int i = threadIdx.x % WARP * 16; i < bytes; i += WARP * 16) copy_ahead(to + i, from + i);
}

// Panel blockIdx.x times `tiles` times 8 rows of x from blockIdx.y on, with `stages` steps in
// shared memory. Rows of x that do not begin at multiples of 8 bytes are left to the end, where
// each value is read alone.
#define PRODUCT(format, name, tiles, stages)                                                                      \
    BLOCKS(format, name, tiles)                                                                                   \
    static __device__ inline void name##_##format(const Gemv *a)                                                 \
    {                                                                                                             \
        enum { STEP_BYTES = STEP_##format / COLUMNS_##format * BLOCK_##format };                                  \
        __shared__ __align__(16) u8 staged[WARPS][stages][STEP_BYTES];                                            \
        __shared__ float of_warp[WARPS][PANEL][8 * tiles];                                                        \
        int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4, warp = threadIdx.x / WARP;                           \
        int begin = blockIdx.y * 8 * tiles, end = begin + 8 * tiles < a->m ? begin + 8 * tiles : a->m;            \
        const u8 *panel = a->w + (u64)blockIdx.x * PANEL * row_bytes_##format(a->columns);                        \
        int height = height_of(blockIdx.x, a->rows);                                                              \
        if (height < PANEL) {                                                                                     \
            last_##format(a, panel, height, begin, end);                                                          \
            return;                                                                                               \
        }                                                                                                         \
        int aligned = (u64)a->x % 8 == 0 && a->x_stride % 4 == 0;                                                 \
        int whole = aligned ? a->columns / COLUMNS_##format * COLUMNS_##format : 0;                               \
        const u8 *blocks = panel + (SCALES_##format == BY_COLUMNS ? (a->columns + 511) / 512 * PANEL : FRONT_##format); \
        const u16 *x_of[tiles];                                                                                   \
        _Pragma("unroll") for (int tile = 0; tile < tiles; tile++) {                                              \
            int row = begin + 8 * tile + g;                                                                       \
            x_of[tile] = a->x + (u64)(row < end ? row : begin) * a->x_stride;                                     \
        }                                                                                                         \
        float sums[tiles][4] = {{0}};                                                                             \
        /* This warp's steps: number warp, warp + WARPS and so on. The last may have fewer blocks. */             \
        int steps = (whole + STEP_##format - 1) / STEP_##format;                                                  \
        for (int step = warp - (stages - 1) * WARPS; step < steps; step += WARPS) {                               \
            int next = step + (stages - 1) * WARPS, left = whole - next * STEP_##format;                          \
            int bytes = left < STEP_##format ? left / COLUMNS_##format * BLOCK_##format : STEP_BYTES;             \
            if (left > 0) bring(staged[warp][next / WARPS % stages], blocks + (u64)next * STEP_BYTES, bytes);     \
            copies_end();                                                                                         \
            if (step < 0) continue;                                                                               \
            copies_wait(stages - 1);                                                                              \
            __syncwarp();                                                                                         \
            const u8 *here = staged[warp][step / WARPS % stages];                                                 \
            int column = step * STEP_##format;                                                                    \
            if (column + STEP_##format <= whole)                                                                  \
                name##_blocks_##format(sums, panel, here, x_of, column, STEP_##format / COLUMNS_##format);        \
            else                                                                                                  \
                for (; column < whole; column += COLUMNS_##format, here += BLOCK_##format)                        \
                    name##_blocks_##format(sums, panel, here, x_of, column, 1);                                   \
            __syncwarp();                                                                                         \
        }                                                                                                         \
        _Pragma("unroll") for (int tile = 0; tile < tiles; tile++)                                                \
            _Pragma("unroll") for (int i = 0; i < 4; i++)                                                         \
                of_warp[warp][row_of(ROWS_##format, i / 2)][8 * tile + 2 * t + i % 2] = sums[tile][i];            \
        __syncthreads();                                                                                          \
        for (int i = threadIdx.x; i < PANEL * (end - begin); i += THREADS) {                                      \
            int lane = i % PANEL, x_row = i / PANEL;                                                              \
            float sum = 0;                                                                                        \
            for (int other = 0; other < WARPS; other++) sum += of_warp[other][lane][x_row];                       \
            sum *= scale_of_##format(panel, lane);                                                                \
            const u16 *x = a->x + (u64)(begin + x_row) * a->x_stride;                                             \
            for (int last = whole; last < a->columns; last++)                                                     \
                sum += wide(x[last]) * value_##format(panel, PANEL, a->columns, lane, last);                      \
            put(a, begin + x_row, blockIdx.x * PANEL + lane, sum);                                                \
        }                                                                                                         \
    }

#define FEW(format) PRODUCT(format, few, 1, 3)
FORMATS(FEW)
#define SEVERAL(format) PRODUCT(format, several, 4, 2)
FORMATS(SEVERAL)

// Grid: panels; eights of rows of x, or 32 of them.
#define GEMV(format)                                                                                              \
    KERNEL(gemv_##format, Gemv, THREADS) { few_##format(&a); }                                                    \
    KERNEL(gemv_several_##format, Gemv, THREADS) { several_##format(&a); }

FORMATS(GEMV)

typedef struct {
    const u16 *x;     // rows of `columns` values, each for `per_row` results
    u16 *y;           // [results][rows]
    const int *ids;   // [results], which expert
    int rows, columns, per_row, first, count, unused;
    const u8 *w[EXPERTS]; // of expert `first` and those that follow it, `count` of them
} Experts;

// Each result by its own expert's matrix. Results of experts that this call does not have are left
// alone. Grid: panels, 1, results.
#define EXPERT(format)                                                                                            \
    KERNEL(gemv_experts_##format, Experts, THREADS)                                                               \
    {                                                                                                             \
        int expert = a.ids[blockIdx.z] - a.first;                                                                 \
        if (expert < 0 || expert >= a.count) return;                                                              \
        const u16 *x = a.x + (u64)(blockIdx.z / a.per_row) * a.columns;                                           \
        const Gemv one = {x, a.w[expert], a.y + (u64)blockIdx.z * a.rows, a.rows, a.columns, 0, 0, 0, 1};         \
        few_##format(&one);                                                                                       \
    }

FORMATS(EXPERT)
