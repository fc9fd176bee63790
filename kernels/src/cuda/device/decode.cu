// Attention of one new token per sequence over a paged KV cache, compiled for one HEAD_DIM: even,
// up to 256.
//
// The cache is read once, and reading it takes most of the time. Two things make that fast. One
// block computes up to 16 query heads of a key/value head, so keys are read once for all of them.
// And a sequence's positions are split over blocks, because one long sequence has fewer heads than
// the GPU has multiprocessors. Each split leaves its largest score, its sum of weights and its
// weighted sum of values, both relative to that score; `combine` joins them, unless there is one
// split only. Nothing overflows, because every exponent is at most 0. With a window only its
// positions are split.
//
// Scores and weighted sums are products of tiles, as in prefill.cu, with the query heads as rows.
// The code of a tile is then short, which counts where a block runs it once. Each warp has 16
// positions of a tile and its own sums, which are joined at the end.
#define HEADS 16
#define KEYS (WIDTH <= 128 ? 64 : 32)
#define WARPS (KEYS / 16)
#define THREADS (WARP * WARPS)

typedef struct { u16 keys[KEYS][WIDTH + APART], values[KEYS][WIDTH + APART]; } Tile;

typedef struct {
    const u16 *q;             // [sequence][head][HEAD_DIM], rows `q_stride` values apart
    const u16 *keys, *values; // [page][kv head][position][HEAD_DIM]
    const int *pages;         // [sequence][pages_per_sequence]
    const int *lengths;       // positions that each sequence's token sees, its own included; 0: there is no token
    float *sums;              // [sequence][head][split][HEAD_DIM]
    float *scales;            // [sequence][head][split][2]: the largest score, the sum of weights
    u16 *out;                 // [sequence][head][HEAD_DIM], rows `out_stride` values apart: where there is one split
    const float *sinks;       // [head]: a score without a value; 0: there are none
    int q_stride, heads, kv_heads, page, pages_per_sequence, chunk, splits; // chunk: positions of a split
    int window;               // the last positions that a token sees, its own included
    int chunked;              // whether it sees its own chunk of `window` positions instead
    float scale, cap;         // cap: as `soften` has it
    int out_stride;
} Decode;

// Copies keys and values of KEYS positions, which are counted from a multiple of the cache's room.
// Beyond `to` are zeros: 0 times whatever lies in memory
// could be NaN.
static __device__ inline void stage(Tile *tile, const Decode *a, int kv_head, int first, int to)
{
    const uint4 zero = {0, 0, 0, 0};
    const int *pages = a->pages + (u64)blockIdx.z * a->pages_per_sequence;
    for (int i = threadIdx.x; i < KEYS * WIDTH / 8; i += THREADS) {
        int p = i / (WIDTH / 8), d = i % (WIDTH / 8) * 8;
        if (first + p >= to || !IS_OURS(d)) {
            *(uint4 *)&tile->keys[p][d] = zero;
            *(uint4 *)&tile->values[p][d] = zero;
            continue;
        }
        u64 row = cache_row(pages, a->pages_per_sequence, a->page, a->kv_heads, kv_head, first + p);
        copy_eight(&tile->keys[p][d], a->keys + row, d);
        copy_eight(&tile->values[p][d], a->values + row, d);
    }
    copies_end();
    copies_wait(0);
}

// Grid: splits, key/value heads times pieces of HEADS query heads, sequences.
KERNEL(decode, Decode, THREADS)
{
    __shared__ __align__(16) Tile tile;
    __shared__ float largest[WARPS][HEADS], total[WARPS][HEADS];
    int group = a.heads / a.kv_heads, pieces = (group + HEADS - 1) / HEADS;
    int kv_head = blockIdx.y / pieces, piece = blockIdx.y % pieces;
    int head = kv_head * group + piece * HEADS, count = group - piece * HEADS < HEADS ? group - piece * HEADS : HEADS;
    int length = a.lengths[blockIdx.z], before = length > a.window ? length - a.window : 0;
    if (a.chunked && length > 0) before = (length - 1) / a.window * a.window;
    // What it sees is never more than a ring holds, so positions go once around at most.
    int rounds = before / (a.page * a.pages_per_sequence) * (a.page * a.pages_per_sequence);
    before -= rounds;
    length -= rounds;
    int from = before + blockIdx.x * a.chunk;
    int to = from + a.chunk < length ? from + a.chunk : length;
    int warp = threadIdx.x / WARP, g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    // The matrix and the row that this lane names to `load_matrices`.
    int matrix = threadIdx.x % WARP / 8, line = threadIdx.x % 8;
    const u16 *queries = a.q + (u64)blockIdx.z * a.q_stride + head * HEAD_DIM;
    u32 q[WIDTH / 16][4];
#pragma unroll
    for (int k = 0; k < WIDTH / 16; k++)
        for (int i = 0; i < 4; i++) {
            int column = 16 * k + 2 * t + i / 2 * 8, row = g + i % 2 * 8;
            q[k][i] = row < count && IS_OURS(column) ? *(const u32 *)(queries + row * HEAD_DIM + column) : 0;
        }
    // Of the heads g and g + 8, over this warp's positions.
    float sums[WIDTH / 8][4] = {{0}}, most[2] = {NONE, NONE}, all[2] = {0, 0};
    for (int first = from; first < to; first += KEYS) {
        __syncthreads(); // the previous tile was used
        stage(&tile, &a, kv_head, first, to);
        __syncthreads();
        if (first + 16 * warp >= to) continue;
        float scores[2][4] = {{0}}, base[2], now[2] = {most[0], most[1]};
#pragma unroll
        for (int k = 0; k < WIDTH / 16; k++) {
            u32 b[4];
            load_matrices(b, &tile.keys[16 * warp + matrix / 2 * 8 + line][16 * k + matrix % 2 * 8], 0);
            multiply(scores[0], q[k], b);
            multiply(scores[1], q[k], b + 2);
        }
        for (int j = 0; j < 2; j++)
            for (int i = 0; i < 4; i++) {
                int seen = first + 16 * warp + 8 * j + 2 * t + i % 2 < to;
                scores[j][i] = seen ? soften(scores[j][i] * a.scale, a.cap) : NONE;
                now[i / 2] = fmaxf(now[i / 2], scores[j][i]);
            }
        for (int i = 0; i < 2; i++) {
            base[i] = row_max(now[i]);
            float shrink = exponential(most[i] - base[i]);
            most[i] = base[i];
            all[i] *= shrink;
#pragma unroll
            for (int n = 0; n < WIDTH / 8; n++) {
                sums[n][2 * i] *= shrink;
                sums[n][2 * i + 1] *= shrink;
            }
        }
        // A weight is the sum of two bf16, which is as exact as a fraction of 16 bits.
        u32 weights[4], rests[4];
        for (int i = 0; i < 4; i++) {
            const float *pair = &scores[i / 2][i % 2 * 2];
            float one = exponential(pair[0] - base[i % 2]), two = exponential(pair[1] - base[i % 2]);
            all[i % 2] += one + two;
            weights[i] = narrow_pair(one, two);
            rests[i] = narrow_pair(one - low(weights[i]), two - high(weights[i]));
        }
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n += 2) {
            u32 b[4];
            load_matrices(b, &tile.values[16 * warp + matrix % 2 * 8 + line][8 * (n + matrix / 2)], 1);
            multiply(sums[n], weights, b);
            multiply(sums[n + 1], weights, b + 2);
            multiply(sums[n], rests, b);
            multiply(sums[n + 1], rests, b + 2);
        }
    }
    for (int i = 0; i < 2; i++) {
        float sum = row_sum(all[i]);
        if (t == 0) {
            largest[warp][g + 8 * i] = most[i];
            total[warp][g + 8 * i] = sum;
        }
    }
    __syncthreads();
    // The tile's memory now holds the warps' sums, relative to the largest score of all warps.
    float(*joined)[HEADS][WIDTH] = (float(*)[HEADS][WIDTH]) & tile;
    for (int i = 0; i < 2; i++) {
        float above = NONE;
        for (int w = 0; w < WARPS; w++) above = fmaxf(above, largest[w][g + 8 * i]);
        float shrink = most[i] > NONE ? exponential(most[i] - above) : 0;
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++) {
            joined[warp][g + 8 * i][8 * n + 2 * t] = sums[n][2 * i] * shrink;
            joined[warp][g + 8 * i][8 * n + 2 * t + 1] = sums[n][2 * i + 1] * shrink;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count * HEAD_DIM; i += THREADS) {
        int row = i / HEAD_DIM, d = i % HEAD_DIM;
        float above = NONE, weight = 0, sum = 0;
        for (int w = 0; w < WARPS; w++) above = fmaxf(above, largest[w][row]);
        for (int w = 0; w < WARPS && above > NONE; w++) {
            weight += exponential(largest[w][row] - above) * total[w][row];
            sum += joined[w][row][d];
        }
        u64 at = ((u64)blockIdx.z * a.heads + head + row) * a.splits + blockIdx.x;
        if (a.splits == 1) {
            float share = share_of(weight, above, a.sinks, head + row);
            a.out[(u64)blockIdx.z * a.out_stride + (head + row) * HEAD_DIM + d] = narrow(sum * share);
            continue;
        }
        a.sums[at * HEAD_DIM + d] = sum;
        if (d == 0) {
            a.scales[2 * at] = above;
            a.scales[2 * at + 1] = weight;
        }
    }
}

typedef struct {
    const float *sums, *scales; // as `decode` leaves them
    u16 *out;                   // [sequence][head][HEAD_DIM], rows `out_stride` values apart
    const float *sinks;         // [head]: a score without a value; 0: there are none
    int out_stride, splits;
} Combine;

// Grid: heads, sequences. A split that saw no position has the weight exp(-infinity). Where all
// splits are such, out is 0.
KERNEL(combine, Combine, THREADS)
{
    u64 at = ((u64)blockIdx.y * gridDim.x + blockIdx.x) * a.splits;
    float largest = NONE, total = 0;
    for (int split = 0; split < a.splits; split++) largest = fmaxf(largest, a.scales[2 * (at + split)]);
    for (int split = 0; split < a.splits && largest > NONE; split++)
        total += expf(a.scales[2 * (at + split)] - largest) * a.scales[2 * (at + split) + 1];
    float share = share_of(total, largest, a.sinks, blockIdx.x);
    for (int i = threadIdx.x; i < HEAD_DIM; i += THREADS) {
        float sum = 0;
        for (int split = 0; split < a.splits && total > 0; split++)
            sum += expf(a.scales[2 * (at + split)] - largest) * a.sums[(at + split) * HEAD_DIM + i];
        a.out[(u64)blockIdx.y * a.out_stride + blockIdx.x * HEAD_DIM + i] = narrow(sum * share);
    }
}
