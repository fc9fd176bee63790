// Products of tiles, on tensor cores where they multiply bf16, and what brings their operands.
//
// Rows of a tile in shared memory are 16 bytes longer than what they hold: the eight rows that a
// product reads at once then lie in different banks.
#define APART 8

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
    // The same, pair by pair of the inner dimension: what Turing and the host compute. It is not
    // unrolled, since programs with many products would take a quarter of a minute to compile.
    int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
#pragma unroll 1
    for (int half = 0; half < 2; half++)
#pragma unroll 1
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

// Four matrices of 8 x 8 values of 16 bits in shared memory. Lane l says where row l % 8 of matrix
// l / 8 begins, at a multiple of 16 bytes. Of each matrix a lane gets the pair (g, 2t) along row g,
// which is what `multiply` wants of a b whose columns lie in rows. `turned`, it gets (2t, g) down
// column g, for a b that lies by rows.
//
// Source: PTX ISA, "ldmatrix".
static __device__ inline void load_matrices(u32 *pairs, const u16 *row, int turned)
{
#ifdef __CUDACC__
    u64 shared;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(shared) : "l"(row));
    u32 at = (u32)shared;
    if (turned)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3]) : "r"(at) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3]) : "r"(at) : "memory");
#else
    int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    for (int matrix = 0; matrix < 4; matrix++) {
        u32 values[2];
        for (int i = 0; i < 2; i++) {
            int from = 8 * matrix + (turned ? 2 * t + i : g);
            u64 at = (u64)__shfl_sync(ALL, (u32)((u64)row >> 32), from) << 32;
            at |= __shfl_sync(ALL, (u32)(u64)row, from);
            values[i] = ((const u16 *)at)[turned ? g : 2 * t + i];
        }
        pairs[matrix] = values[0] | values[1] << 16;
    }
#endif
}

// Over the four lanes that hold one row of c.
static __device__ inline float row_max(float value)
{
    value = fmaxf(value, __shfl_xor_sync(ALL, value, 1));
    return fmaxf(value, __shfl_xor_sync(ALL, value, 2));
}

static __device__ inline float row_sum(float value)
{
    value += __shfl_xor_sync(ALL, value, 1);
    return value + __shfl_xor_sync(ALL, value, 2);
}

#define LOG2_E 1.44269504f

// 2^x by one instruction. What is below the smallest normal float becomes 0.
static __device__ inline float power_of_two(float x)
{
#ifdef __CUDACC__
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
#else
    return exp2f(x);
#endif
}

static __device__ inline float exponential(float x)
{
    return power_of_two(x * LOG2_E);
}

// Sixteen bytes of memory on their way to shared memory, where the GPU copies without its threads.
// `copies_end` ends a group of them, and `copies_wait` waits until at most the last `groups`
// groups, of at most two, are under way.
static __device__ inline void copy_ahead(void *to, const void *from)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    u64 shared;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(shared) : "l"(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"((u32)shared), "l"(from) : "memory");
#else
    *(uint4 *)to = *(const uint4 *)from;
#endif
}

static __device__ inline void copies_end(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

static __device__ inline void copies_wait(int groups)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if (groups == 2) asm volatile("cp.async.wait_group 2;" : : : "memory");
    else if (groups == 1) asm volatile("cp.async.wait_group 1;" : : : "memory");
    else asm volatile("cp.async.wait_group 0;" : : : "memory");
#else
    (void)groups;
#endif
}

#ifdef HEAD_DIM
// Whole tiles of a head, and whether a column of them is one of its values.
#define WIDTH ((HEAD_DIM + 15) / 16 * 16)
#define IS_OURS(column) (HEAD_DIM == WIDTH || (column) < HEAD_DIM)

// Where the keys or values of a position begin in a paged cache (cache.cu). `pages` are those of
// its sequence, which are a ring.
static __device__ inline u64 cache_row(const int *pages, int count, int page, int kv_heads, int kv_head, int position)
{
    int number = 0;
    if (position >= page * count) position %= page * count;
    if (count > 1) {
        number = position / page;
        position -= number * page;
    }
    return (((u64)pages[number] * kv_heads + kv_head) * page + position) * HEAD_DIM;
}

// Eight values of a head from value `d` on, on their way to shared memory where heads begin at
// multiples of 16 bytes.
static __device__ inline void copy_eight(u16 *to, const u16 *head, int d)
{
#if HEAD_DIM % 8 == 0
    copy_ahead(to, head + d);
#else
    *(uint4 *)to = eight(head, d);
#endif
}

// What a weighted sum of values is multiplied by: 1 over the sum of weights and that of the head's
// sink. Nothing overflows relative to the larger of the sink and the largest score. 0 where no
// position was seen.
static __device__ inline float share_of(float total, float largest, const float *sinks, int head)
{
    if (!(total > 0)) return 0;
    float above = sinks ? sinks[head] - largest : NONE, shrink = above > 0 ? expf(-above) : 1;
    if (above > NONE) total = total * shrink + expf(above > 0 ? 0 : above);
    return shrink / total;
}
#endif
