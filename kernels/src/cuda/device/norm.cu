// Normalisation over the last axis: x in f32 (the residual stream), y in bf16 (the input of
// products).
//
// One block per row. A row is read once from memory and again from the cache: at 8192 columns it is
// 32 KiB. The previous sublayer's result is added on the way (`delta`), which saves a pass over x.
typedef struct {
    float *x;           // [rows][columns]
    const u16 *delta;   // [rows][columns], added to x first and kept there; may be null
    const float *gamma; // [columns]
    const float *beta;  // [columns], of the layer norm
    u16 *y;             // [rows][columns]
    int columns;
    float epsilon;
} Norm;

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

KERNEL(rms_norm, Norm, 256)
{
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
KERNEL(layer_norm, Norm, 256)
{
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
KERNEL(add_rms_norm, AddNorm, 256)
{
    u64 row = (u64)blockIdx.x * a.columns;
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
