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

// One block per row. A row of keys is contiguous, and so is each of its heads in the cache, so
// eight values are moved at once where all begin at multiples of 16 bytes.
KERNEL(append, Append, 256)
{
    int position = a.positions[blockIdx.x], ring = a.page * a.pages_per_sequence;
    // A later row of this pass replaces it.
    if (a.lengths && a.lengths[a.sequences[blockIdx.x]] - position > ring) return;
    position %= ring;
    u64 page = a.pages[(u64)a.sequences[blockIdx.x] * a.pages_per_sequence + position / a.page];
    u64 all = (u64)a.keys | (u64)a.values | (u64)a.to_keys | (u64)a.to_values;
    int eights = a.head_dim % 8 == 0 && a.stride % 8 == 0 && all % 16 == 0, step = eights ? 8 : 1;
    for (int i = step * threadIdx.x; i < a.kv_heads * a.head_dim; i += step * blockDim.x) {
        u64 to = ((page * a.kv_heads + i / a.head_dim) * a.page + position % a.page) * a.head_dim + i % a.head_dim;
        u64 from = (u64)blockIdx.x * a.stride + i;
        if (eights) {
            *(uint4 *)(a.to_keys + to) = *(const uint4 *)(a.keys + from);
            *(uint4 *)(a.to_values + to) = *(const uint4 *)(a.values + from);
        } else {
            a.to_keys[to] = a.keys[from];
            a.to_values[to] = a.values[from];
        }
    }
}
