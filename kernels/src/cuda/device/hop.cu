// Conversions of activations between the host's f32 and the GPU's formats. One side is the host's
// memory, which the kernel reaches over the bus. So rows may have gaps there, and no copy is made
// first. A warp's accesses are 128 consecutive bytes of f32, a whole packet of the bus.
typedef struct {
    const void *from; // rows of `columns` values, `from_stride` values apart
    void *to;         // the same, `to_stride` values apart
    u64 count;        // rows * columns
    int columns, from_stride, to_stride, unused;
} Hop;

#define HOP(name, From, To, convert)                                                                              \
    KERNEL(name, Hop, 256)                                                                                        \
    {                                                                                                             \
        u64 all = (u64)gridDim.x * blockDim.x;                                                                    \
        for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += all) {                         \
            u64 row = i / a.columns, column = i % a.columns;                                                      \
            ((To *)a.to)[row * a.to_stride + column] = convert(((const From *)a.from)[row * a.from_stride + column]); \
        }                                                                                                         \
    }

HOP(widen_rows, u16, float, wide)
HOP(narrow_rows, float, u16, narrow)
HOP(copy_rows, float, float, )
