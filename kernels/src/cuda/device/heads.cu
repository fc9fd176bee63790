// What comes before and behind attention for rows of queries, keys and contexts, besides the norm
// of each head (norm.cu) and the rotation (rope.cu).
typedef struct {
    u16 *x;             // rows of `columns` values, `stride` values apart
    const float *gamma; // [columns]
    int stride, columns;
    float epsilon;
    int unused;
} RowNorm;

// RMS norm of a row in place: one norm over all heads of q, or of k (MiniMax-M2). A block per row;
// each thread visits the values that it visited before, so no barrier is needed between them.
KERNEL(rms_norm_row, RowNorm, 256)
{
    u16 *row = a.x + (u64)blockIdx.x * a.stride;
    float sum = 0;
    for (int i = threadIdx.x; i < a.columns; i += blockDim.x) sum += wide(row[i]) * wide(row[i]);
    float inverse = 1 / sqrtf(block_sum(sum) / a.columns + a.epsilon);
    for (int i = threadIdx.x; i < a.columns; i += blockDim.x) row[i] = narrow(wide(row[i]) * inverse * a.gamma[i]);
}

typedef struct {
    u16 *q;               // rows of `columns` values, `stride` values apart
    const int *positions; // of every row
    u64 count;            // rows * columns
    int columns, stride;
    float scale, tokens;
} Growth;

// q *= 1 + scale * ln(1 + floor((position + 1) / tokens)): the queries of Llama 4's layers without
// rotation. The quotient is exact enough below 2^24 positions.
KERNEL(grow_queries, Growth, 256)
{
    u64 all = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += all) {
        u64 row = i / a.columns;
        u16 *q = a.q + row * a.stride + i % a.columns;
        *q = narrow(wide(*q) * (1 + a.scale * log1pf(floorf((float)(a.positions[row] + 1) / a.tokens))));
    }
}

typedef struct {
    u16 *x;          // [rows][columns]
    const u16 *gate; // rows of `columns` values, `stride` values apart
    u64 count;       // rows * columns
    int columns, stride;
} OutputGate;

// x *= sigmoid(gate).
KERNEL(gate_rows, OutputGate, 256)
{
    u64 all = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += all) {
        float gate = wide(a.gate[i / a.columns * a.stride + i % a.columns]);
        a.x[i] = narrow(wide(a.x[i]) / (1 + expf(-gate)));
    }
}
