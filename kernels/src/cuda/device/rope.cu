// Rotary position embedding, in place, of the first 2 * half values of every head. A pair is value
// i and value i + half (the half-split order of Hugging Face's Llama), or values 2 i and 2 i + 1
// (the interleaved order of GPT-J). The host computes the table of cosines and sines in the
// precision in which the models were trained; computing them here would differ in the last bits at
// far positions.
typedef struct {
    u16 *x;               // rows of `heads` heads of `head_dim` values, `stride` values apart
    const float *cosines; // [position][half]
    const float *sines;
    const int *positions; // of every row
    int stride, heads, head_dim, half, interleaved, unused;
} Rope;

// One block per row: its position's cosines and sines stay in the cache for all its heads.
KERNEL(rope, Rope, 256)
{
    u16 *row = a.x + (u64)blockIdx.x * a.stride;
    u64 at = (u64)a.positions[blockIdx.x] * a.half;
    for (int pair = threadIdx.x; pair < a.heads * a.half; pair += blockDim.x) {
        int i = pair % a.half;
        u16 *head = row + pair / a.half * a.head_dim;
        u16 *one = head + (a.interleaved ? 2 * i : i), *other = one + (a.interleaved ? 1 : a.half);
        float x = wide(*one), y = wide(*other), c = a.cosines[at + i], s = a.sines[at + i];
        *one = narrow(x * c - y * s);
        *other = narrow(y * c + x * s);
    }
}
