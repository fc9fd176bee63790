// The paged KV cache: pages of `page` positions, [page][kv head][position][head dim], keys and
// values each. A table names the page of each range of positions of a sequence. With one page per
// sequence this is the layout of the CPU's cache (kernels/src/cpu/kv/mod.rs), so the CPU's bytes
// are streamed unchanged. A cache that is too small for a sequence is a ring: position p is kept
// where position p mod (page * pages_per_sequence) would be.
typedef struct {
    const u16 *keys, *values; // rows of `kv_heads` heads, `stride` values apart
    u16 *to_keys, *to_values;
    const int *pages;         // [sequence][pages_per_sequence]
    const int *sequences;     // of every row
    const int *positions;
    const int *lengths;       // of every sequence, new tokens included, where the cache is a ring; otherwise 0
    int stride, kv_heads, head_dim, page, pages_per_sequence, unused;
} Append;

// One block per row. A row of keys is contiguous, and so is each of its heads in the cache.
KERNEL(append, Append, 256)
{
    int position = a.positions[blockIdx.x], ring = a.page * a.pages_per_sequence;
    // A later row of this pass replaces it.
    if (a.lengths && a.lengths[a.sequences[blockIdx.x]] - position > ring) return;
    position %= ring;
    u64 page = a.pages[(u64)a.sequences[blockIdx.x] * a.pages_per_sequence + position / a.page];
    for (int i = threadIdx.x; i < a.kv_heads * a.head_dim; i += blockDim.x) {
        u64 to = ((page * a.kv_heads + i / a.head_dim) * a.page + position % a.page) * a.head_dim + i % a.head_dim;
        u64 from = (u64)blockIdx.x * a.stride + i;
        a.to_keys[to] = a.keys[from];
        a.to_values[to] = a.values[from];
    }
}
