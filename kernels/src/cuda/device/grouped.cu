// Products of many pairs, each by its own expert's packed matrix: y = x * W^T in tiles of 64 pairs
// of one expert by 64 of W's rows, on tensor cores where they multiply bf16. W is widened to bf16
// on its way to shared memory, so a weight is read once for every 64 pairs of its expert. Four
// warps have 16 pairs each.
#define TILE 64
#define THREADS 128
// Columns of both operands at a time: a group of integers.
#define COLUMNS GROUP
#define STRIDE (COLUMNS + APART)
#define PANELS (TILE / PANEL)

typedef struct {
    const u16 *x;     // rows of `columns` values, each for `per_row` pairs; columns: a multiple of 8
    u16 *y;           // [pair][rows]; rows: a multiple of 16
    const int *order; // [tile][TILE]: pairs of one expert, or -1
    const int *tiles; // [tile]: whose pairs, or -1
    int rows, columns, per_row, first, count, unused;
    const u8 *w[EXPERTS]; // of expert `first` and those that follow it, `count` of them
} Grouped;

// Loads x of the tile's pairs, eight values at a time; zeros where there is no pair.
static __device__ inline void stage_x(const Grouped *a, u16 *x, const int *pairs, int from)
{
    const uint4 zero = {0, 0, 0, 0};
    for (int i = threadIdx.x; i < TILE * COLUMNS / 8; i += THREADS) {
        int pair = pairs[i / (COLUMNS / 8)], column = i % (COLUMNS / 8) * 8;
        uint4 *eight = (uint4 *)(x + i / (COLUMNS / 8) * STRIDE + column);
        *eight = zero;
        if (pair >= 0 && from + column < a->columns)
            *eight = *(const uint4 *)(a->x + (u64)(pair / a->per_row) * a->columns + from + column);
    }
}

// Each widens word `i` of a panel's columns from `from` on into rows of `w`. gemv.cu describes the
// words.
static __device__ inline void widen_bf16(u16 *w, const u8 *panel, int from, int i, int columns)
{
    int column = i / PANEL * 2;
    u32 pair = from + column < columns ? ((const u32 *)(panel + (u64)from * 2 * PANEL))[i] : 0;
    *(u32 *)(w + i % PANEL * STRIDE + column) = pair;
}

static __device__ inline float eight_bits(u32 word, int at)
{
    return (float)(signed char)(word >> at);
}

static __device__ inline void widen_int8(u16 *w, const u8 *panel, int from, int i, int columns)
{
    const u32 *group = (const u32 *)(panel + (u64)(from / GROUP) * PANEL * (2 + GROUP));
    u32 scales = group[i % (PANEL / 2)], word = group[PANEL / 2 + i];
    float one = wide_half((u16)scales), two = wide_half((u16)(scales >> 16));
    u16 *row = w + i % (PANEL / 2) * 2 * STRIDE + i / (PANEL / 2) * 2;
    (void)columns; // of a group beyond the last are zeros
    *(u32 *)row = narrow_pair(one * eight_bits(word, 0), one * eight_bits(word, 8));
    *(u32 *)(row + STRIDE) = narrow_pair(two * eight_bits(word, 16), two * eight_bits(word, 24));
}

static __device__ inline void widen_int4(u16 *w, const u8 *panel, int from, int i, int columns)
{
    const u8 *group = panel + (u64)(from / GROUP) * PANEL * (2 + GROUP / 2);
    float scale = wide_half(((const u16 *)group)[i % PANEL]);
    u32 word = ((const u32 *)(group + 2 * PANEL))[i];
    u32 *eight = (u32 *)(w + i % PANEL * STRIDE + i / PANEL * 8);
    (void)columns;
    // Nibbles j and j + 4 are columns 2j and 2j + 1.
    for (int j = 0; j < 4; j++)
        eight[j] = narrow_pair(scale * ((float)(word >> (4 * j) & 15) - 8), scale * ((float)(word >> (4 * j + 16) & 15) - 8));
}

// Word i is a row's two bytes of a pair of columns, and the next row's.
static __device__ inline void widen_float8(u16 *w, const u8 *numbers, float one, float two, int from, int i, int columns)
{
    int column = i / (PANEL / 2) * 2;
    u32 word = from + column < columns ? ((const u32 *)(numbers + (u64)from * PANEL))[i] : 0;
    u16 *row = w + i % (PANEL / 2) * 2 * STRIDE + column;
    *(u32 *)row = narrow_pair(one * wide_float8(word), one * wide_float8(word >> 8));
    *(u32 *)(row + STRIDE) = narrow_pair(two * wide_float8(word >> 16), two * wide_float8(word >> 24));
}

static __device__ inline void widen_fp8(u16 *w, const u8 *panel, int from, int i, int columns)
{
    const float *scales = (const float *)panel + i % (PANEL / 2) * 2;
    widen_float8(w, panel + 4 * PANEL, scales[0], scales[1], from, i, columns);
}

static __device__ inline void widen_fp8_block(u16 *w, const u8 *panel, int from, int i, int columns)
{
    float scale = ((const float *)panel)[from / 128];
    widen_float8(w, panel + (columns + 511) / 512 * PANEL, scale, scale, from, i, columns);
}

// A "word" of blocks is eight columns of a row, which share bytes in most formats.
#define WIDEN(format)                                                                                             \
    static __device__ inline void widen_##format(u16 *w, const u8 *panel, int from, int i, int columns)          \
    {                                                                                                             \
        (void)columns;                                                                                            \
        eight_##format(w + i % PANEL * STRIDE, panel, PANEL, i % PANEL, from, i / PANEL);                         \
    }

BLOCK_FORMATS(WIDEN)

// Adds the product of the operands in shared memory to a warp's 16 pairs by 64 rows of W.
static __device__ inline void multiply_tiles(float sums[TILE / 8][4], const u16 *x, const u16 *w)
{
    int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < COLUMNS; k += 16) {
        const u16 *row = x + (threadIdx.x / WARP * 16 + g) * STRIDE + k + 2 * t;
        const u32 of_x[4] = {*(const u32 *)row, *(const u32 *)(row + 8 * STRIDE), *(const u32 *)(row + 8),
                             *(const u32 *)(row + 8 * STRIDE + 8)};
#pragma unroll
        for (int n = 0; n < TILE / 8; n++) {
            const u16 *weight = w + (8 * n + g) * STRIDE + k + 2 * t;
            const u32 of_w[2] = {*(const u32 *)weight, *(const u32 *)(weight + 8)};
            multiply(sums[n], of_x, of_w);
        }
    }
}

// Grid: tiles of pairs, where those of one expert follow each other, so that they read its weights
// together; tiles of W's rows. `words`: words of a panel's columns.
#define GROUPED(format, words)                                                                                    \
    KERNEL(grouped_##format, Grouped, THREADS)                                                                    \
    {                                                                                                             \
        __shared__ __align__(16) u16 x[TILE * STRIDE], w[TILE * STRIDE];                                          \
        __shared__ int pairs[TILE];                                                                               \
        int expert = a.tiles[blockIdx.x] - a.first, row = blockIdx.y * TILE;                                      \
        if (expert < 0 || expert >= a.count) return;                                                              \
        const u8 *matrix = a.w[expert];                                                                           \
        if (threadIdx.x < TILE) pairs[threadIdx.x] = a.order[blockIdx.x * TILE + threadIdx.x];                    \
        float sums[TILE / 8][4] = {{0}};                                                                          \
        for (int from = 0; from < a.columns; from += COLUMNS) {                                                   \
            __syncthreads();                                                                                      \
            stage_x(&a, x, pairs, from);                                                                          \
            for (int i = threadIdx.x; i < PANELS * words; i += THREADS) {                                         \
                int panel = i / words * PANEL;                                                                    \
                if (row + panel < a.rows)                                                                         \
                    widen_##format(w + panel * STRIDE, matrix + (u64)(row + panel) * row_bytes_##format(a.columns), from, i % words, a.columns); \
            }                                                                                                     \
            __syncthreads();                                                                                      \
            multiply_tiles(sums, x, w);                                                                           \
        }                                                                                                         \
        for (int i = 0; i < 2; i++) {                                                                             \
            int pair = pairs[threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4 + 8 * i];                           \
            if (pair < 0) continue;                                                                               \
            u16 *out = a.y + (u64)pair * a.rows + row + threadIdx.x % 4 * 2;                                      \
            for (int n = 0; n < TILE / 8 && row + 8 * n < a.rows; n++)                                            \
                *(u32 *)(out + 8 * n) = narrow_pair(sums[n][2 * i], sums[n][2 * i + 1]);                          \
        }                                                                                                         \
    }

enum { WORDS_bf16 = 256, WORDS_int8 = 128, WORDS_int4 = 64, WORDS_fp8 = 128, WORDS_fp8_block = 128 };
#define GROUPED_PLAIN(format) GROUPED(format, WORDS_##format)
PLAIN_FORMATS(GROUPED_PLAIN)
#define GROUPED_BLOCKS(format) GROUPED(format, 64)
BLOCK_FORMATS(GROUPED_BLOCKS)
