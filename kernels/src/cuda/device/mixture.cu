// What mixtures of experts need besides experts.cu: routers with groups, corrections or factors,
// inputs that are weighed, and shared experts.
#define MOST 1024

typedef struct {
    float *scores;           // [token][count]: the router's outputs, which become weights
    const float *correction; // [count]: what the choice adds to scores; 0: nothing
    int count, per_token, groups, groups_per_token;
    int sigmoid;    // scores are sigmoids of the outputs, and not a softmax of them
    int normalised; // the weights of a token's experts are divided by their sum
    float factor;   // of the weights
    int unused;
} Weigh;

// The key of the `wanted`-th largest of `count` scores, of equal ones the first. All lanes get it.
static __device__ inline u64 last_wanted(const float *scores, int count, int wanted)
{
    u64 before = ~(u64)0;
    for (int i = 0; i < wanted; i++) {
        u64 best = 0;
        for (int at = threadIdx.x; at < count; at += WARP) {
            u64 key = key_of(scores[at], at);
            if (key < before && key > best) best = key;
        }
        before = warp_largest(best);
    }
    return before;
}

// A group counts as the sum of its two best scores, or as its best where scores are a softmax.
static __device__ inline float group_score(const float *scores, int size, int sigmoid)
{
    float best = NONE, second = NONE;
    for (int i = 0; i < size; i++) {
        float score = scores[i];
        if (score > best) {
            second = best;
            best = score;
        } else if (score > second) second = score;
    }
    return sigmoid && size > 1 ? best + second : best;
}

// Replaces a router's outputs by the weights of each token's experts, and by 0 for all others. One
// warp, which is a block, per token.
KERNEL(weigh_experts, Weigh, WARP)
{
    __shared__ float scores[MOST], preferred[MOST], groups[MOST];
    float *row = a.scores + (u64)blockIdx.x * a.count;
    float highest = NONE, total = 0;
    for (int i = threadIdx.x; i < a.count; i += WARP) highest = fmaxf(highest, row[i]);
    highest = a.sigmoid ? 0 : warp_max(highest);
    for (int i = threadIdx.x; i < a.count; i += WARP) {
        scores[i] = a.sigmoid ? 1 / (1 + expf(-row[i])) : expf(row[i] - highest);
        total += scores[i];
    }
    total = a.sigmoid ? 1 : warp_sum(total);
    for (int i = threadIdx.x; i < a.count; i += WARP) {
        scores[i] /= total;
        preferred[i] = scores[i] + (a.correction ? a.correction[i] : 0);
    }
    __syncthreads();
    int size = a.count / a.groups;
    if (a.groups_per_token < a.groups) {
        for (int i = threadIdx.x; i < a.groups; i += WARP) groups[i] = group_score(preferred + i * size, size, a.sigmoid);
        __syncthreads();
        u64 last = last_wanted(groups, a.groups, a.groups_per_token);
        for (int i = threadIdx.x; i < a.count; i += WARP)
            if (key_of(groups[i / size], i / size) < last) preferred[i] = NONE;
        __syncthreads();
    }
    u64 last = last_wanted(preferred, a.count, a.per_token);
    total = 0;
    for (int i = threadIdx.x; i < a.count; i += WARP)
        if (key_of(preferred[i], i) >= last) total += scores[i];
    total = a.normalised ? warp_sum(total) + 1e-20f : 1;
    for (int i = threadIdx.x; i < a.count; i += WARP)
        row[i] = key_of(preferred[i], i) >= last ? scores[i] * (a.factor / total) : 0;
}

typedef struct {
    u16 *x;              // [pair][columns]
    const float *shares; // [pair]
    u64 values;          // pairs * columns
    int columns, unused;
} WeighPairs;

// x *= the pair's share. A product of weighed inputs is the weighed product of the inputs.
KERNEL(weigh_pairs, WeighPairs, 256)
{
    u64 all = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < a.values; i += all)
        a.x[i] = narrow(wide(a.x[i]) * a.shares[i / a.columns]);
}

typedef struct {
    u16 *out;          // [row][columns]
    const u16 *made;   // [row][columns]
    const u16 *x;      // [row][columns], the expert's input
    const float *gate; // [columns]; 0: there is none
    int columns, adds;
} Shared;

// out = sigmoid(x * gate) * made, added to out where `adds`. A block per row.
KERNEL(add_shared, Shared, 256)
{
    u64 row = (u64)blockIdx.x * a.columns;
    float weight = 1;
    if (a.gate) { // the same for all threads
        float sum = 0;
        for (int i = threadIdx.x; i < a.columns; i += blockDim.x) sum += wide(a.x[row + i]) * a.gate[i];
        weight = 1 / (1 + expf(-block_sum(sum)));
    }
    for (int i = threadIdx.x; i < a.columns; i += blockDim.x)
        a.out[row + i] = narrow((a.adds ? wide(a.out[row + i]) : 0) + weight * wide(a.made[row + i]));
}
