// Attention of one new token per sequence over a paged KV cache, compiled for one HEAD_DIM: even,
// up to 256.
//
// The cache is read once, and reading it takes most of the time. Two things make that fast. One
// block computes all query heads of a key/value head, so keys are read once for all of them. And a
// sequence's positions are split over blocks, because one long sequence has fewer heads than the
// GPU has multiprocessors. Each split leaves its largest score, its sum of weights and its weighted
// sum of values, both relative to that score; `combine` joins them. Nothing overflows, because
// every exponent is at most 0. With a window only its positions are split.
#define POSITIONS 64
#define HEADS 8
#define THREADS 128
#define WARPS (THREADS / WARP)
// Two values of a row per thread; as many rows side by side as there are threads for.
#define PAIRS (HEAD_DIM / 2)
// Values of a query in shared memory, in whole loads of eight; the last load is padded with zeros.
#define WIDTH ((HEAD_DIM + 7) / 8 * 8)
#define SLICES (THREADS / PAIRS)

typedef struct {
    const u16 *q;             // [sequence][head][HEAD_DIM], rows `q_stride` values apart
    const u16 *keys, *values; // [page][kv head][position][HEAD_DIM]
    const int *pages;         // [sequence][pages_per_sequence]
    const int *lengths;       // positions that each sequence's token sees, its own included; 0: there is no token
    float *sums;              // [sequence][head][split][HEAD_DIM]
    float *scales;            // [sequence][head][split][2]: the largest score, the sum of weights
    int q_stride, heads, kv_heads, page, pages_per_sequence, chunk, splits; // chunk: positions of a split
    int window;               // the last positions that a token sees, its own included
    int chunked;              // whether it sees its own chunk of `window` positions instead
    float scale, cap;         // cap: as `soften` has it
    int unused;
} Decode;

// A position is counted from a multiple of the cache's room; beyond the room it is at the start of a ring.
static __device__ inline u64 row_of(const Decode *a, int sequence, int kv_head, int position)
{
    int ring = a->page * a->pages_per_sequence;
    if (position >= ring) position -= ring;
    u64 page = a->pages[(u64)sequence * a->pages_per_sequence + position / a->page];
    return ((page * a->kv_heads + kv_head) * a->page + position % a->page) * HEAD_DIM;
}

// Eight lanes per position, each with 16 bytes of its key at a time: 128 consecutive bytes, and
// three shuffles per head instead of a whole warp's five.
static __device__ inline void scores(const Decode *a, float weights[HEADS][POSITIONS], float q[HEADS][WIDTH], int count,
                                     int kv_head, int tile, int n)
{
    for (int p = threadIdx.x / 8; p < POSITIONS; p += THREADS / 8) {
        float dots[HEADS] = {0};
        if (p < n) {
            const u16 *key = a->keys + row_of(a, blockIdx.z, kv_head, tile + p);
            for (int i = threadIdx.x % 8 * 8; i < HEAD_DIM; i += 64) {
                uint4 of_key = eight(key, i);
                const u32 k[4] = {of_key.x, of_key.y, of_key.z, of_key.w};
#pragma unroll
                for (int h = 0; h < HEADS; h++)
                    if (h < count)
                        for (int j = 0; j < 4; j++)
                            dots[h] += q[h][i + 2 * j] * low(k[j]) + q[h][i + 2 * j + 1] * high(k[j]);
            }
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            if (h >= count) continue; // the same for all threads
            float dot = dots[h];
            for (int apart = 1; apart < 8; apart *= 2) dot += __shfl_xor_sync(ALL, dot, apart);
            if (threadIdx.x % 8 == 0) weights[h][p] = p < n ? soften(dot, a->cap) : NONE;
        }
    }
}

// Grid: splits, key/value heads times pieces of HEADS query heads, sequences.
KERNEL(decode, Decode, THREADS)
{
    __shared__ float q[HEADS][WIDTH], weights[HEADS][POSITIONS];
    __shared__ float largest[HEADS], total[HEADS], shrink[HEADS], joined[THREADS][2];
    int group = a.heads / a.kv_heads, pieces = (group + HEADS - 1) / HEADS;
    int kv_head = blockIdx.y / pieces, piece = blockIdx.y % pieces;
    int first = kv_head * group + piece * HEADS, count = group - piece * HEADS < HEADS ? group - piece * HEADS : HEADS;
    int thread = threadIdx.x, lane = thread % WARP, pair = thread % PAIRS, slice = thread / PAIRS;
    int length = a.lengths[blockIdx.z], before = length > a.window ? length - a.window : 0;
    if (a.chunked && length > 0) before = (length - 1) / a.window * a.window;
    // What it sees is never more than a ring holds, so positions go once around at most.
    int rounds = before / (a.page * a.pages_per_sequence) * (a.page * a.pages_per_sequence);
    before -= rounds;
    length -= rounds;
    int from = before + blockIdx.x * a.chunk;
    int to = from + a.chunk < length ? from + a.chunk : length;
    const u16 *queries = a.q + (u64)blockIdx.z * a.q_stride + first * HEAD_DIM;
    for (int i = thread; i < count * WIDTH; i += THREADS) {
        int h = i / WIDTH, d = i % WIDTH;
        q[h][d] = d < HEAD_DIM ? wide(queries[h * HEAD_DIM + d]) * a.scale : 0;
    }
    if (thread < HEADS) {
        largest[thread] = NONE;
        total[thread] = 0;
    }
    float sums[HEADS][2] = {{0}};
    __syncthreads();
    for (int tile = from; tile < to; tile += POSITIONS) {
        int n = to - tile < POSITIONS ? to - tile : POSITIONS;
        scores(&a, weights, q, count, kv_head, tile, n);
        __syncthreads();
        // A warp per head. The sums so far shrink where the largest score grows.
        for (int h = thread / WARP; h < count; h += WARPS) {
            float known = largest[h], one = weights[h][lane], two = weights[h][lane + WARP];
            float most = fmaxf(known, warp_max(fmaxf(one, two)));
            one = expf(one - most);
            two = expf(two - most);
            weights[h][lane] = one;
            weights[h][lane + WARP] = two;
            float sum = warp_sum(one + two);
            if (lane == 0) {
                shrink[h] = expf(known - most);
                total[h] = total[h] * shrink[h] + sum;
                largest[h] = most;
            }
        }
        __syncthreads();
#pragma unroll
        for (int h = 0; h < HEADS; h++)
            if (h < count) {
                sums[h][0] *= shrink[h];
                sums[h][1] *= shrink[h];
            }
        for (int p = slice; slice < SLICES && p < n; p += SLICES) {
            u32 value = *(const u32 *)(a.values + row_of(&a, blockIdx.z, kv_head, tile + p) + 2 * pair);
#pragma unroll
            for (int h = 0; h < HEADS; h++)
                if (h < count) {
                    sums[h][0] += weights[h][p] * low(value);
                    sums[h][1] += weights[h][p] * high(value);
                }
        }
        __syncthreads();
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        if (h >= count) continue;
        u64 at = ((u64)blockIdx.z * a.heads + first + h) * a.splits + blockIdx.x;
        joined[thread][0] = sums[h][0];
        joined[thread][1] = sums[h][1];
        __syncthreads();
        if (thread < PAIRS) {
            float even = 0, odd = 0;
            for (int other = thread; other < SLICES * PAIRS; other += PAIRS) {
                even += joined[other][0];
                odd += joined[other][1];
            }
            a.sums[at * HEAD_DIM + 2 * thread] = even;
            a.sums[at * HEAD_DIM + 2 * thread + 1] = odd;
        }
        if (thread == 0) {
            a.scales[2 * at] = largest[h];
            a.scales[2 * at + 1] = total[h];
        }
        __syncthreads();
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
    float above = a.sinks ? a.sinks[blockIdx.x] - largest : NONE, shrink = 1;
    // Nothing overflows relative to the larger of both.
    if (total > 0 && above > 0) shrink = expf(-above);
    if (total > 0 && above > NONE) total = total * shrink + expf(above > 0 ? 0 : above);
    for (int i = threadIdx.x; i < HEAD_DIM; i += THREADS) {
        float sum = 0;
        for (int split = 0; split < a.splits && total > 0; split++)
            sum += expf(a.scales[2 * (at + split)] - largest) * a.sums[(at + split) * HEAD_DIM + i];
        a.out[(u64)blockIdx.y * a.out_stride + blockIdx.x * HEAD_DIM + i] = narrow(total > 0 ? sum * shrink / total : 0);
    }
}
