// Normalisation over the last axis: x in f32 (the residual stream), y in bf16 (the input of
// products).
//
// One block per row. With one row the time is that of a few reads of memory one after another, so
// each thread asks for all its values and factors at once, in fours, and keeps them. Rows that are
// longer, or are no whole fours, are read once from memory and again from the cache. The previous
// sublayer's result is added on the way (`delta`), which saves a pass over x. Of many rows each has
// no more threads than it needs.
#define THREADS 256
// Fours of a row that a thread keeps: rows of up to 8192 values.
#define KEPT 8

typedef struct {
    float *x;           // [rows][columns]
    const u16 *delta;   // [rows][columns], added to x first and kept there; may be null
    const float *gamma; // [columns]
    const float *beta;  // [columns], of the layer norm
    u16 *y;             // [rows][columns]
    int columns;
    float epsilon;
} Norm;

// Whether rows of so many values at these addresses are kept in registers.
static __device__ inline int fits(int columns, u64 floats, u64 halves)
{
    return columns % 4 == 0 && columns <= 4 * KEPT * (int)blockDim.x && floats % 16 == 0 && halves % 8 == 0;
}

// A thread's fours of a row of f32: four k begins at column 4 (k threads + thread). Beyond the row
// are zeros.
static __device__ inline void read_fours(float fours[KEPT][4], const float *row, int columns)
{
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        int i = 4 * (k * blockDim.x + threadIdx.x);
        float4 four = {0, 0, 0, 0};
        if (i < columns) four = *(const float4 *)(row + i);
        fours[k][0] = four.x;
        fours[k][1] = four.y;
        fours[k][2] = four.z;
        fours[k][3] = four.w;
    }
}

// The same of a row of bf16, added to `fours`.
static __device__ inline void add_fours(float fours[KEPT][4], const u16 *row, int columns)
{
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        int i = 4 * (k * blockDim.x + threadIdx.x);
        if (i >= columns) continue;
        uint2 pairs = *(const uint2 *)(row + i);
        fours[k][0] += low(pairs.x);
        fours[k][1] += high(pairs.x);
        fours[k][2] += low(pairs.y);
        fours[k][3] += high(pairs.y);
    }
}

static __device__ inline void write_fours(float *row, const float fours[KEPT][4], int columns)
{
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        int i = 4 * (k * blockDim.x + threadIdx.x);
        const float4 four = {fours[k][0], fours[k][1], fours[k][2], fours[k][3]};
        if (i < columns) *(float4 *)(row + i) = four;
    }
}

// The sum over the row of (x - mean) squared. Zeros beyond the row do not count.
static __device__ inline float squares_of(const float fours[KEPT][4], float mean, int columns)
{
    float sum = 0;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        if (4 * (int)(k * blockDim.x + threadIdx.x) >= columns) continue;
        for (int j = 0; j < 4; j++) sum += (fours[k][j] - mean) * (fours[k][j] - mean);
    }
    return block_sum(sum);
}

// A norm of a row that fits the registers: of the layer, or of the root of mean squares.
static __device__ inline void norm_kept(const Norm *a, int is_layer)
{
    u64 row = (u64)blockIdx.x * a->columns;
    float x[KEPT][4], gamma[KEPT][4], beta[KEPT][4], mean = 0;
    read_fours(x, a->x + row, a->columns);
    read_fours(gamma, a->gamma, a->columns);
    if (is_layer) read_fours(beta, a->beta, a->columns);
    if (a->delta) {
        add_fours(x, a->delta + row, a->columns);
        write_fours(a->x + row, x, a->columns);
    }
    if (is_layer) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < KEPT; k++) sum += x[k][0] + x[k][1] + x[k][2] + x[k][3];
        mean = block_sum(sum) / a->columns;
    }
    float inverse = 1 / sqrtf(squares_of(x, mean, a->columns) / a->columns + a->epsilon);
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        int i = 4 * (k * blockDim.x + threadIdx.x);
        float y[4];
        for (int j = 0; j < 4; j++) y[j] = (x[k][j] - mean) * inverse * gamma[k][j] + (is_layer ? beta[k][j] : 0);
        const uint2 pairs = {narrow_pair(y[0], y[1]), narrow_pair(y[2], y[3])};
        if (i < a->columns) *(uint2 *)(a->y + row + i) = pairs;
    }
}

// The value of column i after the addition. Each thread visits the columns that it visited before,
// so no barrier is needed between writing x and reading it again.
static __device__ inline float added(const Norm *a, u64 at)
{
    float x = a->x[at];
    if (a->delta) {
        x += wide(a->delta[at]);
        a->x[at] = x;
    }
    return x;
}

KERNEL(rms_norm, Norm, THREADS)
{
    if (fits(a.columns, (u64)a.x | (u64)a.gamma, (u64)a.y | (u64)a.delta)) {
        norm_kept(&a, 0);
        return;
    }
    u64 row = (u64)blockIdx.x * a.columns;
    float sum = 0;
    for (int i = threadIdx.x; i < a.columns; i += blockDim.x) {
        float x = added(&a, row + i);
        sum += x * x;
    }
    float inverse = 1 / sqrtf(block_sum(sum) / a.columns + a.epsilon);
    for (int i = threadIdx.x; i < a.columns; i += blockDim.x) a.y[row + i] = narrow(a.x[row + i] * inverse * a.gamma[i]);
}

// The variance comes from the differences to the mean. The mean of squares would cancel where the
// mean is large.
KERNEL(layer_norm, Norm, THREADS)
{
    if (fits(a.columns, (u64)a.x | (u64)a.gamma | (u64)a.beta, (u64)a.y | (u64)a.delta)) {
        norm_kept(&a, 1);
        return;
    }
    u64 row = (u64)blockIdx.x * a.columns;
    float sum = 0;
    for (int i = threadIdx.x; i < a.columns; i += blockDim.x) sum += added(&a, row + i);
    float mean = block_sum(sum) / a.columns;
    float squares = 0;
    for (int i = threadIdx.x; i < a.columns; i += blockDim.x) {
        float x = a.x[row + i] - mean;
        squares += x * x;
    }
    float inverse = 1 / sqrtf(block_sum(squares) / a.columns + a.epsilon);
    for (int i = threadIdx.x; i < a.columns; i += blockDim.x)
        a.y[row + i] = narrow((a.x[row + i] - mean) * inverse * a.gamma[i] + a.beta[i]);
}

typedef struct {
    float *x;           // [rows][columns]
    const u16 *y;       // [rows][columns]
    const float *gamma; // [columns]
    int columns;
    float epsilon;
} AddNorm;

// x += rms_norm(y): the norms after the sublayers of Gemma 2 and 3.
KERNEL(add_rms_norm, AddNorm, THREADS)
{
    u64 row = (u64)blockIdx.x * a.columns;
    if (fits(a.columns, (u64)a.x | (u64)a.gamma, (u64)a.y)) {
        float x[KEPT][4], y[KEPT][4] = {{0}}, gamma[KEPT][4];
        add_fours(y, a.y + row, a.columns);
        read_fours(x, a.x + row, a.columns);
        read_fours(gamma, a.gamma, a.columns);
        float inverse = 1 / sqrtf(squares_of(y, 0, a.columns) / a.columns + a.epsilon);
#pragma unroll
        for (int k = 0; k < KEPT; k++)
            for (int j = 0; j < 4; j++) x[k][j] += y[k][j] * inverse * gamma[k][j];
        write_fours(a.x + row, x, a.columns);
        return;
    }
    float sum = 0;
    for (int i = threadIdx.x; i < a.columns; i += blockDim.x) sum += wide(a.y[row + i]) * wide(a.y[row + i]);
    float inverse = 1 / sqrtf(block_sum(sum) / a.columns + a.epsilon);
    for (int i = threadIdx.x; i < a.columns; i += blockDim.x) a.x[row + i] += wide(a.y[row + i]) * inverse * a.gamma[i];
}

typedef struct {
    u16 *x;             // rows of `heads` heads, `stride` values apart
    const float *gamma; // [head_dim]; 0: all are 1
    int stride, heads, head_dim, count; // count: rows * heads
    float epsilon;
    int unused;
} HeadNorm;

// RMS norm of each head, in place (queries and keys of Qwen 3). A warp per head: no barrier, and a
// head of 128 is four values per lane.
KERNEL(rms_norm_heads, HeadNorm, 256)
{
    int item = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
    if (item >= a.count) return;
    u16 *head = a.x + (u64)(item / a.heads) * a.stride + item % a.heads * a.head_dim;
    float sum = 0;
    for (int i = lane; i < a.head_dim; i += WARP) sum += wide(head[i]) * wide(head[i]);
    float inverse = 1 / sqrtf(warp_sum(sum) / a.head_dim + a.epsilon);
    for (int i = lane; i < a.head_dim; i += WARP) head[i] = narrow(wide(head[i]) * inverse * (a.gamma ? a.gamma[i] : 1));
}
