// Activation functions. Their input was just written by a product and mostly lies in the L2.
// Exponentials are the accurate ones, because these kernels wait for memory anyway.
typedef struct {
    const u16 *gate, *up; // rows of `columns` values, `stride` values apart
    u16 *out;             // [rows][columns]
    u64 count;            // rows * columns
    int columns, stride;
} Gated;

// Far below zero exp overflows to infinity, and the quotients are 0.
static __device__ inline float silu(float x)
{
    return x / (1 + expf(-x));
}

// x/2 * (1 + tanh(z)) = x / (1 + exp(-2 z)), z = sqrt(2/pi) * (x + 0.044715 x^3).
static __device__ inline float gelu(float x)
{
    return x / (1 + expf(-2 * 0.7978846f * (x + 0.044715f * x * x * x)));
}

// Whether eight values lie side by side at multiples of 16 bytes, and indices fit an int.
static __device__ inline int in_eights(const Gated *a)
{
    u64 all = (u64)a->gate | (u64)a->up | (u64)a->out;
    return a->columns % 8 == 0 && a->stride % 8 == 0 && all % 16 == 0 && a->count < 1u << 31;
}

// out = function(gate) * up, eight values at a time where they lie so.
#define GATED(function)                                                                                           \
    static __device__ inline u32 function##_pair(u32 gate, u32 up)                                                \
    {                                                                                                             \
        return narrow_pair(function(low(gate)) * low(up), function(high(gate)) * high(up));                       \
    }                                                                                                             \
    KERNEL(function##_mul, Gated, 256)                                                                            \
    {                                                                                                             \
        u64 all = (u64)gridDim.x * blockDim.x, first = (u64)blockIdx.x * blockDim.x + threadIdx.x;                \
        if (in_eights(&a)) {                                                                                      \
            for (u32 i = 8 * (u32)first; i < a.count; i += 8 * (u32)all) {                                        \
                u64 at = (u64)(i / a.columns) * a.stride + i % a.columns;                                         \
                uint4 gate = *(const uint4 *)(a.gate + at), up = *(const uint4 *)(a.up + at);                     \
                const uint4 out = {function##_pair(gate.x, up.x), function##_pair(gate.y, up.y),                  \
                                   function##_pair(gate.z, up.z), function##_pair(gate.w, up.w)};                 \
                *(uint4 *)(a.out + i) = out;                                                                      \
            }                                                                                                     \
            return;                                                                                               \
        }                                                                                                         \
        for (u64 i = first; i < a.count; i += all) {                                                              \
            u64 at = i / a.columns * a.stride + i % a.columns;                                                    \
            a.out[i] = narrow(function(wide(a.gate[at])) * wide(a.up[at]));                                       \
        }                                                                                                         \
    }

GATED(silu)
GATED(gelu)

typedef struct {
    Gated of;
    float limit;
    int unused;
} Limited;

// gpt-oss: out = (up + 1) * gate * sigmoid(1.702 gate); gates are at most `limit`, ups from -limit
// to limit.
KERNEL(limited_mul, Limited, 256)
{
    u64 all = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < a.of.count; i += all) {
        u64 at = i / a.of.columns * a.of.stride + i % a.of.columns;
        float gate = fminf(wide(a.of.gate[at]), a.limit), up = fminf(fmaxf(wide(a.of.up[at]), -a.limit), a.limit);
        a.of.out[i] = narrow((up + 1) * (gate / (1 + expf(-1.702f * gate))));
    }
}

typedef struct {
    u16 *x;
    u64 count;
} Map;

KERNEL(relu, Map, 256)
{
    u64 all = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += all)
        a.x[i] = narrow(fmaxf(wide(a.x[i]), 0));
}

// The square of ReLU.
KERNEL(relu_squared, Map, 256)
{
    u64 all = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += all) {
        float x = fmaxf(wide(a.x[i]), 0);
        a.x[i] = narrow(x * x);
    }
}

KERNEL(gelu_tanh, Map, 256)
{
    u64 all = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += all) {
        a.x[i] = narrow(gelu(wide(a.x[i])));
    }
}

// x * Phi(x).
KERNEL(gelu_erf, Map, 256)
{
    u64 all = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += all) {
        float x = wide(a.x[i]);
        a.x[i] = narrow(0.5f * x * (1 + erff(x * 0.70710678f)));
    }
}

typedef struct {
    float *x;  // rows of `columns` values, `stride` values apart
    u64 count; // rows * columns
    int columns, stride;
    float cap;
    int unused;
} SoftCap;

// The cap of Gemma 2's logits.
KERNEL(soft_cap, SoftCap, 256)
{
    u64 all = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += all) {
        u64 at = i / a.columns * a.stride + i % a.columns;
        a.x[at] = soften(a.x[at], a.cap);
    }
}
