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

PLAIN_FORMATS(UNPACK)

// The same for blocks. Half a warp decodes eight values of each row; shared memory turns them into
// lines.
#define COLUMNS 256
#define UNPACK_BLOCKS(format)                                                                                     \
    KERNEL(unpack_##format, Unpack, 256)                                                                          \
    {                                                                                                             \
        __shared__ __align__(16) u16 rows[PANEL][COLUMNS + 8];                                                    \
        int height = height_of(blockIdx.x, a.rows), from = blockIdx.y * COLUMNS, left = a.columns - from;         \
        const u8 *bytes = a.w + (u64)blockIdx.x * PANEL * row_bytes_##format(a.columns);                          \
        for (int i = threadIdx.x; i < PANEL * COLUMNS / 8; i += blockDim.x) {                                     \
            int lane = i % PANEL, column = i / PANEL / 4 * GROUP, quad = i / PANEL % 4;                           \
            if (column >= left || lane >= height) continue;                                                       \
            uint4 eight = height == PANEL ? eight_##format(bytes, PANEL, lane, from + column, quad)               \
                                          : eight_##format(bytes, height, lane, from + column, quad);             \
            const uint2 first = {eight.x, eight.y}, last = {eight.z, eight.w};                                    \
            *(uint2 *)(rows[lane] + column + 4 * quad) = first;                                                   \
            *(uint2 *)(rows[lane] + column + 4 * quad + GROUP / 2) = last;                                        \
        }                                                                                                         \
        __syncthreads();                                                                                          \
        u16 *out = a.out + (u64)blockIdx.x * PANEL * a.columns + from;                                            \
        for (int i = threadIdx.x; i < height * COLUMNS / 8; i += blockDim.x) {                                    \
            int lane = i / (COLUMNS / 8), column = i % (COLUMNS / 8) * 8;                                         \
            if (column < left) *(uint4 *)(out + (u64)lane * a.columns + column) = *(const uint4 *)(rows[lane] + column); \
        }                                                                                                         \
    }

BLOCK_FORMATS(UNPACK_BLOCKS)
