// Samples a token from logits, one block per sequence, with the same result as
// kernels/src/cpu/sampling.rs.
//
// The CPU sorts the vocabulary; here nothing is sorted. The question is only at which token, in the
// order from the most probable one down (of equals the first), a sum of tokens or of probability
// first reaches a target. One digit of the token's key at a time, a histogram says in which of 256
// bins that is: four passes over the logits, which lie in the L2, and up to four more among equals.
// Probabilities are counted in whole 2^-40ths of the largest. Sums of integers do not depend on the
// order of the atomic additions, so the same seed gives the same token, and no sum of 2^23 of them
// overflows.
#define THREADS 1024
#define BINS 256
// Logits that a thread reads at once in the search for the largest.
#define AHEAD 16
#define ONE 1099511627776.0f // 2^40
// What is written for a sequence whose logits are not all finite.
#define NO_TOKEN -1

static __device__ inline int is_finite(float value)
{
    return (__float_as_uint(value) & 0x7f800000u) != 0x7f800000u;
}

// The largest key, and in `finite` whether all logits are finite.
static __device__ inline u64 largest_key(const float *logits, int vocabulary, int *finite)
{
    __shared__ u64 of_warp[WARP];
    __shared__ int wrong;
    u64 largest = 0;
    int is_wrong = 0;
    if (threadIdx.x == 0) wrong = 0;
    __syncthreads();
    int i = threadIdx.x, step = blockDim.x;
    // Many loads are under way at once, since one block reads alone.
    for (; i + (AHEAD - 1) * step < vocabulary; i += AHEAD * step) {
        float value[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) value[k] = logits[i + k * step];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            u64 key = key_of(value[k], i + k * step);
            if (key > largest) largest = key;
            is_wrong |= !is_finite(value[k]);
        }
    }
    for (; i < vocabulary; i += step) {
        u64 key = key_of(logits[i], i);
        if (key > largest) largest = key;
        is_wrong |= !is_finite(logits[i]);
    }
    if (is_wrong) wrong = 1;
    largest = warp_largest(largest);
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = largest;
    __syncthreads();
    for (u32 warp = 0; warp < blockDim.x / WARP; warp++)
        if (of_warp[warp] > largest) largest = of_warp[warp];
    *finite = !wrong;
    return largest;
}

typedef struct { float uniform, temperature, top_p; int top_k; } Choice; // temperature 0: the most probable; top_k 0: all

typedef struct {
    const float *logits;   // [sequence][vocabulary]
    const Choice *choices; // [sequence]
    int *tokens;           // [sequence]
    int vocabulary, unused;
} Sample;

// The sequence of a block.
typedef struct { const float *logits; int vocabulary; float largest, temperature; } Row;

static __device__ inline u64 mass(const Row *a, float logit)
{
    return (u64)(expf((logit - a->largest) / a->temperature) * ONE);
}

// The mass of the tokens whose keys are at least `last`.
static __device__ u64 mass_down_to(const Row *a, u64 last)
{
    __shared__ u64 sum;
    // Other threads may still read the sum of the previous call.
    __syncthreads();
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    u64 mine = 0;
    for (int i = threadIdx.x; i < a->vocabulary; i += blockDim.x)
        if (key_of(a->logits[i], i) >= last) mine += mass(a, a->logits[i]);
    atomicAdd(&sum, mine);
    __syncthreads();
    return sum;
}

// The key of the token at which the sum reaches `target`, which is between 1 and the sum of all.
// Where `counted` it is a sum of tokens, otherwise of mass.
static __device__ u64 reach(const Row *a, u64 target, int counted)
{
    __shared__ u64 sums[BINS], prefix, before, found;
    __shared__ u32 counts[BINS], left;
    u64 mask = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        prefix = before = 0;
        left = a->vocabulary;
    }
    __syncthreads();
    // `prefix` has the digits so far; `left` tokens have them.
    for (int shift = 56; shift >= 0 && left > 1; shift -= 8) {
        for (int i = threadIdx.x; i < BINS; i += blockDim.x) sums[i] = counts[i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < a->vocabulary; i += blockDim.x) {
            u64 key = key_of(a->logits[i], i);
            if ((key & mask) != prefix) continue;
            atomicAdd(&sums[key >> shift & 255], counted ? 1 : mass(a, a->logits[i]));
            atomicAdd(&counts[key >> shift & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int bin = BINS - 1;
            while (bin > 0 && before + sums[bin] < target) before += sums[bin--];
            prefix |= (u64)bin << shift;
            left = counts[bin];
        }
        mask |= (u64)255 << shift;
        __syncthreads();
    }
    for (int i = threadIdx.x; i < a->vocabulary; i += blockDim.x) {
        u64 key = key_of(a->logits[i], i);
        if ((key & mask) == prefix) found = key;
    }
    __syncthreads();
    return found;
}

KERNEL(sample, Sample, THREADS)
{
    const Choice choice = a.choices[blockIdx.x];
    Row row = {a.logits + (u64)blockIdx.x * a.vocabulary, a.vocabulary, 0, choice.temperature};
    int finite;
    u64 first = largest_key(row.logits, row.vocabulary, &finite), last = 0;
    if (!finite || choice.temperature == 0) {
        if (threadIdx.x == 0) a.tokens[blockIdx.x] = finite ? (int)~(u32)first : NO_TOKEN;
        return;
    }
    row.largest = row.logits[~(u32)first];
    if (choice.top_k > 0 && choice.top_k < row.vocabulary) last = reach(&row, choice.top_k, 1);
    u64 total = mass_down_to(&row, last);
    if (choice.top_p < 1) {
        u64 target = (u64)ceil((double)choice.top_p * (double)total);
        last = reach(&row, target > 1 ? target : 1, 0);
        total = mass_down_to(&row, last);
    }
    u64 key = reach(&row, (u64)((double)choice.uniform * (double)total) + 1, 0);
    if (threadIdx.x == 0) a.tokens[blockIdx.x] = (int)~(u32)key;
}
