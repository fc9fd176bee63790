// The common beginning of every program. The text of a program is `#define`s of constants, this,
// and the program's own file. There are no headers, so NVRTC needs no include path.
//
// The same text is C: tests compile it for the host, where kernels/tests/host_gpu/block.c provides
// threads, barriers and shuffles. So there are no templates, references or overloads.
//
// A kernel takes one structure, addresses first. Its counterpart in kernels/src/cuda/calls has the
// same fields in the same order. bf16 and f16 are passed as bits. All sums are f32.
#ifdef __CUDACC__
#pragma nv_diag_suppress 177 // not every program calls every function
#define KERNEL(name, Arguments, threads) extern "C" __global__ void __launch_bounds__(threads) name(const Arguments a)
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define WARP 32
#define ALL 0xffffffffu
// exp(NONE - anything) is 0.
#define NONE (-__uint_as_float(0x7f800000u))

// bf16 is the upper half of f32.
static __device__ inline float wide(u16 bits)
{
    return __uint_as_float((u32)bits << 16);
}

// To the nearest bf16, ties to even, as the half crate rounds; a NaN stays one.
static __device__ inline u16 narrow(float value)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    u16 rounded;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
    return rounded;
#else
    u32 bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)(bits >> 16 | 0x40);
    return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}

// Two bf16 in a word, the first in the lower half.
static __device__ inline u32 narrow_pair(float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return (u32)narrow(low) | (u32)narrow(high) << 16;
#endif
}

static __device__ inline float low(u32 pair)
{
    return __uint_as_float(pair << 16);
}

static __device__ inline float high(u32 pair)
{
    return __uint_as_float(pair & 0xffff0000u);
}

// A finite f16: its bits are moved to where f32 has its mantissa, and the exponent is then 112 too
// small. Exact, also for subnormals.
static __device__ inline float wide_half(u16 bits)
{
#ifdef __CUDACC__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    float magnitude = __uint_as_float((u32)(bits & 0x7fff) << 13) * __uint_as_float(0x77800000u);
    return bits & 0x8000 ? -magnitude : magnitude;
#endif
}

// A finite number of E4M3: one sign, four exponent bits with bias 7, three fraction bits. As above,
// with an exponent that is then 120 too small.
static __device__ inline float wide_float8(u32 bits)
{
    float magnitude = __uint_as_float((bits & 127) << 20) * __uint_as_float(0x7b800000u);
    return bits & 128 ? -magnitude : magnitude;
}

// cap * tanh(x / cap); 0: there is no cap.
static __device__ inline float soften(float x, float cap)
{
    return cap > 0 ? cap * tanhf(x / cap) : x;
}

#ifdef HEAD_DIM
// Eight values of a head from value `i` on, with zeros beyond its end. Heads whose size is even but
// no multiple of eight do not begin at a multiple of 16 bytes.
static __device__ inline uint4 eight(const u16 *head, int i)
{
#if HEAD_DIM % 8 == 0
    return *(const uint4 *)(head + i);
#else
    u32 pairs[4];
    for (int j = 0; j < 4; j++) pairs[j] = i + 2 * j < HEAD_DIM ? *(const u32 *)(head + i + 2 * j) : 0;
    const uint4 all = {pairs[0], pairs[1], pairs[2], pairs[3]};
    return all;
#endif
}
#endif

// The sum over a warp, in every lane. It is a butterfly, so all lanes get the same bits.
static __device__ inline float warp_sum(float value)
{
    for (int apart = WARP / 2; apart > 0; apart /= 2) value += __shfl_xor_sync(ALL, value, apart);
    return value;
}

static __device__ inline float warp_max(float value)
{
    for (int apart = WARP / 2; apart > 0; apart /= 2) value = fmaxf(value, __shfl_xor_sync(ALL, value, apart));
    return value;
}

// A sort key of the number with index `at`: a larger key comes earlier. The upper half is the
// number in a form that compares as an integer, the lower half is `at`, inverted, so that of equals
// the first is the largest. NaN is below all numbers.
static __device__ inline u64 key_of(float value, int at)
{
    u32 bits = __float_as_uint(value);
    u32 ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    // Both zeros are equal.
    if (value == 0) ordered = 0x80000000u;
    if (value != value) ordered = 0;
    return (u64)ordered << 32 | (u32)~at;
}

static __device__ inline u64 warp_largest(u64 key)
{
    for (int apart = WARP / 2; apart > 0; apart /= 2) {
        u64 other = (u64)__shfl_xor_sync(ALL, (u32)(key >> 32), apart) << 32;
        other |= __shfl_xor_sync(ALL, (u32)key, apart);
        if (other > key) key = other;
    }
    return key;
}

// The sum over a block of whole warps, in every thread. All threads of the block must come here.
static __device__ inline float block_sum(float value)
{
    __shared__ float of_warp[WARP];
    value = warp_sum(value);
    // Other threads may still read the sums of the previous call.
    __syncthreads();
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = value;
    __syncthreads();
    float sum = 0;
    for (u32 warp = 0; warp < blockDim.x / WARP; warp++) sum += of_warp[warp];
    return sum;
}
