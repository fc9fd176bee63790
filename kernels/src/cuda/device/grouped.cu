// Products of many pairs, each by its own expert's packed matrix: y = x * W^T in tiles of 64 or 128
// pairs of one expert by 128 of W's rows, on tensor cores where they multiply bf16. A weight is
// read once for all pairs of a tile, and widened to bf16 on its way to shared memory.
//
// Four warps have half of the pairs and half of the rows each. Operands of the next two steps are
// on their way while one step's are multiplied.
#define THREADS 128
#define STAGES 3
// Columns of a step: a group of integers.
#define COLUMNS GROUP
#define ROWS 128
#define PANELS (ROWS / PANEL)

typedef struct {
    const u16 *x;     // rows of `columns` values, each for `per_row` pairs; columns: a multiple of 8
    u16 *y;           // [pair][rows]; rows: a multiple of 16
    const int *order; // [tile][64 or 128]: pairs of one expert, or -1
    const int *tiles; // [tile]: whose pairs, or -1
    int rows, columns, per_row, first, count, unused;
    const u8 *w[EXPERTS]; // of expert `first` and those that follow it, `count` of them
} Grouped;

// A step of a panel in shared memory: words of two columns, as panels of bf16 have them, and in
// each the sixteen rows. Every other two pairs of columns have their rows' halves exchanged, so
// that the eight lanes which read at once read different banks.
typedef u32 Panel[COLUMNS / 2][PANEL];

static __device__ inline u32 *word_of(u32 (*panel)[PANEL], int pair, int row)
{
    return &panel[pair][row ^ pair / 2 % 2 * (PANEL / 2)];
}

// Eight columns from 8 * eighth on of a row of x in shared memory. Rows are 64 bytes; their eighths
// are exchanged so that those of eight rows lie in different banks.
static __device__ inline u16 *eighth_of(u16 *x, int row, int eighth)
{
    return x + row * COLUMNS + (eighth ^ row / 2 % 4) * 8;
}

// What a thread has read of a step, until it is put into shared memory after the products of
// another step, so that nothing waits for memory: of a row of a panel, or of half of the columns of
// two rows. Formats of blocks are widened at once.
typedef struct { u32 words[COLUMNS / 2], scales[2]; } Read;

// Of bf16 a thread copies four rows of four pairs of columns, which needs no registers.
static __device__ inline void read_bf16(Read *read, Panel *to, const u8 *panel, int from, int columns)
{
    int i = threadIdx.x % PANEL;
    (void)read;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        int pair = 4 * j + i / 4;
        uint4 *four = (uint4 *)word_of(*to, pair, i % 4 * 4);
        const uint4 zero = {0, 0, 0, 0};
        if (from + 2 * pair < columns) copy_ahead(four, panel + (u64)from * 2 * PANEL + 16 * (16 * j + i));
        else *four = zero;
    }
}

static __device__ inline void put_bf16(const Read *read, Panel *to) { (void)read, (void)to; }

// Two exact numbers times their row's scale.
static __device__ inline u32 scaled(u32 pair, float scale)
{
    return narrow_pair(scale * low(pair), scale * high(pair));
}

// A thread has two rows, and every other pair of columns. Columns of a group beyond the last are
// zeros.
static __device__ inline void read_int8(Read *read, Panel *to, const u8 *panel, int from, int columns)
{
    int rows = threadIdx.x % 8, odd = threadIdx.x / 8 % 2;
    const u32 *group = (const u32 *)(panel + (u64)(from / GROUP) * PANEL * (2 + GROUP));
    (void)to, (void)columns;
    read->scales[0] = group[rows];
#pragma unroll
    for (int i = 0; i < 8; i++) read->words[i] = group[8 + 8 * (2 * i + odd) + rows];
}

static __device__ inline void put_int8(const Read *read, Panel *to)
{
    int rows = threadIdx.x % 8 * 2, odd = threadIdx.x / 8 % 2;
    float one = wide_half((u16)read->scales[0]), two = wide_half((u16)(read->scales[0] >> 16));
#pragma unroll
    for (int i = 0; i < 8; i++) {
        u32 word = read->words[i] ^ 0x80808080u;
        const uint2 both = {scaled(numbers_of(word, 0, 128), one), scaled(numbers_of(word, 2, 128), two)};
        *(uint2 *)word_of(*to, 2 * i + odd, rows) = both;
    }
}

static __device__ inline void read_int4(Read *read, Panel *to, const u8 *panel, int from, int columns)
{
    int row = threadIdx.x % PANEL;
    const u8 *group = panel + (u64)(from / GROUP) * PANEL * (2 + GROUP / 2);
    (void)to, (void)columns;
    read->scales[0] = ((const u16 *)group)[row];
#pragma unroll
    for (int i = 0; i < 4; i++) read->words[i] = ((const u32 *)(group + 2 * PANEL))[PANEL * i + row];
}

static __device__ inline void put_int4(const Read *read, Panel *to)
{
    float scale = wide_half((u16)read->scales[0]);
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i++)
        *word_of(*to, i, threadIdx.x % PANEL) = scaled(nibble_pair(read->words[i / 4], i % 4), scale);
}

// As of int8: two rows, and every other pair of columns.
static __device__ inline void read_float8(Read *read, const u8 *numbers, int from, int columns)
{
    int rows = threadIdx.x % 8, odd = threadIdx.x / 8 % 2;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int pair = 2 * i + odd;
        read->words[i] = from + 2 * pair < columns ? ((const u32 *)(numbers + (u64)from * PANEL))[8 * pair + rows] : 0;
    }
}

static __device__ inline void put_float8(const Read *read, Panel *to, float one, float two)
{
    int rows = threadIdx.x % 8 * 2, odd = threadIdx.x / 8 % 2;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint2 both = {scaled(float8_pair(read->words[i], 0), one), scaled(float8_pair(read->words[i], 2), two)};
        *(uint2 *)word_of(*to, 2 * i + odd, rows) = both;
    }
}

static __device__ inline void read_fp8(Read *read, Panel *to, const u8 *panel, int from, int columns)
{
    const float *scales = (const float *)panel + threadIdx.x % 8 * 2;
    (void)to;
    read_float8(read, panel + 4 * PANEL, from, columns);
    for (int i = 0; i < 2; i++) read->scales[i] = __float_as_uint(scales[i]);
}

static __device__ inline void put_fp8(const Read *read, Panel *to)
{
    put_float8(read, to, __uint_as_float(read->scales[0]), __uint_as_float(read->scales[1]));
}

static __device__ inline void read_fp8_block(Read *read, Panel *to, const u8 *panel, int from, int columns)
{
    (void)to;
    read_float8(read, panel + (columns + 511) / 512 * PANEL, from, columns);
    read->scales[0] = read->scales[1] = __float_as_uint(((const float *)panel)[from / 128]);
}

static __device__ inline void put_fp8_block(const Read *read, Panel *to)
{
    put_fp8(read, to);
}

#define WIDEN(format)                                                                                             \
    static __device__ inline void read_##format(Read *read, Panel *to, const u8 *panel, int from, int columns)   \
    {                                                                                                             \
        (void)to, (void)columns;                                                                                  \
        _Pragma("unroll") for (int i = 0; i < 4; i++) {                                                           \
            uint4 eight = eight_##format(panel, PANEL, threadIdx.x % PANEL, from, i);                             \
            read->words[2 * i] = eight.x;                                                                         \
            read->words[2 * i + 1] = eight.y;                                                                     \
            read->words[2 * i + COLUMNS / 4] = eight.z;                                                           \
            read->words[2 * i + COLUMNS / 4 + 1] = eight.w;                                                       \
        }                                                                                                         \
    }                                                                                                             \
    static __device__ inline void put_##format(const Read *read, Panel *to)                                      \
    {                                                                                                             \
        _Pragma("unroll") for (int i = 0; i < COLUMNS / 2; i++) *word_of(*to, i, threadIdx.x % PANEL) = read->words[i]; \
    }

BLOCK_FORMATS(WIDEN)

// Adds a step's product to a warp's `parts` times 16 pairs by 64 rows of W. Lane (g, t), as
// `multiply` has them, reads four rows of W at a time: those of column g in four products. So of
// 32 rows it gets the sums of eight that follow each other.
static __device__ inline void multiply_step(float sums[][8][4], u16 *x, Panel *w, int parts)
{
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int k = 0; k < COLUMNS; k += 16) {
        u32 of_x[4][4];
#pragma unroll
        for (int part = 0; part < parts; part++) {
            int row = (warp % 2 * parts + part) * 16 + lane / 8 % 2 * 8 + lane % 8;
            load_matrices(of_x[part], eighth_of(x, row, k / 8 + lane / 16), 0);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 (*panel)[PANEL] = w[warp / 2 * (PANELS / 2) + 2 * half + g / 4];
            uint4 one = *(const uint4 *)word_of(panel, k / 2 + t, g % 4 * 4);
            uint4 two = *(const uint4 *)word_of(panel, k / 2 + 4 + t, g % 4 * 4);
            const u32 of_w[4][2] = {{one.x, two.x}, {one.y, two.y}, {one.z, two.z}, {one.w, two.w}};
#pragma unroll
            for (int part = 0; part < parts; part++)
#pragma unroll
                for (int i = 0; i < 4; i++) multiply(sums[part][4 * half + i], of_x[part], of_w[i]);
        }
    }
}

// Writes a warp's sums.
static __device__ inline void write_sums(const Grouped *a, const int *order, float sums[][8][4], int parts)
{
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int part = 0; part < parts; part++)
        for (int below = 0; below < 2; below++) {
            int pair = order[(warp % 2 * parts + part) * 16 + g + 8 * below];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int row = blockIdx.y * ROWS + warp / 2 * (ROWS / 2) + 32 * half + 8 * t;
                if (pair < 0 || row >= a->rows) continue;
                float(*four)[4] = &sums[part][4 * half];
                const uint4 eight = {narrow_pair(four[0][2 * below], four[1][2 * below]),
                                     narrow_pair(four[2][2 * below], four[3][2 * below]),
                                     narrow_pair(four[0][2 * below + 1], four[1][2 * below + 1]),
                                     narrow_pair(four[2][2 * below + 1], four[3][2 * below + 1])};
                *(uint4 *)(a->y + (u64)pair * a->rows + row) = eight;
            }
        }
}

// Grid: tiles of pairs, where those of one expert follow each other, so that they read its weights
// together; tiles of W's rows. A tile has `parts` times 32 pairs. Sixteen threads bring a panel.
#define GROUPED(kernel, format, parts)                                                                            \
    KERNEL(kernel##_##format, Grouped, THREADS)                                                                   \
    {                                                                                                             \
        __shared__ __align__(16) u16 x[STAGES][32 * parts * COLUMNS];                                             \
        __shared__ __align__(16) Panel w[STAGES][PANELS];                                                         \
        int expert = a.tiles[blockIdx.x] - a.first, panel = blockIdx.y * PANELS + threadIdx.x / PANEL;            \
        if (expert < 0 || expert >= a.count) return;                                                              \
        int is_there = panel * PANEL < a.rows;                                                                    \
        const u8 *own = a.w[expert] + (u64)panel * PANEL * row_bytes_##format(a.columns);                         \
        const int *order = a.order + blockIdx.x * 32 * parts;                                                     \
        const u16 *x_of[parts]; /* a thread brings an eighth of these rows, or zeros */                           \
        _Pragma("unroll") for (int part = 0; part < parts; part++) {                                              \
            int pair = order[32 * part + threadIdx.x / 4];                                                        \
            x_of[part] = pair < 0 ? 0 : a.x + (u64)(pair / a.per_row) * a.columns + threadIdx.x % 4 * 8;          \
        }                                                                                                         \
        float sums[parts][8][4] = {{{0}}};                                                                        \
        int steps = (a.columns + COLUMNS - 1) / COLUMNS;                                                          \
        for (int step = 1 - STAGES; step < steps; step++) {                                                       \
            int next = step + STAGES - 1, from = next * COLUMNS;                                                  \
            Panel *there = &w[next % STAGES][threadIdx.x / PANEL];                                                \
            Read read;                                                                                            \
            if (step >= 0) {                                                                                      \
                copies_wait(STAGES - 2);                                                                          \
                __syncthreads();                                                                                  \
            }                                                                                                     \
            if (next < steps) {                                                                                   \
                _Pragma("unroll") for (int part = 0; part < parts; part++) {                                      \
                    const uint4 zero = {0, 0, 0, 0};                                                              \
                    u16 *eighth = eighth_of(x[next % STAGES], 32 * part + threadIdx.x / 4, threadIdx.x % 4);      \
                    if (x_of[part] && from + (int)threadIdx.x % 4 * 8 < a.columns) copy_ahead(eighth, x_of[part] + from); \
                    else *(uint4 *)eighth = zero;                                                                 \
                }                                                                                                 \
                if (is_there) read_##format(&read, there, own, from, a.columns);                                  \
            }                                                                                                     \
            copies_end();                                                                                         \
            if (step >= 0) multiply_step(sums, x[step % STAGES], w[step % STAGES], parts);                        \
            if (next < steps && is_there) put_##format(&read, there);                                             \
        }                                                                                                         \
        write_sums(&a, order, sums, parts);                                                                       \
    }

#define BOTH(format)                                                                                              \
    GROUPED(grouped, format, 2)                                                                                   \
    GROUPED(grouped_tall, format, 4)
FORMATS(BOTH)
