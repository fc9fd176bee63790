// Gated delta nets (arXiv:2412.06464) and Mamba-2 (arXiv:2405.21060), compiled for keys of HEAD_DIM
// values, up to 256: a short convolution, the recurrence token by token, and the norm and gate
// behind it. A row of the projection has q and k of each head of keys, v and z of each head of
// values, then the logits of all steps and those of all decays. In one of Mamba-2 a head of keys is
// a group, and the row has v (x there), k (B) and q (C), z, and the time steps.
//
// A sequence keeps, in f32, a matrix [key][value] for each head of values and the last inputs of
// the convolution, [tap][channel]. The columns of a matrix are independent of each other, so blocks
// divide them, and while a block goes over the tokens its columns are in registers.
#ifdef __CUDACC__
// One block of a multiprocessor may have all registers: ptxas would spill some for a second block.
#undef KERNEL
#define KERNEL(name, Arguments, threads) extern "C" __global__ void __launch_bounds__(threads, 1) name(const Arguments a)
#endif
#define THREADS 128
#define WARPS (THREADS / WARP)
// Lanes that share a column, each with every PARTS-th key.
#define PARTS (HEAD_DIM > 128 ? 8 : 4)
#define COLUMNS (THREADS / PARTS)
#define KEYS ((HEAD_DIM + PARTS - 1) / PARTS)
// Tokens whose operands are in shared memory at a time.
#define TOKENS 16
// The most taps of a convolution. Unused ones are zeros in front of the others.
#define TAPS 8
// Tokens that a thread of the convolution loads before it uses them.
#define AHEAD 4

typedef struct {
    u16 *rows;            // projections, `stride` values apart
    float *state;         // [page][kept]
    const float *weights; // [channel][taps]
    const float *bias;    // [channel]; 0: there is none
    const int *pages;     // [sequence]
    const int *spans;     // [span][4]: sequence, positions before it, new tokens, first row
    int stride, channels, taps, matrices, kept, unused; // matrices: values of a sequence in front of its inputs
} Convolve;

static __device__ inline float silu(float x)
{
    return x / (1 + expf(-x));
}

// Convolves the channels of the new tokens in place. A thread per channel of a span.
KERNEL(convolve, Convolve, THREADS)
{
    const int *span = a.spans + 4 * blockIdx.y;
    int channel = blockIdx.x * THREADS + threadIdx.x;
    if (channel >= a.channels) return;
    float *kept = a.state + (u64)a.pages[span[0]] * a.kept + a.matrices + channel;
    float weights[TAPS], x[TAPS - 1 + AHEAD];
#pragma unroll
    for (int i = 0; i < TAPS; i++) {
        int tap = i - TAPS + a.taps;
        weights[i] = tap >= 0 ? a.weights[(u64)channel * a.taps + tap] : 0;
        if (i < TAPS - 1) x[i] = tap >= 0 && span[1] > 0 ? kept[(u64)tap * a.channels] : 0;
    }
    u16 *row = a.rows + (u64)span[3] * a.stride + channel;
    for (int from = 0; from < span[2]; from += AHEAD, row += (u64)AHEAD * a.stride) {
        int n = span[2] - from < AHEAD ? span[2] - from : AHEAD;
#pragma unroll
        for (int i = 0; i < AHEAD; i++) x[TAPS - 1 + i] = i < n ? wide(row[(u64)i * a.stride]) : 0;
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            float sum = a.bias ? a.bias[channel] : 0;
#pragma unroll
            for (int tap = 0; tap < TAPS; tap++) sum += weights[tap] * x[i + tap];
            if (i < n) row[(u64)i * a.stride] = narrow(silu(sum));
        }
        // The inputs of the last n tokens become the past.
        for (int i = 0; i < n; i++) {
#pragma unroll
            for (int j = 0; j < TAPS - 2 + AHEAD; j++) x[j] = x[j + 1];
        }
    }
#pragma unroll
    for (int i = 0; i < TAPS - 1; i++) {
        int tap = i - TAPS + a.taps;
        if (tap >= 0) kept[(u64)tap * a.channels] = x[i];
    }
}

typedef struct {
    const u16 *rows; // as above, convolved
    u16 *out;        // [row][value head][value_dim]
    float *state;
    const float *log_rates, *step_bias; // [value head]
    const int *pages, *spans;
    const float *skip; // [value head]: D of Mamba-2
    int stride, key_heads, value_heads, value_dim, kept;
    int tiled;               // the values of one head of keys lie key_heads heads apart
    int q_at, k_at, v_at, z_at; // where they begin in a row
} Delta;

typedef struct {
    float q[TOKENS][KEYS * PARTS], k[TOKENS][KEYS * PARTS], v[TOKENS][COLUMNS];
    float decay[TOKENS], step[TOKENS];
} Staged;

// Loads what the tokens of a tile need, a warp per token: for a delta net q and k with unit length.
static __device__ inline void stage(const Delta *a, Staged *s, const u16 *rows, int n, int head, int is_delta)
{
    int lane = threadIdx.x % WARP;
    int key_head = a->tiled ? head % a->key_heads : head / (a->value_heads / a->key_heads);
    for (int t = threadIdx.x / WARP; t < n; t += WARPS) {
        const u16 *row = rows + (u64)t * a->stride, *own = row + key_head * HEAD_DIM;
        float q = 0, k = 0;
        for (int i = lane; i < KEYS * PARTS; i += WARP) {
            s->q[t][i] = i < HEAD_DIM ? wide(own[a->q_at + i]) : 0;
            s->k[t][i] = i < HEAD_DIM ? wide(own[a->k_at + i]) : 0;
            q += s->q[t][i] * s->q[t][i];
            k += s->k[t][i] * s->k[t][i];
        }
        q = is_delta ? 1 / sqrtf((warp_sum(q) + 1e-6f) * HEAD_DIM) : 1;
        k = is_delta ? 1 / sqrtf(warp_sum(k) + 1e-6f) : 1;
        for (int i = lane; i < KEYS * PARTS; i += WARP) {
            s->q[t][i] *= q;
            s->k[t][i] *= k;
        }
        if (lane == 0) {
            const u16 *logits = row + a->z_at + a->value_heads * a->value_dim + head;
            float x = wide(logits[is_delta ? a->value_heads : 0]) + a->step_bias[head];
            x = x > 20 ? x : log1pf(expf(x));
            s->step[t] = is_delta ? 1 / (1 + expf(-wide(logits[0]))) : x;
            s->decay[t] = expf(-expf(a->log_rates[head]) * x);
        }
    }
    for (int i = threadIdx.x; i < n * COLUMNS; i += THREADS) {
        int column = blockIdx.x * COLUMNS + i % COLUMNS;
        const u16 *v = rows + (u64)(i / COLUMNS) * a->stride + a->v_at + head * a->value_dim;
        s->v[i / COLUMNS][i % COLUMNS] = column < a->value_dim ? wide(v[column]) : 0;
    }
}

// The sum over the lanes that share a column, in each of them.
static __device__ inline float column_sum(float value)
{
    for (int apart = 1; apart < PARTS; apart *= 2) value += __shfl_xor_sync(ALL, value, apart);
    return value;
}

// The new tokens of a span in a block's columns of one head.
static __device__ inline void recur(const Delta *of, Staged *s, int is_delta)
{
    const Delta a = *of;
    const int *span = a.spans + 4 * blockIdx.z;
    int head = blockIdx.y, part = threadIdx.x % PARTS, mine = threadIdx.x / PARTS;
    int column = blockIdx.x * COLUMNS + mine;
    float *matrix = a.state + (u64)a.pages[span[0]] * a.kept + (u64)head * HEAD_DIM * a.value_dim + column;
    float own[KEYS];
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
        int key = i * PARTS + part;
        own[i] = span[1] > 0 && key < HEAD_DIM && column < a.value_dim ? matrix[(u64)key * a.value_dim] : 0;
    }
    // Only a lane of each column writes what all its lanes have.
    int writes = part == 0 && column < a.value_dim;
    u16 *out = a.out + ((u64)span[3] * a.value_heads + head) * a.value_dim + column;
#pragma unroll 1
    for (int from = 0; from < span[2]; from += TOKENS) {
        int n = span[2] - from < TOKENS ? span[2] - from : TOKENS;
        __syncthreads();
        stage(&a, s, a.rows + (u64)(span[3] + from) * a.stride, n, head, is_delta);
        __syncthreads();
#pragma unroll 1
        for (int t = 0; t < n; t++, out += a.value_heads * a.value_dim) {
            float decay = s->decay[t], known = 0, result = 0;
#pragma unroll
            for (int i = 0; i < KEYS; i++) {
                own[i] *= decay;
                if (is_delta) known += s->k[t][i * PARTS + part] * own[i];
            }
            float change = s->step[t] * (is_delta ? s->v[t][mine] - column_sum(known) : s->v[t][mine]);
#pragma unroll
            for (int i = 0; i < KEYS; i++) {
                own[i] += s->k[t][i * PARTS + part] * change;
                result += s->q[t][i * PARTS + part] * own[i];
            }
            result = column_sum(result) + (is_delta ? 0 : a.skip[head] * s->v[t][mine]);
            if (writes) *out = narrow(result);
        }
    }
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
        int key = i * PARTS + part;
        if (key < HEAD_DIM && column < a.value_dim) matrix[(u64)key * a.value_dim] = own[i];
    }
}

// Grid: columns in blocks of COLUMNS, heads of values, spans.
KERNEL(gated_delta, Delta, THREADS)
{
    __shared__ Staged s;
    recur(&a, &s, 1);
}

// As above.
KERNEL(mamba2, Delta, THREADS)
{
    __shared__ Staged s;
    recur(&a, &s, 0);
}

typedef struct {
    u16 *x;             // [row][heads][head_dim]
    const u16 *gate;    // rows of as many values, `stride` values apart
    const float *gamma; // [head_dim]
    int stride, heads, head_dim, count; // count: rows * heads
    float epsilon;
    int unused;
} GatedNorm;

// x = rms_norm(x * silu(gate)), group by group: here a head is a group, whose gamma is its own. A
// block per group of a row.
KERNEL(gate_and_norm, GatedNorm, THREADS)
{
    int row = blockIdx.x / a.heads, first = blockIdx.x % a.heads * a.head_dim;
    u16 *x = a.x + (u64)blockIdx.x * a.head_dim;
    const u16 *gate = a.gate + (u64)row * a.stride + first;
    float sum = 0;
    for (int i = threadIdx.x; i < a.head_dim; i += THREADS) {
        float gated = wide(x[i]) * silu(wide(gate[i]));
        sum += gated * gated;
    }
    float inverse = 1 / sqrtf(block_sum(sum) / a.head_dim + a.epsilon);
    for (int i = threadIdx.x; i < a.head_dim; i += THREADS)
        x[i] = narrow(wide(x[i]) * silu(wide(gate[i])) * inverse * a.gamma[first + i]);
}

// x = rms_norm(x) * silu(gate), head by head. A warp per head.
KERNEL(norm_and_gate, GatedNorm, THREADS)
{
    int item = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
    if (item >= a.count) return;
    u16 *x = a.x + (u64)item * a.head_dim;
    const u16 *gate = a.gate + (u64)(item / a.heads) * a.stride + item % a.heads * a.head_dim;
    float sum = 0;
    for (int i = lane; i < a.head_dim; i += WARP) sum += wide(x[i]) * wide(x[i]);
    float inverse = 1 / sqrtf(warp_sum(sum) / a.head_dim + a.epsilon);
    for (int i = lane; i < a.head_dim; i += WARP) x[i] = narrow(wide(x[i]) * inverse * a.gamma[i] * silu(wide(gate[i])));
}
