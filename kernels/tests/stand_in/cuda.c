// A stand-in for libcuda.so.1 and libcublasLt.so: as much of them as we call, on the host.
//
// It is stricter than the driver: work on memory that was not allocated, calls without a context, waits inside a
// recording and objects that outlive their context are errors. Its clock counts what work would take, not what it
// takes: an empty kernel 2 us (1 us in a graph), 4 bytes of a stream and 500 kFLOP per ns.
//
// The types are those of cuda.h and cublasLt.h, written with plain integers and pointers.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, BAD_VALUE = 1, NO_CONTEXT = 201, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, IN_RECORDING = 900 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double now; // ns
static int objects; // streams, events, modules, graphs, descriptions: what must be gone before the context
static int contexts, pinned;
static __thread int current;
static struct { uint64_t start, len; } memory[16];

static int inside(uint64_t at, uint64_t len)
{
    for (int i = 0; i < 16; i++)
        if (memory[i].len && at >= memory[i].start && at + len <= memory[i].start + memory[i].len) return 1;
    return 0;
}

// Work, and the queues that it waits in.
typedef struct Op { int (*run)(const uint64_t *a); uint64_t a[8]; double ns; struct Op *next; } Op;
typedef struct { Op *first, *last; } Graph;
typedef struct { Graph *recording; } Stream;
typedef struct { double at; } Event;

static int enqueue(Stream *stream, int (*run)(const uint64_t *), const uint64_t *a, double ns, double in_graph)
{
    if (!current) return NO_CONTEXT;
    pthread_mutex_lock(&lock);
    int status = OK;
    if (stream && stream->recording) {
        Op *op = calloc(1, sizeof *op);
        op->run = run;
        op->ns = in_graph;
        memcpy(op->a, a, sizeof op->a);
        Graph *graph = stream->recording;
        if (graph->last) graph->last->next = op; else graph->first = op;
        graph->last = op;
    } else {
        now += ns;
        status = run(a);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int cuDriverGetVersion(int *version) { *version = 12000; return OK; }
int cuInit(unsigned flags) { return flags ? BAD_VALUE : OK; }
int cuDeviceGetCount(int *count) { *count = 1; return OK; }
int cuDeviceGet(int *device, int ordinal) { *device = 7; return ordinal ? BAD_VALUE : OK; }
int cuDeviceGetName(char *name, int len, int device) { snprintf(name, len, "Stand-in 1"); return device == 7 ? OK : BAD_VALUE; }
int cuGetErrorName(int error, const char **name) { *name = error == NO_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT" : "CUDA_ERROR"; return OK; }
int cuGetErrorString(int error, const char **text) { return cuGetErrorName(error, text); }

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    switch (attribute) {
    case 16: *value = 10; break; // multiprocessors
    case 33: *value = 23; break; // bus
    case 34: case 50: *value = 0; break; // slot, domain
    case 38: *value = 1 << 20; break; // L2
    case 75: *value = 9; break;
    case 76: *value = 0; break;
    default: return BAD_VALUE;
    }
    return device == 7 ? OK : BAD_VALUE;
}

int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &contexts; contexts++; return device == 7 ? OK : BAD_VALUE; }
int cuCtxSetCurrent(void *context) { current = context == &contexts; return current ? OK : NO_CONTEXT; }

int cuDevicePrimaryCtxRelease_v2(int device)
{
    int allocated = 0;
    for (int i = 0; i < 16; i++) allocated += memory[i].len > 0;
    if (--contexts == 0 && (objects || allocated || pinned)) {
        fprintf(stderr, "%d objects, %d allocations and %d pinned ranges outlive their context\n", objects, allocated, pinned);
        abort();
    }
    return device == 7 ? OK : BAD_VALUE;
}

int cuMemGetInfo_v2(size_t *free, size_t *total) { *free = 256u << 20; *total = 300u << 20; return current ? OK : NO_CONTEXT; }

int cuMemAlloc_v2(uint64_t *at, size_t len)
{
    if (!current) return NO_CONTEXT;
    for (int i = 0; i < 16; i++)
        if (!memory[i].len) {
            memory[i].start = *at = (uint64_t)aligned_alloc(4096, (len + 4095) / 4096 * 4096);
            memory[i].len = len;
            return OK;
        }
    return BAD_VALUE;
}

int cuMemFree_v2(uint64_t at)
{
    for (int i = 0; i < 16; i++)
        if (memory[i].len && memory[i].start == at) {
            free((void *)at);
            memory[i].len = 0;
            return OK;
        }
    return BAD_VALUE;
}

int cuMemHostRegister_v2(void *start, size_t len, unsigned flags)
{
    if (flags || !len || (uint64_t)start % 4096) return BAD_VALUE;
    pinned++;
    return current ? OK : NO_CONTEXT;
}
int cuMemHostUnregister(void *start) { pinned--; return start && current ? OK : NO_CONTEXT; }

// a: to, from, length, which of the two are the GPU's (1: to, 2: from).
static int copy(const uint64_t *a)
{
    if ((a[3] & 1) && !inside(a[0], a[2])) return ILLEGAL_ADDRESS;
    if ((a[3] & 2) && !inside(a[1], a[2])) return ILLEGAL_ADDRESS;
    if (a[0] < a[1] + a[2] && a[1] < a[0] + a[2]) return BAD_VALUE; // they overlap
    memcpy((void *)a[0], (void *)a[1], a[2]);
    return OK;
}

static int enqueue_copy(Stream *stream, uint64_t to, uint64_t from, size_t len, uint64_t which, double per_ns)
{
    uint64_t a[8] = {to, from, len, which};
    return enqueue(stream, copy, a, 1500 + len / per_ns, 1500 + len / per_ns);
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t len, Stream *stream) { return enqueue_copy(stream, to, (uint64_t)from, len, 1, 50); }
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t len, Stream *stream) { return enqueue_copy(stream, (uint64_t)to, from, len, 2, 50); }
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t len, Stream *stream) { return enqueue_copy(stream, to, from, len, 3, 2); }

static void *object(size_t size) { __atomic_add_fetch(&objects, 1, __ATOMIC_SEQ_CST); return calloc(1, size); }
static int gone(void *it) { __atomic_sub_fetch(&objects, 1, __ATOMIC_SEQ_CST); free(it); return it ? OK : BAD_VALUE; }

int cuStreamCreate(Stream **stream, unsigned flags) { *stream = object(sizeof(Stream)); return flags == 1 && current ? OK : BAD_VALUE; }
int cuStreamDestroy_v2(Stream *stream) { return gone(stream); }
int cuStreamSynchronize(Stream *stream) { return !current ? NO_CONTEXT : stream->recording ? IN_RECORDING : OK; }
int cuStreamWaitEvent(Stream *stream, Event *event, unsigned flags) { return stream && event && !flags && current ? OK : BAD_VALUE; }
int cuEventCreate(Event **event, unsigned flags) { *event = object(sizeof(Event)); return flags ? BAD_VALUE : OK; }
int cuEventDestroy_v2(Event *event) { return gone(event); }
int cuEventRecord(Event *event, Stream *stream) { event->at = now; return stream->recording ? IN_RECORDING : OK; }
int cuEventElapsedTime(float *ms, Event *start, Event *end) { *ms = (end->at - start->at) / 1e6; return OK; }

int cuStreamBeginCapture_v2(Stream *stream, int mode)
{
    if (stream->recording || mode != 1) return BAD_VALUE;
    stream->recording = object(sizeof(Graph));
    return OK;
}
int cuStreamEndCapture(Stream *stream, Graph **graph)
{
    *graph = stream->recording;
    stream->recording = NULL;
    return *graph ? OK : BAD_VALUE;
}
int cuGraphInstantiateWithFlags(Graph **ready, Graph *graph, unsigned long long flags)
{
    *ready = object(sizeof(Graph));
    **ready = *graph;
    graph->first = NULL;
    return flags ? BAD_VALUE : OK;
}
int cuGraphExecDestroy(Graph *graph)
{
    for (Op *op = graph->first, *next; op; op = next) { next = op->next; free(op); }
    return gone(graph);
}
int cuGraphDestroy(Graph *graph) { return cuGraphExecDestroy(graph); }
int cuGraphLaunch(Graph *graph, Stream *stream)
{
    if (!current || stream->recording) return NO_CONTEXT;
    for (Op *op = graph->first; op; op = op->next) {
        int status = op->run(op->a);
        if (status) return status;
        now += op->ns;
    }
    return OK;
}

static const char EMPTY, READ;
int cuModuleLoadData(void **module, const char *text) { *module = object(1); return strstr(text, ".entry") ? OK : BAD_VALUE; }
int cuModuleUnload(void *module) { return gone(module); }
int cuModuleGetFunction(const void **function, void *module, const char *name)
{
    *function = !strcmp(name, "empty") ? &EMPTY : !strcmp(name, "read_all") ? &READ : NULL;
    return *function && module ? OK : NOT_FOUND;
}

static int empty(const uint64_t *a) { (void)a; return OK; }

// a: from, count of 16 bytes, into.
static int read_all(const uint64_t *a)
{
    if (!inside(a[0], 16 * a[1]) || !inside(a[2], 4)) return ILLEGAL_ADDRESS;
    uint32_t sum = 0;
    const uint32_t *words = (const uint32_t *)a[0];
    for (uint64_t i = 0; i < 4 * a[1]; i++) sum ^= words[i];
    *(uint32_t *)a[2] ^= sum;
    return OK;
}

int cuLaunchKernel(const void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, Stream *stream, void **parameters, void **extra)
{
    uint64_t a[8] = {0};
    if (!gx || gy != 1 || gz != 1 || bx % 32 || by != 1 || bz != 1 || shared || extra) return BAD_VALUE;
    if (function == &EMPTY) return enqueue(stream, empty, a, 2000, 1000);
    for (int i = 0; i < 3; i++) a[i] = *(uint64_t *)parameters[i];
    return enqueue(stream, read_all, a, 16 * a[1] / 4.0, 16 * a[1] / 4.0);
}

// cuBLASLt. Formats: 2 f16, 3 int8, 10 int32, 14 bf16, 28 e4m3.
typedef struct { int type; uint64_t rows, columns; int64_t stride; } Layout;
typedef struct { int sum, scale, transpose_a; } Description;
typedef struct { uint64_t algo[8]; size_t workspace; int state; float waves; int reserved[4]; } Heuristic;

int cublasLtCreate(void **handle) { *handle = object(1); return OK; }
int cublasLtDestroy(void *handle) { return gone(handle); }
int cublasLtMatrixLayoutCreate(Layout **layout, int type, uint64_t rows, uint64_t columns, int64_t stride)
{
    *layout = object(sizeof(Layout));
    **layout = (Layout){type, rows, columns, stride};
    return OK;
}
int cublasLtMatrixLayoutDestroy(Layout *layout) { return gone(layout); }
int cublasLtMatmulDescCreate(Description **it, int sum, int scale)
{
    *it = object(sizeof(Description));
    **it = (Description){sum, scale, 0};
    return OK;
}
int cublasLtMatmulDescSetAttribute(Description *it, int which, const void *value, size_t size)
{
    if (which == 3) memcpy(&it->transpose_a, value, 4);
    return (which == 3 && size == 4) || (which == 25 && size == 1) ? OK : 7;
}
int cublasLtMatmulDescDestroy(Description *it) { return gone(it); }
int cublasLtMatmulPreferenceCreate(uint64_t **it) { *it = object(8); return OK; }
int cublasLtMatmulPreferenceSetAttribute(uint64_t *it, int which, const uint64_t *value, size_t size)
{
    *it = *value;
    return which == 1 && size == 8 ? OK : 7;
}
int cublasLtMatmulPreferenceDestroy(void *it) { return gone(it); }

static int knows(const Description *it, const Layout *a, const Layout *b, const Layout *d)
{
    int of_float = it->sum == 68 && it->scale == 0, of_integer = it->sum == 72 && it->scale == 10;
    int types = a->type == b->type && ((of_float && (a->type == 14 || a->type == 2) && d->type == a->type)
        || (of_float && a->type == 28 && d->type == 14) || (of_integer && a->type == 3 && d->type == 10));
    return types && it->transpose_a == 1 && a->rows == b->rows && d->rows == a->columns && d->columns == b->columns
        && a->stride == (int64_t)a->rows && b->stride == (int64_t)b->rows && d->stride == (int64_t)d->rows;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, Description *it, Layout *a, Layout *b, Layout *c, Layout *d,
                                   uint64_t *preference, int wanted, Heuristic *found, int *count)
{
    memset(found, 0, sizeof *found);
    found->workspace = *preference;
    *count = handle && wanted == 1 && c == d && knows(it, a, b, d);
    return OK;
}

static double half(uint16_t bits)
{
    _Float16 it;
    memcpy(&it, &bits, 2);
    return it;
}

static double brain(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float it;
    memcpy(&it, &wide, 4);
    return it;
}

static double element(int type, uint64_t at, uint64_t i)
{
    if (type == 2) return half(((const uint16_t *)at)[i]);
    if (type == 14) return brain(((const uint16_t *)at)[i]);
    uint8_t byte = ((const uint8_t *)at)[i];
    if (type == 3) return (int8_t)byte;
    int exponent = byte >> 3 & 15;
    double size = exponent ? 1 + (byte & 7) / 8.0 : (byte & 7) / 8.0;
    for (int e = exponent ? exponent : 1; e < 7; e++) size /= 2;
    for (int e = 7; e < exponent; e++) size *= 2;
    return byte & 128 ? -size : size;
}

// a: W, x, y, n, m, k, type, workspace. Large products are only timed.
static int multiply(const uint64_t *a)
{
    uint64_t n = a[3], m = a[4], k = a[5], operand = a[6] == 2 || a[6] == 14 ? 2 : 1, result = a[6] == 3 ? 4 : 2;
    if (!inside(a[0], n * k * operand) || !inside(a[1], m * k * operand) || !inside(a[2], m * n * result)) return 14;
    if (a[0] % 256 || a[1] % 256 || a[2] % 256 || !inside(a[7], 32 << 20)) return 7;
    if (m * n * k > 1000000) return OK;
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t j = 0; j < n; j++) {
            double sum = 0;
            for (uint64_t l = 0; l < k; l++) sum += element(a[6], a[1], i * k + l) * element(a[6], a[0], j * k + l);
            uint64_t at = i * n + j;
            if (a[6] == 3) ((int32_t *)a[2])[at] = (int32_t)sum;
            else if (a[6] == 2) ((_Float16 *)a[2])[at] = (_Float16)sum;
            else {
                float wide = (float)sum;
                uint32_t bits;
                memcpy(&bits, &wide, 4);
                ((uint16_t *)a[2])[at] = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
            }
        }
    return OK;
}

int cublasLtMatmul(void *handle, Description *it, const void *alpha, uint64_t w, Layout *wl, uint64_t x, Layout *xl,
                   const void *beta, uint64_t c, Layout *cl, uint64_t y, Layout *yl, const void *algorithm,
                   uint64_t workspace, size_t workspace_size, Stream *stream)
{
    uint32_t one = it->scale == 10 ? 1 : 0x3f800000, given[2];
    memcpy(&given[0], alpha, 4);
    memcpy(&given[1], beta, 4);
    if (!handle || !algorithm || given[0] != one || given[1] || c != y || cl != yl || workspace_size != 32 << 20) return 7;
    if (!knows(it, wl, xl, yl)) return 15;
    uint64_t a[8] = {w, x, y, wl->columns, xl->columns, wl->rows, (uint64_t)wl->type, workspace};
    double flop = 2.0 * a[3] * a[4] * a[5] / 500000, bytes = a[3] * a[5] * (wl->type == 2 || wl->type == 14 ? 2 : 1) / 4.0;
    double ns = 1000 + (flop > bytes ? flop : bytes);
    return enqueue(stream, multiply, a, ns + 1000, ns);
}
