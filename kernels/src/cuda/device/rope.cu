// Rotary position embedding, in place, of the first 2 * half values of every head. A pair is value
// i and value i + half (the half-split order of Hugging Face's Llama), or values 2 i and 2 i + 1
// (the interleaved order of GPT-J). The host computes the table of cosines and sines in the
// precision in which the models were trained; computing them here would differ in the last bits at
// far positions.
typedef struct {
    u16 *x;               // rows of `heads` heads of `head_dim` values, `stride` values apart
    const float *cosines; // [position][half]
    const float *sines;
    const int *positions; // of every row
    int stride, heads, head_dim, half, interleaved, unused;
} Rope;

// Blocks of a row divide its pairs. Where the halves of a head are whole fours, a thread takes four
// pairs at a time.
KERNEL(rope, Rope, 256)
{
    u16 *row = a.x + (u64)blockIdx.x * a.stride;
    u64 at = (u64)a.positions[blockIdx.x] * a.half;
    int thread = blockIdx.y * blockDim.x + threadIdx.x, threads = gridDim.y * blockDim.x;
    int fours = !a.interleaved && a.half % 4 == 0 && a.head_dim % 4 == 0 && a.stride % 4 == 0 && (u64)a.x % 8 == 0;
    if (fours && ((u64)a.cosines | (u64)a.sines) % 16 == 0) {
        for (int four = thread; four < a.heads * a.half / 4; four += threads) {
            int i = 4 * four % a.half;
            u16 *one = row + 4 * four / a.half * a.head_dim + i, *other = one + a.half;
            uint2 x = *(const uint2 *)one, y = *(const uint2 *)other;
            float4 c = *(const float4 *)(a.cosines + at + i), s = *(const float4 *)(a.sines + at + i);
            const uint2 first = {narrow_pair(low(x.x) * c.x - low(y.x) * s.x, high(x.x) * c.y - high(y.x) * s.y),
                                 narrow_pair(low(x.y) * c.z - low(y.y) * s.z, high(x.y) * c.w - high(y.y) * s.w)};
            const uint2 second = {narrow_pair(low(y.x) * c.x + low(x.x) * s.x, high(y.x) * c.y + high(x.x) * s.y),
                                  narrow_pair(low(y.y) * c.z + low(x.y) * s.z, high(y.y) * c.w + high(x.y) * s.w)};
            *(uint2 *)one = first;
            *(uint2 *)other = second;
        }
        return;
    }
    for (int pair = thread; pair < a.heads * a.half; pair += threads) {
        int i = pair % a.half;
        u16 *head = row + pair / a.half * a.head_dim;
        u16 *one = head + (a.interleaved ? 2 * i : i), *other = one + (a.interleaved ? 1 : a.half);
        float x = wide(*one), y = wide(*other), c = a.cosines[at + i], s = a.sines[at + i];
        *one = narrow(x * c - y * s);
        *other = narrow(y * c + x * s);
    }
}

typedef struct {
    u16 *qkv; // rows of `heads` queries, `kv_heads` keys and as many values, `stride` values apart
    const float *of_queries, *of_keys; // [head_dim]: weights of the norms of heads; 0: there are none
    const float *cosines, *sines;      // as of `Rope`; 0: nothing is rotated
    const int *positions, *sequences;  // of every row
    u16 *to_keys, *to_values;          // a cache, and the rest of it, as of `Append` in cache.cu
    const int *pages, *lengths;
    int stride, heads, kv_heads, head_dim, half, page, pages_per_sequence;
    float epsilon;
} Enter;

// Words of a lane that are rotated with one another, and that are not: heads of up to 256 values.
#define TURNED 2
#define OTHERS 4

// Two values of a head; those of word `at` where the head has it.
static __device__ inline void read_two(float *two, const u32 *head, int at, int words)
{
    u32 both = at < words ? head[at] : 0;
    two[0] = low(both);
    two[1] = high(both);
}

// Normalised: times the inverse root and the weights, where there are any.
static __device__ inline void weigh_two(float *two, const float *gamma, int at, int words, float inverse)
{
    if (!gamma || at >= words) return;
    two[0] *= inverse * gamma[2 * at];
    two[1] *= inverse * gamma[2 * at + 1];
}

// What happens to a row between the product and attention, in one pass over it: queries and keys
// are normalised head by head and rotated in place, and keys and values are written to the cache. A
// warp per head. A lane has words of two values, and with each the one that it is rotated with.
// Sizes of heads, halves and strides are even.
KERNEL(enter_heads, Enter, 256)
{
    int head = blockIdx.y * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (head >= a.heads + 2 * a.kv_heads) return;
    int is_query = head < a.heads, is_value = head >= a.heads + a.kv_heads;
    int words = a.head_dim / 2, half = a.cosines && !is_value ? a.half / 2 : 0;
    const float *gamma = is_value ? 0 : is_query ? a.of_queries : a.of_keys;
    u32 *values = (u32 *)(a.qkv + (u64)blockIdx.x * a.stride + (u64)head * a.head_dim), *there = 0;
    int position = a.positions[blockIdx.x], sequence = a.sequences[blockIdx.x], ring = a.page * a.pages_per_sequence;
    // In a ring, a later row of this pass may replace this one.
    if (!is_query && !(a.lengths && a.lengths[sequence] - position > ring)) {
        int place = position % ring, kv_head = (head - a.heads) % a.kv_heads;
        u64 page = a.pages[(u64)sequence * a.pages_per_sequence + place / a.page];
        u64 to = ((page * a.kv_heads + kv_head) * a.page + place % a.page) * a.head_dim;
        there = (u32 *)((is_value ? a.to_values : a.to_keys) + to);
    }
    float one[TURNED][2], other[TURNED][2], rest[OTHERS][2], inverse = 1;
#pragma unroll
    for (int k = 0; k < TURNED; k++) {
        int at = lane + k * WARP;
        read_two(one[k], values, at, half);
        read_two(other[k], values + half, at, half);
    }
#pragma unroll
    for (int k = 0; k < OTHERS; k++) read_two(rest[k], values, 2 * half + lane + k * WARP, words);
    if (gamma) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < TURNED; k++)
            for (int i = 0; i < 2; i++) sum += one[k][i] * one[k][i] + other[k][i] * other[k][i];
#pragma unroll
        for (int k = 0; k < OTHERS; k++) sum += rest[k][0] * rest[k][0] + rest[k][1] * rest[k][1];
        inverse = 1 / sqrtf(warp_sum(sum) / a.head_dim + a.epsilon);
    }
#pragma unroll
    for (int k = 0; k < TURNED; k++) {
        int at = lane + k * WARP;
        if (at >= half) continue;
        weigh_two(one[k], gamma, at, words, inverse);
        weigh_two(other[k], gamma, half + at, words, inverse);
        float x[2], y[2];
        for (int i = 0; i < 2; i++) {
            u64 angle = (u64)position * a.half + 2 * at + i;
            float c = a.cosines[angle], s = a.sines[angle];
            x[i] = one[k][i] * c - other[k][i] * s;
            y[i] = other[k][i] * c + one[k][i] * s;
        }
        u32 first = narrow_pair(x[0], x[1]), second = narrow_pair(y[0], y[1]);
        values[at] = first;
        values[half + at] = second;
        if (!there) continue;
        there[at] = first;
        there[half + at] = second;
    }
#pragma unroll
    for (int k = 0; k < OTHERS; k++) {
        int at = 2 * half + lane + k * WARP;
        if (at >= words) continue;
        weigh_two(rest[k], gamma, at, words, inverse);
        u32 both = narrow_pair(rest[k][0], rest[k][1]);
        if (gamma) values[at] = both;
        if (there) there[at] = both;
    }
}
