// y = x * W^T for few rows of x, the weights packed in whatever format and widened in registers.
//
// Reading the weights takes most of the time, so they are read once for all rows of x of a block,
// with many loads under way, and multiplied by tensor cores where those multiply bf16: the 16 rows of
// a panel are the rows of `multiply`'s a, and 8 rows of x are the columns of its b. A number of a
// quantised format is an integer or a short float, which bf16 has exactly; the scales multiply the
// sums in f32.
//
// A block takes one panel or two, and its eight warps take turns at the columns. At the end their
// sums are added in a fixed order, so the result does not depend on the schedule. Each lane gets the
// words of two rows of a panel as they lie, 32 columns at a time; which columns these are differs
// between formats, and x is read in the same order.
#define WARPS 8
#define THREADS (WARPS * WARP)

typedef struct {
    const u16 *x; // rows of `columns` values, `x_stride` values apart
    const u8 *w;  // packed, [rows][columns]
    void *y;      // rows of `rows` values, `y_stride` values apart: bf16, or f32 where `wide`
    int rows, columns, x_stride, y_stride, wide;
    int m; // rows of x
} Gemv;

// 32 columns of a panel: what a lane has of them, and by what their sums are multiplied. With g =
// lane / 4 and t = lane % 4 it has two rows; their first words are the columns of the first product,
// the others those of the second.
typedef struct {
    u32 numbers[2][4];
    float first[2], last[2], minimum[2]; // of each row; of the first 16 columns and of the last
} Group;

// How the 32 columns are divided: a lane has eight that follow each other from 8 t on, or four of the
// first half and four of the last, where the halves have scales of their own.
enum { EIGHTS, QUADS };
enum { ORDER_bf16 = EIGHTS, ORDER_int8 = EIGHTS, ORDER_int4 = EIGHTS, ORDER_fp8 = EIGHTS, ORDER_fp8_block = EIGHTS };
// The rows that a lane has: g and g + 8, or 2 g and 2 g + 1, where a word has bytes of both.
enum { APART_ROWS, ADJACENT_ROWS };
enum { ROWS_bf16 = APART_ROWS, ROWS_int8 = ADJACENT_ROWS, ROWS_int4 = APART_ROWS, ROWS_fp8 = ADJACENT_ROWS, ROWS_fp8_block = ADJACENT_ROWS };
// What is multiplied by scales: nothing before the end, 32 columns, or halves of them.
enum { UNSCALED, BY_GROUP, BY_HALF };
enum { SCALES_bf16 = UNSCALED, SCALES_int8 = BY_GROUP, SCALES_int4 = BY_GROUP, SCALES_fp8 = UNSCALED, SCALES_fp8_block = BY_GROUP };
// Columns of a warp at a time.
enum { STEP_bf16 = 64, STEP_int8 = 64, STEP_int4 = 128, STEP_fp8 = 64, STEP_fp8_block = 128 };

static __device__ inline int row_of(int rows, int which)
{
    int g = threadIdx.x % WARP / 4;
    return rows == APART_ROWS ? g + which * (PANEL / 2) : 2 * g + which;
}

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

// Each reads the 32 columns from `column` on.
static __device__ inline void read_bf16(Group *group, const u8 *panel, int column, int columns)
{
    int t = threadIdx.x % 4, g = threadIdx.x % WARP / 4;
    const u32 *pairs = (const u32 *)(panel + (u64)column * 2 * PANEL) + 4 * t * PANEL + g;
    (void)columns;
#pragma unroll
    for (int i = 0; i < 8; i++) group->numbers[i / 4][i % 4] = pairs[(i / 4 * 2 + i % 4 / 2) * PANEL + i % 2 * (PANEL / 2)];
}

static __device__ inline void read_int8(Group *group, const u8 *panel, int column, int columns)
{
    int t = threadIdx.x % 4, g = threadIdx.x % WARP / 4;
    const u32 *words = (const u32 *)(panel + (u64)(column / GROUP) * PANEL * (2 + GROUP));
    u32 scales = words[g];
    (void)columns;
    group->first[0] = wide_half((u16)scales);
    group->first[1] = wide_half((u16)(scales >> 16));
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 word = words[PANEL / 2 + (4 * t + i) * (PANEL / 2) + g] ^ 0x80808080u;
        group->numbers[i / 2][i % 2 * 2] = numbers_of(word, 0, 128);
        group->numbers[i / 2][i % 2 * 2 + 1] = numbers_of(word, 2, 128);
    }
}

static __device__ inline void read_int4(Group *group, const u8 *panel, int column, int columns)
{
    int t = threadIdx.x % 4, g = threadIdx.x % WARP / 4;
    const u8 *bytes = panel + (u64)(column / GROUP) * PANEL * (2 + GROUP / 2);
    const u32 *words = (const u32 *)(bytes + 2 * PANEL) + t * PANEL + g;
    (void)columns;
#pragma unroll
    for (int which = 0; which < 2; which++) {
        u32 word = words[which * (PANEL / 2)];
        group->first[which] = wide_half(((const u16 *)bytes)[g + which * (PANEL / 2)]);
        // Nibbles i and i + 4 are columns 2i and 2i + 1; 0x43 in front of them counts from 128 on.
#pragma unroll
        for (int i = 0; i < 4; i++)
            group->numbers[i / 2][i % 2 * 2 + which] = pair_less((word >> (4 * i) & 0x000f000fu) | 0x43004300u, 0x43084308u);
    }
}

static __device__ inline void read_float8(Group *group, const u8 *numbers, int column)
{
    int t = threadIdx.x % 4, g = threadIdx.x % WARP / 4;
    const u32 *words = (const u32 *)(numbers + (u64)column * PANEL) + 4 * t * (PANEL / 2) + g;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 word = words[i * (PANEL / 2)];
        group->numbers[i / 2][i % 2 * 2] = float8_pair(word, 0);
        group->numbers[i / 2][i % 2 * 2 + 1] = float8_pair(word, 2);
    }
}

// The scales of rows are left to the end.
static __device__ inline void read_fp8(Group *group, const u8 *panel, int column, int columns)
{
    (void)columns;
    read_float8(group, panel + 4 * PANEL, column);
}

static __device__ inline void read_fp8_block(Group *group, const u8 *panel, int column, int columns)
{
    group->first[0] = group->first[1] = ((const float *)panel)[column / 128];
    read_float8(group, panel + (columns + 511) / 512 * PANEL, column);
}

#define READ_BLOCKS(format)                                                                                       \
    enum {                                                                                                        \
        ORDER_##format = QUADS,                                                                                   \
        ROWS_##format = APART_ROWS,                                                                               \
        SCALES_##format = HALVES_##format ? BY_HALF : BY_GROUP,                                                   \
        STEP_##format = TOGETHER_##format > 2 * GROUP ? TOGETHER_##format : 2 * GROUP                             \
    };                                                                                                            \
    static __device__ inline void read_##format(Group *group, const u8 *panel, int column, int columns)          \
    {                                                                                                             \
        int of_block = column % COLUMNS_##format / GROUP, t = threadIdx.x % 4;                                    \
        (void)columns;                                                                                            \
        _Pragma("unroll") for (int which = 0; which < 2; which++) {                                               \
            BlockRow row = block_##format(panel, PANEL, row_of(APART_ROWS, which), column);                       \
            BlockScales scales = scales_##format(row, of_block);                                                  \
            group->first[which] = scales.first;                                                                   \
            group->last[which] = scales.last;                                                                     \
            group->minimum[which] = scales.minimum;                                                               \
            _Pragma("unroll") for (int half = 0; half < 2; half++) {                                              \
                u32 quad = quad_##format(row, of_block, t + 4 * half);                                            \
                group->numbers[half][which] = numbers_of(quad, 0, OFFSET_##format);                               \
                group->numbers[half][which + 2] = numbers_of(quad, 2, OFFSET_##format);                           \
            }                                                                                                     \
        }                                                                                                         \
    }

BLOCK_FORMATS(READ_BLOCKS)

// Four values of a row of x, or zeros where there is no such row.
static __device__ inline uint2 four_of(const u16 *row, int column, int aligned)
{
    uint2 four = {0, 0};
    if (!row) return four;
    if (aligned) return *(const uint2 *)(row + column);
    row += column;
    four.x = row[0] | (u32)row[1] << 16;
    four.y = row[2] | (u32)row[3] << 16;
    return four;
}

// Adds the product of 32 columns with `tiles` times 8 rows of x. `ones` is what to multiply a minimum
// by: the sums of these columns of x.
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

// `panels` panels from blockIdx.x on of `tiles` times 8 rows of x from blockIdx.y on.
#define PRODUCT(format, name, panels, tiles)                                                                      \
    static __device__ inline void name##_##format(const Gemv *a)                                                 \
    {                                                                                                             \
        __shared__ float of_warp[WARPS][panels * PANEL][8 * tiles];                                               \
        int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4, warp = threadIdx.x / WARP;                           \
        int begin = blockIdx.y * 8 * tiles, end = begin + 8 * tiles < a->m ? begin + 8 * tiles : a->m;            \
        int aligned = (u64)a->x % 8 == 0 && a->x_stride % 4 == 0, whole = a->columns / GROUP * GROUP;             \
        const u8 *panel[panels];                                                                                  \
        int height[panels];                                                                                       \
        _Pragma("unroll") for (int p = 0; p < panels; p++) {                                                      \
            int number = blockIdx.x * panels + p;                                                                 \
            panel[p] = a->w + (u64)number * PANEL * row_bytes_##format(a->columns);                               \
            height[p] = height_of(number, a->rows);                                                               \
            if (height[p] > 0 && height[p] < PANEL) last_##format(a, panel[p], height[p], begin, end);            \
        }                                                                                                         \
        const u16 *x_of[tiles];                                                                                   \
        _Pragma("unroll") for (int tile = 0; tile < tiles; tile++) {                                              \
            int row = begin + 8 * tile + g;                                                                       \
            x_of[tile] = row < end ? a->x + (u64)row * a->x_stride : 0;                                           \
        }                                                                                                         \
        float sums[panels][tiles][4] = {{{0}}};                                                                   \
        _Pragma("unroll 2") for (int from = warp * STEP_##format; from < whole; from += WARPS * STEP_##format) {  \
            _Pragma("unroll") for (int part = 0; part < STEP_##format / GROUP; part++) {                          \
                int column = from + part * GROUP;                                                                 \
                if (column >= whole) break;                                                                       \
                u32 x[tiles][4];                                                                                  \
                _Pragma("unroll") for (int tile = 0; tile < tiles; tile++)                                        \
                    _Pragma("unroll") for (int half = 0; half < 2; half++) {                                      \
                        int at = ORDER_##format == EIGHTS ? 8 * t + 4 * half : 4 * t + GROUP / 2 * half;          \
                        uint2 four = four_of(x_of[tile], column + at, aligned);                                   \
                        x[tile][2 * half] = four.x;                                                               \
                        x[tile][2 * half + 1] = four.y;                                                           \
                    }                                                                                             \
                _Pragma("unroll") for (int p = 0; p < panels; p++) {                                              \
                    if (height[p] < PANEL) continue;                                                              \
                    Group group;                                                                                  \
                    read_##format(&group, panel[p], column, a->columns);                                          \
                    add_group(sums[p], &group, x, tiles, SCALES_##format, MINIMUM_##format);                      \
                }                                                                                                 \
            }                                                                                                     \
        }                                                                                                         \
        _Pragma("unroll") for (int p = 0; p < panels; p++)                                                        \
            _Pragma("unroll") for (int tile = 0; tile < tiles; tile++)                                            \
                _Pragma("unroll") for (int i = 0; i < 4; i++)                                                     \
                    of_warp[warp][p * PANEL + row_of(ROWS_##format, i / 2)][8 * tile + 2 * t + i % 2] = sums[p][tile][i]; \
        __syncthreads();                                                                                          \
        for (int i = threadIdx.x; i < panels * PANEL * (end - begin); i += THREADS) {                             \
            int within = i % (panels * PANEL), lane = i % PANEL, x_row = i / (panels * PANEL);                    \
            int number = blockIdx.x * panels + within / PANEL;                                                    \
            if (height_of(number, a->rows) < PANEL) continue;                                                     \
            const u8 *own = a->w + (u64)number * PANEL * row_bytes_##format(a->columns);                          \
            float sum = 0;                                                                                        \
            for (int other = 0; other < WARPS; other++) sum += of_warp[other][within][x_row];                     \
            sum *= scale_of_##format(own, lane);                                                                  \
            const u16 *x = a->x + (u64)(begin + x_row) * a->x_stride;                                             \
            for (int column = whole; column < a->columns; column++)                                               \
                sum += wide(x[column]) * value_##format(own, PANEL, a->columns, lane, column);                    \
            put(a, begin + x_row, number * PANEL + lane, sum);                                                    \
        }                                                                                                         \
    }

#define FEW(format) PRODUCT(format, few, 1, 1)
FORMATS(FEW)
#define SEVERAL(format) PRODUCT(format, several, 2, 4)
FORMATS(SEVERAL)

// Grid: panels, and eights of rows of x; pairs of panels, and 32 rows of x.
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
