// Sums of vectors. Norms add what comes just before them; these kernels are for the other sums.
typedef struct {
    float *x;     // [count]
    const u16 *y; // [count]
    u64 count;
} Add;

KERNEL(add, Add, 256)
{
    u64 all = (u64)gridDim.x * blockDim.x, first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (a.count % 4 == 0 && (u64)a.x % 16 == 0 && (u64)a.y % 8 == 0) {
        for (u64 i = first; i < a.count / 4; i += all) {
            float4 x = ((const float4 *)a.x)[i];
            uint2 y = ((const uint2 *)a.y)[i];
            const float4 sum = {x.x + low(y.x), x.y + high(y.x), x.z + low(y.y), x.w + high(y.y)};
            ((float4 *)a.x)[i] = sum;
        }
        return;
    }
    for (u64 i = first; i < a.count; i += all) a.x[i] += wide(a.y[i]);
}

typedef struct {
    float *x;            // [count]
    const float *factor; // one number
    u64 count;
} Scale;

// The factor behind a layer of Gemma 4.
KERNEL(scale, Scale, 256)
{
    u64 all = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += all) a.x[i] *= *a.factor;
}

typedef struct {
    void *y;           // rows of `columns` values, `stride` values apart: bf16, or f32 where `wide`
    const float *bias; // [columns]
    u64 count;         // rows * columns
    int columns, stride, wide, unused;
} AddBias;

KERNEL(add_bias, AddBias, 256)
{
    u64 all = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += all) {
        u64 at = i / a.columns * a.stride + i % a.columns;
        float bias = a.bias[i % a.columns];
        u16 *y = (u16 *)a.y + at;
        if (a.wide) ((float *)a.y)[at] += bias;
        else *y = narrow(wide(*y) + bias);
    }
}

typedef struct {
    float *x;             // [rows][columns]
    const float *table;   // [places][columns]
    const int *positions; // of every row
    int columns, offset;  // rows of the table in front of position 0
} Places;

// Learned position embeddings.
KERNEL(add_positions, Places, 256)
{
    u64 place = (u64)(a.positions[blockIdx.x] + a.offset) * a.columns, row = (u64)blockIdx.x * a.columns;
    for (int i = threadIdx.x; i < a.columns; i += blockDim.x) a.x[row + i] += a.table[place + i];
}
