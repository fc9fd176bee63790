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

// Blocks of a row divide its pairs. Where the halves of a head are whole fours, a thread takes four
// pairs at a time.
KERNEL(rope, Rope, 256)
{
    u16 *row = a.x + (u64)blockIdx.x * a.stride;
    u64 at = (u64)a.positions[blockIdx.x] * a.half;
    int thread = blockIdx.y * blockDim.x + threadIdx.x, threads = gridDim.y * blockDim.x;
    int fours = !a.interleaved && a.half % 4 == 0 && a.head_dim % 4 == 0 && a.stride % 4 == 0 && (u64)a.x % 8 == 0;
    if (fours && ((u64)a.cosines | (u64)a.sines) % 16 == 0) {
        for (int four = thread; four < a.heads * a.half / 4; four += threads) {
            int i = 4 * four % a.half;
            u16 *one = row + 4 * four / a.half * a.head_dim + i, *other = one + a.half;
            uint2 x = *(const uint2 *)one, y = *(const uint2 *)other;
            float4 c = *(const float4 *)(a.cosines + at + i), s = *(const float4 *)(a.sines + at + i);
            const uint2 first = {narrow_pair(low(x.x) * c.x - low(y.x) * s.x, high(x.x) * c.y - high(y.x) * s.y),
                                 narrow_pair(low(x.y) * c.z - low(y.y) * s.z, high(x.y) * c.w - high(y.y) * s.w)};
            const uint2 second = {narrow_pair(low(y.x) * c.x + low(x.x) * s.x, high(y.x) * c.y + high(x.x) * s.y),
                                  narrow_pair(low(y.y) * c.z + low(x.y) * s.z, high(y.y) * c.w + high(x.y) * s.w)};
            *(uint2 *)one = first;
            *(uint2 *)other = second;
        }
        return;
    }
    for (int pair = thread; pair < a.heads * a.half; pair += threads) {
        int i = pair % a.half;
        u16 *head = row + pair / a.half * a.head_dim;
        u16 *one = head + (a.interleaved ? 2 * i : i), *other = one + (a.interleaved ? 1 : a.half);
        float x = wide(*one), y = wide(*other), c = a.cosines[at + i], s = a.sines[at + i];
        *one = narrow(x * c - y * s);
        *other = narrow(y * c + x * s);
    }
}
