// Causal attention of a prompt, or of a chunk of one, over a paged KV cache, compiled for one
// HEAD_DIM: even, up to 256. Tiles are padded with zeros. Scores and weighted sums are products of
// 16 x 8 x 16 tiles, on tensor cores where they multiply bf16 (from compute capability 8.0 on). The
// softmax is online, in f32.
//
// A block has 64 rows, 16 per warp, and goes over the visible positions 32 or 64 at a time. A row
// is one query head of one token. The heads that share a key/value head are neighbours, so a
// block's keys serve all of them, and a prompt of few tokens still fills tiles. A warp's scores
// stay in registers: the result of one product, rounded to bf16, is in the layout that the next
// product takes.
#define KEYS (WIDTH <= 64 ? 64 : 32)
#define ROWS 64
#define THREADS 128
// The next keys and values are on their way while these are used. Of wide heads there is room for
// one tile only.
#define STAGES (WIDTH <= 128 ? 2 : 1)

typedef struct { u16 keys[KEYS][WIDTH + APART], values[KEYS][WIDTH + APART]; } Tile;

typedef struct {
    const u16 *q;             // [row][head][HEAD_DIM], rows `q_stride` values apart
    u16 *out;                 // the same, `out_stride` values apart
    const u16 *keys, *values; // [page][kv head][position][HEAD_DIM], position modulo a sequence's room
    const int *pages;         // [sequence][pages_per_sequence]
    const int *spans;         // [span][4]: sequence, positions before it, new tokens, first row
    const float *sinks;       // [head]: a score without a value; 0: there are none
    const u16 *new_keys, *new_values; // the new tokens' own, if not in the cache yet: rows `new_stride` apart; or 0
    int q_stride, out_stride, heads, kv_heads, page, pages_per_sequence;
    int window;               // the last positions that a token sees, its own included
    int chunked;              // whether it sees its own chunk of `window` positions instead
    float scale, cap;         // cap: as `soften` has it
    int new_stride, unused;
} Prefill;

// The first position that the token at `position` sees.
static __device__ inline int first_seen(const Prefill *a, int position)
{
    if (a->chunked) return position / a->window * a->window;
    return position >= a->window ? position + 1 - a->window : 0;
}

// Two values of a row of q or out. Row r of the span is token r / group and head r % group of the
// block's heads.
static __device__ inline u64 place(int row, int group, int first, int stride)
{
    return (u64)(first + row / group) * stride + (blockIdx.y * group + row % group) * HEAD_DIM;
}

// Begins to copy keys and values of KEYS positions, by rows. Positions from `end` on are zeros. The
// mask removes them, but 0 times whatever lies in memory could be NaN.
static __device__ inline void stage(const Prefill *a, Tile *to, const int *span, int tile, int end)
{
    int sequence = span[0], past = span[1];
    const uint4 zero = {0, 0, 0, 0};
    for (int i = threadIdx.x; i < KEYS * WIDTH / 8; i += THREADS) {
        int p = i / (WIDTH / 8), d = i % (WIDTH / 8) * 8;
        if (tile + p >= end || !IS_OURS(d)) {
            *(uint4 *)&to->keys[p][d] = zero;
            *(uint4 *)&to->values[p][d] = zero;
            continue;
        }
        const u16 *key, *value;
        int own = tile + p - past;
        if (a->new_keys && own >= 0) {
            u64 at = (u64)(span[3] + own) * a->new_stride + blockIdx.y * HEAD_DIM;
            key = a->new_keys + at;
            value = a->new_values + at;
        } else {
            const int *pages = a->pages + (u64)sequence * a->pages_per_sequence;
            u64 at = cache_row(pages, a->pages_per_sequence, a->page, a->kv_heads, blockIdx.y, tile + p);
            key = a->keys + at;
            value = a->values + at;
        }
        copy_eight(&to->keys[p][d], key, d);
        copy_eight(&to->values[p][d], value, d);
    }
    copies_end();
}

// Grid: pieces of 64 rows, key/value heads, spans.
KERNEL(prefill, Prefill, THREADS)
{
    __shared__ __align__(16) Tile tiles[STAGES];
    const int *span = a.spans + 4 * blockIdx.z;
    int past = span[1], first = span[3], group = a.heads / a.kv_heads, rows = span[2] * group;
    // The last rows see the most, so they go first: short blocks fill the end.
    int block = (gridDim.x - 1 - blockIdx.x) * ROWS;
    if (block >= rows) return;
    int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    // The matrix and the row that this lane names to `load_matrices`.
    int matrix = threadIdx.x % WARP / 8, line = threadIdx.x % 8;
    // This lane's two rows, and the last position that each sees. Rows beyond the span are computed
    // and not written.
    int row[2], last[2], from[2];
    for (int i = 0; i < 2; i++) {
        row[i] = block + threadIdx.x / WARP * 16 + g + 8 * i;
        last[i] = past + row[i] / group;
        from[i] = first_seen(&a, last[i]);
    }
    u32 q[WIDTH / 16][4];
#pragma unroll
    for (int k = 0; k < WIDTH / 16; k++)
        for (int i = 0; i < 4; i++) {
            int column = 16 * k + 2 * t + i / 2 * 8;
            const u16 *query = a.q + place(row[i % 2], group, first, a.q_stride) + column;
            q[k][i] = row[i % 2] < rows && IS_OURS(column) ? *(const u32 *)query : 0;
        }
    float sums[WIDTH / 8][4] = {{0}}, most[2] = {NONE, NONE}, total[2] = {0, 0};
    // Scores are kept as products where they are not capped: their scale is part of the power of
    // two.
    float unit = a.cap > 0 ? 1 : a.scale, power = unit * LOG2_E;
    int end = past + (block + ROWS < rows ? block + ROWS - 1 : rows - 1) / group + 1;
    // No row sees what the block's first token does not see because of the window. What that token
    // sees, all rows see unless they have a later window.
    int seen_by_first = past + block / group + 1, window_of_last = first_seen(&a, end - 1);
    int tile = first_seen(&a, past + block / group);
    stage(&a, tiles, span, tile, end);
    for (int number = 0; tile < end; tile += KEYS, number++) {
        const Tile *now_at = &tiles[number % STAGES];
        if (STAGES == 2 && tile + KEYS < end) stage(&a, &tiles[(number + 1) % STAGES], span, tile + KEYS, end);
        copies_wait(STAGES == 2 && tile + KEYS < end ? 1 : 0);
        __syncthreads();
        float scores[KEYS / 8][4] = {{0}};
        float now[2] = {most[0], most[1]};
        int all_seen = tile + KEYS <= seen_by_first && tile >= window_of_last;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j += 2)
#pragma unroll
            for (int k = 0; k < WIDTH / 16; k++) {
                u32 b[4];
                load_matrices(b, &now_at->keys[8 * (j + matrix / 2) + line][16 * k + matrix % 2 * 8], 0);
                multiply(scores[j], q[k], b);
                multiply(scores[j + 1], q[k], b + 2);
            }
        if (a.cap > 0)
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++)
                for (int i = 0; i < 4; i++) scores[j][i] = soften(scores[j][i] * a.scale, a.cap);
        if (!all_seen)
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++)
                for (int i = 0; i < 4; i++) {
                    int position = tile + 8 * j + 2 * t + i % 2;
                    int seen = position <= last[i / 2] && position >= from[i / 2] && position < end;
                    if (!seen) scores[j][i] = NONE;
                }
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
            for (int i = 0; i < 4; i++) now[i / 2] = fmaxf(now[i / 2], scores[j][i]);
        // A row whose window begins in a later tile has no largest score yet, so any number does in
        // its place.
        float base[2];
        for (int i = 0; i < 2; i++) {
            now[i] = row_max(now[i]);
            base[i] = now[i] > NONE ? now[i] * power : 0;
            float shrink = power_of_two(most[i] * power - base[i]);
            most[i] = now[i];
            total[i] *= shrink;
#pragma unroll
            for (int n = 0; n < WIDTH / 8; n++) {
                sums[n][2 * i] *= shrink;
                sums[n][2 * i + 1] *= shrink;
            }
        }
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++) {
            u32 weights[4];
            for (int i = 0; i < 4; i++) {
                const float *pair = &scores[2 * k + i / 2][i % 2 * 2];
                float one = power_of_two(pair[0] * power - base[i % 2]), two = power_of_two(pair[1] * power - base[i % 2]);
                total[i % 2] += one + two;
                weights[i] = narrow_pair(one, two);
            }
#pragma unroll
            for (int n = 0; n < WIDTH / 8; n += 2) {
                u32 b[4];
                load_matrices(b, &now_at->values[16 * k + matrix % 2 * 8 + line][8 * (n + matrix / 2)], 1);
                multiply(sums[n], weights, b);
                multiply(sums[n + 1], weights, b + 2);
            }
        }
        __syncthreads();
        if (STAGES == 1 && tile + KEYS < end) stage(&a, tiles, span, tile + KEYS, end);
    }
    for (int i = 0; i < 2; i++) {
        float all = row_sum(total[i]);
        if (row[i] >= rows) continue;
        float share = share_of(all, most[i] * unit, a.sinks, blockIdx.y * group + row[i] % group);
        u16 *out = a.out + place(row[i], group, first, a.out_stride) + 2 * t;
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++)
            if (IS_OURS(8 * n + 2 * t)) *(u32 *)(out + 8 * n) = narrow_pair(sums[n][2 * i] * share, sums[n][2 * i + 1] * share);
    }
}
