// The routing of tokens to experts, and the sum of their results. A token's experts are `per_token`
// *pairs* that follow each other; gemv.cu and grouped.cu have the products of pairs. Only the GPU
// knows how many pairs an expert has. The host launches as many blocks as there could be, and
// blocks without work end at once. So nothing waits for the host, and a graph is valid for any
// routing.
#define MOST 1024

typedef struct {
    const float *scores; // [token][count]
    int *ids;            // [pair]
    float *shares;       // [pair]
    int tokens, count, per_token;
    int kind; // of shares: OVER_ALL, OVER_CHOSEN or GIVEN
} Route;
#define OVER_ALL 0
#define OVER_CHOSEN 1
#define GIVEN 2

// Finds the experts with the highest scores, of equal scores the first, and their shares of a
// softmax over all scores or over those of the token's own experts; or the scores are the shares. A
// warp per token: each round finds the largest key below the previous one.
KERNEL(route, Route, 256)
{
    int token = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
    if (token >= a.tokens) return;
    const float *scores = a.scores + (u64)token * a.count;
    u64 first = (u64)token * a.per_token, before = ~(u64)0;
    float highest = 0, total = 0;
    for (int i = 0; i < a.per_token; i++) {
        u64 best = 0;
        for (int expert = lane; expert < a.count; expert += WARP) {
            u64 key = key_of(scores[expert], expert);
            if (key < before && key > best) best = key;
        }
        before = warp_largest(best);
        int expert = (int)~(u32)before;
        if (i == 0) highest = scores[expert];
        float share = a.kind == GIVEN ? scores[expert] : expf(scores[expert] - highest);
        total += share;
        if (lane == 0) {
            a.ids[first + i] = expert;
            a.shares[first + i] = share;
        }
    }
    if (a.kind == GIVEN) return; // the same for all threads
    if (a.kind == OVER_ALL) {
        total = 0;
        for (int expert = lane; expert < a.count; expert += WARP) total += expf(scores[expert] - highest);
        total = warp_sum(total);
    }
    if (lane == 0)
        for (int i = 0; i < a.per_token; i++) a.shares[first + i] /= total;
}

typedef struct {
    const int *ids; // [pair]
    int *order;     // [tile][of_tile]: pairs of one expert, or -1
    int *tiles;     // [tile]: whose pairs, or -1
    int pairs, count, most, of_tile; // most: tiles there is room for
} Group;

// Sorts pairs by expert into tiles that belong to one expert each. One block. The place of a pair
// in its expert's tiles depends on the schedule; the results do not.
KERNEL(group, Group, 1024)
{
    __shared__ int counts[MOST], next[MOST];
    for (int i = threadIdx.x; i < a.count; i += blockDim.x) counts[i] = 0;
    for (int i = threadIdx.x; i < a.most; i += blockDim.x) a.tiles[i] = -1;
    for (int i = threadIdx.x; i < a.most * a.of_tile; i += blockDim.x) a.order[i] = -1;
    __syncthreads();
    for (int i = threadIdx.x; i < a.pairs; i += blockDim.x) atomicAdd(&counts[a.ids[i]], 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        int tile = 0;
        for (int expert = 0; expert < a.count; expert++) {
            next[expert] = tile * a.of_tile;
            for (int left = counts[expert]; left > 0; left -= a.of_tile) a.tiles[tile++] = expert;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < a.pairs; i += blockDim.x) a.order[atomicAdd(&next[a.ids[i]], 1)] = i;
}

typedef struct {
    u16 *y;              // [pair][columns]
    const float *biases; // [expert][stride]
    const int *ids;      // [pair]
    u64 values;          // pairs * columns
    int columns, stride;
} Biases;

// Adds to each pair's row the bias of its expert.
KERNEL(bias_experts, Biases, 256)
{
    u64 all = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < a.values; i += all) {
        u64 expert = a.ids[i / a.columns];
        a.y[i] = narrow(wide(a.y[i]) + a.biases[expert * a.stride + i % a.columns]);
    }
}

// sums += share * eight values.
static __device__ inline void add_eight(float *sums, uint4 values, float share)
{
    const u32 pairs[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sums[2 * i] += share * low(pairs[i]);
        sums[2 * i + 1] += share * high(pairs[i]);
    }
}

typedef struct {
    const u16 *made;     // [pair][columns]
    const int *ids;      // [pair]
    const float *shares; // [pair]; 0: all are 1
    u16 *out;            // [token][columns]
    u64 values;          // tokens * columns
    int columns, per_token, first, count, adds, unused;
} Sum;

// Adds up the results of the experts from `first` on for each token, weighted by their shares.
// Where `adds`, the sum is added to out. A thread takes eight values at a time where they lie so.
KERNEL(sum_experts, Sum, 256)
{
    u64 all = (u64)gridDim.x * blockDim.x, thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    int each = a.columns % 8 == 0 && ((u64)a.made | (u64)a.out) % 16 == 0 ? 8 : 1;
    for (u64 i = thread * each; i < a.values; i += all * each) {
        u64 pair = i / a.columns * a.per_token;
        int column = i % a.columns;
        float sums[8] = {0};
        for (int k = 0; k < a.per_token; k++, pair++) {
            int expert = a.ids[pair] - a.first;
            if (expert < 0 || expert >= a.count) continue;
            float share = a.shares ? a.shares[pair] : 1;
            const u16 *made = a.made + pair * a.columns + column;
            if (each == 1) sums[0] += share * wide(*made);
            else add_eight(sums, *(const uint4 *)made, share);
        }
        if (each == 1) {
            a.out[i] = narrow(sums[0] + (a.adds ? wide(a.out[i]) : 0));
            continue;
        }
        uint4 *out = (uint4 *)(a.out + i);
        if (a.adds) add_eight(sums, *out, 1);
        const uint4 eight = {narrow_pair(sums[0], sums[1]), narrow_pair(sums[2], sums[3]), narrow_pair(sums[4], sums[5]), narrow_pair(sums[6], sums[7])};
        *out = eight;
    }
}
