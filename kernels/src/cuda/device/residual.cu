// Sums of vectors. Norms add what is added just before them; these are for the rest.
typedef struct {
    float *x;     // [count]
    const u16 *y; // [count]
    u64 count;
} Add;

KERNEL(add, Add, 256)
{
    u64 all = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += all) a.x[i] += wide(a.y[i]);
}

typedef struct {
    u16 *y;            // rows of `columns` values, `stride` values apart
    const float *bias; // [columns]
    u64 count;         // rows * columns
    int columns, stride;
} AddBias;

KERNEL(add_bias, AddBias, 256)
{
    u64 all = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += all) {
        u64 at = i / a.columns * a.stride + i % a.columns;
        a.y[at] = narrow(wide(a.y[at]) + a.bias[i % a.columns]);
    }
}
