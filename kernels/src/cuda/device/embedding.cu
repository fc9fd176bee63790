// Rows of a matrix by index, as f32 and times `scale`: the embeddings of tokens. The matrix is
// often the output matrix too, so it lies as products read it: packed, or row by row in bf16. A row
// of a panel is read with gaps, eight bytes for each one that is used, which is little for the few
// rows of a step.
typedef struct {
    const u8 *table;
    const int *tokens; // of every row of out
    float *out;        // [tokens][columns]
    int rows, columns; // of the table
    float scale;
    int unused;
} Gather;

#define GATHER(format)                                                                                            \
    KERNEL(gather_##format, Gather, 256)                                                                          \
    {                                                                                                             \
        int token = a.tokens[blockIdx.x], panel = token / PANEL;                                                  \
        const u8 *bytes = a.table + (u64)panel * PANEL * row_bytes_##format(a.columns);                           \
        float *out = a.out + (u64)blockIdx.x * a.columns;                                                         \
        for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < a.columns; i += gridDim.y * blockDim.x)           \
            out[i] = a.scale * value_##format(bytes, height_of(panel, a.rows), a.columns, token % PANEL, i);      \
    }

FORMATS(GATHER)

// The same of a matrix in bf16 that lies row by row.
KERNEL(gather_rows, Gather, 256)
{
    const u16 *row = (const u16 *)a.table + (u64)a.tokens[blockIdx.x] * a.columns;
    float *out = a.out + (u64)blockIdx.x * a.columns;
    for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < a.columns; i += gridDim.y * blockDim.x)
        out[i] = a.scale * wide(row[i]);
}
