// Products of many pairs, each by its own expert's packed matrix: y = x * W^T in tiles of 64 or 128
// pairs of one expert by 128 of W's rows, on tensor cores where they multiply bf16. A weight is read
// once for all pairs of a tile, and widened to bf16 on its way to shared memory.
//
// Four warps have half of the pairs and half of the rows each. Operands of the next two steps are on
// their way while one step's are multiplied.
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

// A step of a panel in shared memory: words of two columns, as panels of bf16 have them, and in each
// the sixteen rows. Every other two pairs of columns have their rows' halves exchanged, so that the
// eight lanes which read at once read different banks.
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

// Each reads word `i` of a panel's columns from `from` on, and puts it there. What was read is put
// after the products of another step, so that nothing waits for memory. gemv.cu describes the words;
// of bf16 a word here is four rows of a pair of columns, which are copied at once.
static __device__ inline uint4 read_bf16(u32 (*to)[PANEL], const u8 *panel, int from, int i, int columns)
{
    int pair = i / (PANEL / 4);
    uint4 *four = (uint4 *)word_of(to, pair, i % (PANEL / 4) * 4);
    const uint4 zero = {0, 0, 0, 0};
    if (from + 2 * pair < columns) copy_ahead(four, panel + (u64)from * 2 * PANEL + 16 * i);
    else *four = zero;
    return zero;
}

static __device__ inline void put_bf16(u32 (*to)[PANEL], uint4 word, int i) { (void)to, (void)word, (void)i; }

static __device__ inline float eight_bits(u32 word, int at)
{
    return (float)(signed char)(word >> at);
}

static __device__ inline uint4 read_int8(u32 (*to)[PANEL], const u8 *panel, int from, int i, int columns)
{
    const u32 *group = (const u32 *)(panel + (u64)(from / GROUP) * PANEL * (2 + GROUP));
    const uint4 word = {group[PANEL / 2 + i], group[i % (PANEL / 2)], 0, 0}; // two rows' values, and their scales
    (void)to, (void)columns;                                                 // of a group beyond the last are zeros
    return word;
}

static __device__ inline void put_int8(u32 (*to)[PANEL], uint4 word, int i)
{
    float one = wide_half((u16)word.y), two = wide_half((u16)(word.y >> 16));
    u32 *rows = word_of(to, i / (PANEL / 2), i % (PANEL / 2) * 2);
    rows[0] = narrow_pair(one * eight_bits(word.x, 0), one * eight_bits(word.x, 8));
    rows[1] = narrow_pair(two * eight_bits(word.x, 16), two * eight_bits(word.x, 24));
}

static __device__ inline uint4 read_int4(u32 (*to)[PANEL], const u8 *panel, int from, int i, int columns)
{
    const u8 *group = panel + (u64)(from / GROUP) * PANEL * (2 + GROUP / 2);
    const uint4 word = {((const u32 *)(group + 2 * PANEL))[i], ((const u16 *)group)[i % PANEL], 0, 0};
    (void)to, (void)columns;
    return word;
}

static __device__ inline void put_int4(u32 (*to)[PANEL], uint4 word, int i)
{
    float scale = wide_half((u16)word.y);
    // Nibbles j and j + 4 are columns 2j and 2j + 1.
#pragma unroll
    for (int j = 0; j < 4; j++)
        *word_of(to, i / PANEL * 4 + j, i % PANEL) =
            narrow_pair(scale * ((float)(word.x >> (4 * j) & 15) - 8), scale * ((float)(word.x >> (4 * j + 16) & 15) - 8));
}

// Word i is a row's two bytes of a pair of columns, and the next row's.
static __device__ inline uint4 read_float8(const u8 *numbers, float one, float two, int from, int i, int columns)
{
    u32 pair = from + i / (PANEL / 2) * 2 < columns ? ((const u32 *)(numbers + (u64)from * PANEL))[i] : 0;
    const uint4 word = {pair, __float_as_uint(one), __float_as_uint(two), 0};
    return word;
}

static __device__ inline void put_fp8(u32 (*to)[PANEL], uint4 word, int i)
{
    float one = __uint_as_float(word.y), two = __uint_as_float(word.z);
    u32 *rows = word_of(to, i / (PANEL / 2), i % (PANEL / 2) * 2);
    rows[0] = narrow_pair(one * wide_float8(word.x), one * wide_float8(word.x >> 8));
    rows[1] = narrow_pair(two * wide_float8(word.x >> 16), two * wide_float8(word.x >> 24));
}

static __device__ inline uint4 read_fp8(u32 (*to)[PANEL], const u8 *panel, int from, int i, int columns)
{
    const float *scales = (const float *)panel + i % (PANEL / 2) * 2;
    (void)to;
    return read_float8(panel + 4 * PANEL, scales[0], scales[1], from, i, columns);
}

static __device__ inline uint4 read_fp8_block(u32 (*to)[PANEL], const u8 *panel, int from, int i, int columns)
{
    float scale = ((const float *)panel)[from / 128];
    (void)to;
    return read_float8(panel + (columns + 511) / 512 * PANEL, scale, scale, from, i, columns);
}

static __device__ inline void put_fp8_block(u32 (*to)[PANEL], uint4 word, int i) { put_fp8(to, word, i); }

// A "word" of blocks is eight columns of a row, which share bytes in most formats.
#define WIDEN(format)                                                                                             \
    static __device__ inline uint4 read_##format(u32 (*to)[PANEL], const u8 *panel, int from, int i, int columns) \
    {                                                                                                             \
        (void)to, (void)columns;                                                                                  \
        return eight_##format(panel, PANEL, i % PANEL, from, i / PANEL);                                          \
    }                                                                                                             \
    static __device__ inline void put_##format(u32 (*to)[PANEL], uint4 word, int i)                               \
    {                                                                                                             \
        int pair = i / PANEL * 2;                                                                                 \
        *word_of(to, pair, i % PANEL) = word.x;                                                                   \
        *word_of(to, pair + 1, i % PANEL) = word.y;                                                               \
        *word_of(to, pair + GROUP / 4, i % PANEL) = word.z;                                                       \
        *word_of(to, pair + GROUP / 4 + 1, i % PANEL) = word.w;                                                   \
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
// together; tiles of W's rows. A tile has `parts` times 32 pairs. `words`: words of a step of a
// panel.
#define GROUPED(kernel, format, words, parts)                                                                     \
    KERNEL(kernel##_##format, Grouped, THREADS)                                                                   \
    {                                                                                                             \
        __shared__ __align__(16) u16 x[STAGES][32 * parts * COLUMNS];                                             \
        __shared__ __align__(16) Panel w[STAGES][PANELS];                                                         \
        int expert = a.tiles[blockIdx.x] - a.first, row = blockIdx.y * ROWS;                                      \
        if (expert < 0 || expert >= a.count) return;                                                              \
        const u8 *matrix = a.w[expert];                                                                           \
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
            if (step >= 0) {                                                                                      \
                copies_wait(STAGES - 2);                                                                          \
                __syncthreads();                                                                                  \
            }                                                                                                     \
            uint4 read[PANELS * words / THREADS];                                                                 \
            if (next < steps) {                                                                                   \
                _Pragma("unroll") for (int part = 0; part < parts; part++) {                                      \
                    const uint4 zero = {0, 0, 0, 0};                                                              \
                    u16 *eighth = eighth_of(x[next % STAGES], 32 * part + threadIdx.x / 4, threadIdx.x % 4);      \
                    if (x_of[part] && from + (int)threadIdx.x % 4 * 8 < a.columns) copy_ahead(eighth, x_of[part] + from); \
                    else *(uint4 *)eighth = zero;                                                                 \
                }                                                                                                 \
                _Pragma("unroll") for (int j = 0; j < PANELS * words / THREADS; j++) {                            \
                    int i = j * THREADS + threadIdx.x, panel = row + i / words * PANEL;                           \
                    if (panel < a.rows)                                                                           \
                        read[j] = read_##format(w[next % STAGES][i / words], matrix + (u64)panel * row_bytes_##format(a.columns), from, i % words, a.columns); \
                }                                                                                                 \
            }                                                                                                     \
            copies_end();                                                                                         \
            if (step >= 0) multiply_step(sums, x[step % STAGES], w[step % STAGES], parts);                        \
            if (next < steps) {                                                                                   \
                _Pragma("unroll") for (int j = 0; j < PANELS * words / THREADS; j++) {                            \
                    int i = j * THREADS + threadIdx.x;                                                            \
                    if (row + i / words * PANEL < a.rows) put_##format(w[next % STAGES][i / words], read[j], i % words); \
                }                                                                                                 \
            }                                                                                                     \
        }                                                                                                         \
        write_sums(&a, order, sums, parts);                                                                       \
    }

enum { WORDS_bf16 = 64, WORDS_int8 = 128, WORDS_int4 = 64, WORDS_fp8 = 128, WORDS_fp8_block = 128 };
#define GROUPED_PLAIN(format)                                                                                     \
    GROUPED(grouped, format, WORDS_##format, 2)                                                                   \
    GROUPED(grouped_tall, format, WORDS_##format, 4)
PLAIN_FORMATS(GROUPED_PLAIN)
#define GROUPED_BLOCKS(format)                                                                                    \
    GROUPED(grouped, format, 64, 2)                                                                               \
    GROUPED(grouped_tall, format, 64, 4)
BLOCK_FORMATS(GROUPED_BLOCKS)
