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
    u16 *y;            // [rows][columns]
    const float *bias; // [columns]
    u64 count;         // rows * columns
    int columns, unused;
} AddBias;

KERNEL(add_bias, AddBias, 256)
{
    u64 all = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += all)
        a.y[i] = narrow(wide(a.y[i]) + a.bias[i % a.columns]);
}
