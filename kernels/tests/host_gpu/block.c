// A block of a GPU's threads on the host, for programs of kernels/src/cuda/device, whose text
// follows this one.
//
// Each thread of a block has its own stack, and they take turns: a thread runs until it comes to a
// barrier or a shuffle that others have not reached. `order` says who goes first. A block that
// lacks a barrier computes something else when the last thread goes first, so tests run everything
// in both orders. Shared memory holds NaN when a block begins. A thread that waits for what never
// comes, or at another barrier than the others, is an error.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define __global__
#define __device__
#define __align__(bytes) __attribute__((aligned(bytes)))
// Blocks run one after another, so one copy is enough; in a section of its own to be filled.
#define __shared__ static __attribute__((section("shared")))
#define KERNEL(name, Arguments, threads)                                        \
    static void body_of_##name(const Arguments a);                              \
    const unsigned threads_of_##name = threads;                                 \
    const unsigned bytes_of_##name = sizeof(Arguments);                         \
    void name(const void *a) { body_of_##name(*(const Arguments *)a); }         \
    static void body_of_##name(const Arguments a)

typedef struct { unsigned x, y, z; } Index;
typedef struct { unsigned x, y; } __attribute__((aligned(8))) uint2;
typedef struct { unsigned x, y, z, w; } __attribute__((aligned(16))) uint4;
typedef struct { float x, y, z, w; } __attribute__((aligned(16))) float4;
static Index threadIdx, blockIdx, blockDim, gridDim;
extern char __start_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_shared[] __attribute__((weak, visibility("hidden")));

// Stacks that were a power of two apart would all lie in the same few sets of a cache.
enum { MOST = 1024, LANES = 32, STACK = (64 << 10) + 9 * 64 };
typedef struct {
    void *stack_pointer;
    int alive, waiting; // waiting: 0 no, 1 for its warp, 2 for the block
    unsigned generation; // of the barrier that it waits at
    unsigned exchanges; // shuffles so far
} Thread;
typedef struct { int arrived, line; unsigned generation; } Meeting;

static char *stacks;
static Thread threads[MOST];
static Meeting block, warps[MOST / LANES];
static uint32_t slots[MOST / LANES][2][LANES];
static void *scheduler;
static unsigned now; // the thread that runs
static unsigned alive; // threads that have not ended
static int last_first;
static void (*kernel)(const void *);
static const void *arguments;
static char failure[200];

// Goes on where `to` was saved, and saves here where `from` goes on. The compiler saves what it
// keeps in registers, since all of them are named as changed. It jumps, because a CPU predicts that
// a `ret` goes to the caller.
static inline __attribute__((always_inline)) void change_stack(void **from, void *to)
{
    __asm__ volatile("lea -128(%%rsp), %%rsp\n" // a function's variables may lie below its stack
                     "push %%rbp\nlea 1f(%%rip), %%rax\npush %%rax\n"
                     "mov %%rsp, (%%rdi)\nmov %%rsi, %%rsp\n"
                     "pop %%rax\njmp *%%rax\n"
                     "1: pop %%rbp\nlea 128(%%rsp), %%rsp\n"
                     : "+D"(from), "+S"(to)
                     :
                     : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0",
                       "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                       "xmm12", "xmm13", "xmm14", "xmm15", "cc", "memory");
}

static inline int ready(unsigned i)
{
    const Thread *thread = &threads[i];
    const Meeting *meeting = thread->waiting == 2 ? &block : &warps[i / LANES];
    return thread->alive && (!thread->waiting || meeting->generation != thread->generation);
}

// Lets the next thread run that can, or ends the block where none can.
static inline __attribute__((always_inline)) void yield(void)
{
    void **from = &threads[now].stack_pointer;
    for (unsigned looked = 0; alive && !failure[0] && looked < blockDim.x; looked++) {
        if (last_first) now = now ? now - 1 : blockDim.x - 1;
        else now = now + 1 < blockDim.x ? now + 1 : 0;
        if (!ready(now)) continue;
        threads[now].waiting = 0;
        threadIdx.x = now;
        change_stack(from, threads[now].stack_pointer);
        return;
    }
    change_stack(from, scheduler);
}

static void begin(void)
{
    kernel(arguments);
    threads[now].alive = 0;
    alive--;
    yield();
}

// Waits until `all` are here.
static inline __attribute__((always_inline)) void meet(Meeting *meeting, int all, int kind, int line)
{
    Thread *me = &threads[now];
    if (meeting->arrived && meeting->line != line)
        snprintf(failure, sizeof failure, "threads of one block wait in lines %d and %d", meeting->line, line);
    meeting->line = line;
    if (++meeting->arrived == all) {
        meeting->arrived = 0;
        meeting->generation++;
        return;
    }
    me->waiting = kind;
    me->generation = meeting->generation;
    yield();
}

static __attribute__((noinline)) void meet_block(int line) { meet(&block, blockDim.x, 2, line); }

static __attribute__((noinline)) void meet_warp(int line) { meet(&warps[now / LANES], LANES, 1, line); }

static __attribute__((noinline)) uint32_t exchange(uint32_t mask, uint32_t value, int from, int line)
{
    unsigned warp = now / LANES;
    // A lane may be one shuffle ahead of lanes that have not read yet, never two.
    uint32_t *slot = slots[warp][threads[now].exchanges++ % 2];
    if (mask != 0xffffffff) snprintf(failure, sizeof failure, "line %d: a shuffle of some lanes only", line);
    slot[now % LANES] = value;
    meet(&warps[warp], LANES, 1, line);
    return slot[from % LANES];
}

static float __uint_as_float(uint32_t bits) { float it; memcpy(&it, &bits, 4); return it; }
static uint32_t __float_as_uint(float value) { uint32_t it; memcpy(&it, &value, 4); return it; }
static float exchange_float(uint32_t mask, float value, int from, int line)
{
    return __uint_as_float(exchange(mask, __float_as_uint(value), from, line));
}
#define __shfl_sync(mask, value, from) \
    _Generic((value), float: exchange_float, unsigned: exchange)(mask, value, from, __LINE__)
#define __syncwarp() meet_warp(__LINE__)
#define __shfl_xor_sync(mask, value, apart) __shfl_sync(mask, value, (int)(threadIdx.x % LANES) ^ (apart))
// Byte i of the result is that of both words which the i-th half byte of `which` names.
static uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t which)
{
    uint64_t both = (uint64_t)high << 32 | low;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) out |= (uint32_t)(both >> (8 * (which >> (4 * i) & 7)) & 255) << (8 * i);
    return out;
}
#define __syncthreads() meet_block(__LINE__)
#define atomicAdd(to, value) __atomic_fetch_add(to, value, __ATOMIC_RELAXED)

static void run_block(void)
{
    memset(&block, 0, sizeof block);
    memset(warps, 0, sizeof warps);
    if (__start_shared) memset(__start_shared, 0xff, __stop_shared - __start_shared);
    for (unsigned i = 0; i < blockDim.x; i++) {
        // As a call leaves the stack, which begins at a multiple of 16.
        void **top = (void **)(stacks + (size_t)(i + 1) * STACK) - 2;
        *top = (void *)begin;
        threads[i] = (Thread){.stack_pointer = top, .alive = 1};
    }
    alive = blockDim.x;
    threadIdx.x = now = last_first ? blockDim.x - 1 : 0;
    change_stack(&scheduler, threads[now].stack_pointer);
    if (alive && !failure[0])
        snprintf(failure, sizeof failure, "threads wait (line %d) for others that have ended or wait elsewhere", block.arrived ? block.line : warps[0].line);
}

// Runs all blocks of a kernel; returns what went wrong, or null.
const char *run_on_host(void (*function)(const void *), const void *a, const unsigned *grid, unsigned size, int order)
{
    failure[0] = 0;
    if (!size || size > MOST || size % LANES) return "a block is 32 to 1024 threads, in whole warps";
    if (!stacks) stacks = aligned_alloc(4096, (size_t)MOST * STACK);
    kernel = function;
    arguments = a;
    last_first = order;
    blockDim = (Index){size, 1, 1};
    gridDim = (Index){grid[0], grid[1], grid[2]};
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x && !failure[0]; blockIdx.x++) run_block();
    return failure[0] ? failure : NULL;
}
#line 1 "program.cu"
