// A packed matrix as plain rows of bf16, which cuBLASLt multiplies where x has many rows. Integers
// are dequantised on the way. The product of a group's scale and an integer is rounded to bf16, as
// a bf16 product needs.
typedef struct {
    const u8 *w;
    u16 *out; // [rows][columns]
    int rows, columns;
} Unpack;

// A block per panel and 256 of its columns. Threads write along a row, so writes are whole lines. A
// panel's bytes are read with gaps, but all by the same block, so the cache makes up for it.
#define UNPACK(format)                                                                                            \
    KERNEL(unpack_##format, Unpack, 256)                                                                          \
    {                                                                                                             \
        int panel = blockIdx.x, height = height_of(panel, a.rows);                                                \
        int column = blockIdx.y * blockDim.x + threadIdx.x;                                                       \
        if (column >= a.columns) return;                                                                          \
        const u8 *bytes = a.w + (u64)panel * PANEL * row_bytes_##format(a.columns);                               \
        for (int lane = 0; lane < height; lane++)                                                                 \
            a.out[(u64)(panel * PANEL + lane) * a.columns + column] =                                             \
                narrow(value_##format(bytes, height, a.columns, lane, column));                                   \
    }

UNPACK(bf16)
UNPACK(int8)
UNPACK(int4)
UNPACK(fp8)
UNPACK(fp8_block)
UNPACK(nvfp4)
