// Products of tiles, on tensor cores where they multiply bf16.
//
// c += a * b: a is 16 x 16 by rows, b is 16 x 8 by columns. With g = lane / 4 and t = lane % 4, a
// lane holds:
// - of a the pairs (g, 2t), (g + 8, 2t), (g, 2t + 8) and (g + 8, 2t + 8)
// - of b the pairs (2t, g) and (2t + 8, g) down its column
// - of c (g, 2t), (g, 2t + 1), (g + 8, 2t) and (g + 8, 2t + 1)
//
// Source: PTX ISA, "Matrix fragments for mma.m16n8k16".
static __device__ inline void multiply(float *c, const u32 *a, const u32 *b)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    // The same, pair by pair of the inner dimension: what Turing and the host compute.
    int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    for (int half = 0; half < 2; half++)
        for (int pair = 0; pair < 4; pair++) {
            u32 above = __shfl_sync(ALL, a[2 * half], 4 * g + pair), below = __shfl_sync(ALL, a[2 * half + 1], 4 * g + pair);
            u32 left = __shfl_sync(ALL, b[half], 8 * t + pair), right = __shfl_sync(ALL, b[half], 8 * t + 4 + pair);
            c[0] += low(above) * low(left) + high(above) * high(left);
            c[1] += low(above) * low(right) + high(above) * high(right);
            c[2] += low(below) * low(left) + high(below) * high(left);
            c[3] += low(below) * low(right) + high(below) * high(right);
        }
#endif
}
