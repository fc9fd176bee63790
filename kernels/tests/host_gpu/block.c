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
static Index threadIdx, blockIdx, blockDim, gridDim;
extern char __start_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_shared[] __attribute__((weak, visibility("hidden")));

enum { MOST = 1024, LANES = 32, STACK = 64 << 10 };
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
static void (*kernel)(const void *);
static const void *arguments;
static char failure[200];

// Saves what a call must not change, and goes on where `to` was saved.
void change_stack(void **from, void *to);
__asm__(".text\n"
        ".type change_stack, @function\n"
        "change_stack:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size change_stack, . - change_stack\n");

static void yield(void) { change_stack(&threads[now].stack_pointer, scheduler); }

static void begin(void)
{
    kernel(arguments);
    threads[now].alive = 0;
    yield();
}

// Waits until `all` are here.
static void meet(Meeting *meeting, int all, int kind, int line)
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

static void meet_block(int line) { meet(&block, blockDim.x, 2, line); }

static uint32_t exchange(uint32_t mask, uint32_t value, int from, int line)
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

static int ready(const Thread *thread, unsigned i)
{
    const Meeting *meeting = thread->waiting == 2 ? &block : &warps[i / LANES];
    return thread->alive && (!thread->waiting || meeting->generation != thread->generation);
}

static void run_block(int order)
{
    memset(&block, 0, sizeof block);
    memset(warps, 0, sizeof warps);
    memset(threads, 0, sizeof threads);
    if (__start_shared) memset(__start_shared, 0xff, __stop_shared - __start_shared);
    for (unsigned i = 0; i < blockDim.x; i++) {
        // As a call would leave the stack: room for six registers, then where to return to.
        void **top = (void **)(stacks + (size_t)(i + 1) * STACK) - 2;
        *top = (void *)begin;
        threads[i].stack_pointer = top - 6;
        threads[i].alive = 1;
    }
    for (unsigned alive = blockDim.x, moved = 1; alive;) {
        if (!moved || failure[0]) {
            if (!failure[0]) snprintf(failure, sizeof failure, "threads wait (line %d) for others that have ended or wait elsewhere", block.arrived ? block.line : warps[0].line);
            return;
        }
        moved = 0;
        for (unsigned step = 0; step < blockDim.x; step++) {
            now = order ? blockDim.x - 1 - step : step;
            if (!ready(&threads[now], now)) continue;
            threads[now].waiting = 0;
            threadIdx.x = now;
            change_stack(&scheduler, threads[now].stack_pointer);
            alive -= !threads[now].alive;
            moved = 1;
        }
    }
}

// Runs all blocks of a kernel; returns what went wrong, or null.
const char *run_on_host(void (*function)(const void *), const void *a, const unsigned *grid, unsigned size, int order)
{
    failure[0] = 0;
    if (!size || size > MOST || size % LANES) return "a block is 32 to 1024 threads, in whole warps";
    if (!stacks) stacks = aligned_alloc(4096, (size_t)MOST * STACK);
    kernel = function;
    arguments = a;
    blockDim = (Index){size, 1, 1};
    gridDim = (Index){grid[0], grid[1], grid[2]};
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x && !failure[0]; blockIdx.x++) run_block(order);
    return failure[0] ? failure : NULL;
}
#line 1 "program.cu"
