// Rows of a packed matrix by index, as f32 and times `scale`: the embeddings of tokens. The matrix
// is often the output matrix too, so it stays packed. A row of a panel is read with gaps, eight
// bytes for each one that is used, which is little for the few rows of a step.
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
        for (int i = threadIdx.x; i < a.columns; i += blockDim.x)                                                 \
            out[i] = a.scale * value_##format(bytes, height_of(panel, a.rows), a.columns, token % PANEL, i);      \
    }

FORMATS(GATHER)
