// A stand-in for libcuda.so.1, libcublasLt.so and libnvrtc.so on the host, with the functions that
// we call.
//
// It is stricter than the driver: work on memory that was not allocated, calls without a context,
// waits inside a recording and objects that outlive their context are errors. Its clock counts the
// time that work would take on a GPU: an empty kernel 2 us (1 us in a graph), 4 bytes of a stream
// and 500 kFLOP per ns. A block of another kernel takes 20 us, so that a measurement, which repeats
// short work hundreds of times, runs few of them.
//
// A GPU runs streams in any order that waits and events allow. The stand-in does so too, by the
// words of STAND_IN:
// - (none): everything runs as it is enqueued; large products are only timed
// - early: everything runs as it is enqueued
// - late: a stream runs only when the host waits for it, and only up to that point; what was not
//   waited for has not run
// - others: the first wait lets all other streams run, the youngest first; threads of a block run
//   last one first
// - count: says at a context's end how often kernels and graphs were launched, and how many kernels
//   ran
// - forget: streams do not wait for events, which tests must notice
//
// New memory of the GPU holds NaN.
//
// A call fails at a moment that a test chooses. The test writes a file with the name in
// STAND_IN_FAULT: "cuLaunchKernel 3 719" stands for the third launch from then on and its error
// ("kernel": the third kernel that runs). The file is removed when that has happened. As on a GPU,
// everything fails from then on, until the context is gone.
#include "stand_in.h"
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double now; // ns
static int objects; // streams, events, modules, graphs, descriptions: what must be gone before the context
static int contexts;
int launches, ran;
static int graphs;
static int failed; // what work that ran later went wrong with, told to whoever waits next
static Stream *streams; // all there ever were, the youngest first: events may speak of those that are gone
__thread int current;

enum { RANGES = 1 << 14 };
typedef struct { uint64_t start, len; } Range;
static Range memory[RANGES], pages[RANGES];

static int within(const Range *ranges, uint64_t at, uint64_t len)
{
    for (int i = 0; i < RANGES; i++)
        if (ranges[i].len && at >= ranges[i].start && at + len <= ranges[i].start + ranges[i].len) return 1;
    return 0;
}
int inside(uint64_t at, uint64_t len) { return within(memory, at, len); }
int reachable(uint64_t at, uint64_t len) { return inside(at, len) || within(pages, at, len); }

static Range *find(Range *ranges, uint64_t start) // 0: a free one
{
    for (int i = 0; i < RANGES; i++)
        if (start ? ranges[i].len && ranges[i].start == start : !ranges[i].len) return &ranges[i];
    return NULL;
}

static int count(const Range *ranges)
{
    int all = 0;
    for (int i = 0; i < RANGES; i++) all += ranges[i].len > 0;
    return all;
}

int asked(const char *word)
{
    const char *words = getenv("STAND_IN");
    return words && strstr(words, word);
}

int fault(const char *call)
{
    static int so_far;
    const char *path = getenv("STAND_IN_FAULT");
    if (!path) return OK;
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&one);
    FILE *file = fopen(path, "r");
    char name[64];
    int which, status = OK, error;
    if (!file) so_far = 0;
    else if (fscanf(file, "%63s %d %d", name, &which, &error) == 3 && !strcmp(name, call) && ++so_far == which) {
        failed = status = error;
        unlink(path);
    }
    if (file) fclose(file);
    pthread_mutex_unlock(&one);
    return status;
}
// In front of what a call does.
#define FAULT(call) do { int error = fault(call); if (error) return error; } while (0)

static int at_once(void) { return !getenv("STAND_IN") || asked("early"); }

typedef struct { double at; Stream *stream; uint64_t place; } Event; // happens when so much of the stream is done

// Runs a stream until this much of it is done.
static void advance(Stream *stream, uint64_t place)
{
    while (stream->done < place) {
        Op *op = stream->first;
        stream->first = op->next;
        if (!stream->first) stream->last = NULL;
        // After a failure nothing runs any more, because it would use numbers that never came.
        int status = failed ? OK : op->run(op->a);
        if (status && !failed) failed = status;
        free(op);
        stream->done++;
    }
}

// A wait of the host; STAND_IN says what else runs meanwhile.
static int settle(Stream *stream, uint64_t place)
{
    if (!current) return NO_CONTEXT;
    pthread_mutex_lock(&lock);
    for (Stream *other = streams; other && asked("others"); other = other->older)
        if (other != stream) advance(other, other->enqueued);
    if (stream) advance(stream, place);
    int status = failed;
    pthread_mutex_unlock(&lock);
    return status;
}

static int settle_all(void)
{
    for (Stream *stream = streams; stream; stream = stream->older) settle(stream, stream->enqueued);
    return current ? failed : NO_CONTEXT;
}

static void append(Op **first, Op **last, int (*run)(const uint64_t *), const uint64_t *a, double ns)
{
    Op *op = calloc(1, sizeof *op);
    op->run = run;
    op->ns = ns;
    memcpy(op->a, a, sizeof op->a);
    if (*last) (*last)->next = op; else *first = op;
    *last = op;
}

int enqueue(Stream *stream, int (*run)(const uint64_t *), const uint64_t *a, double ns, double in_graph)
{
    if (!current || !stream) return NO_CONTEXT;
    pthread_mutex_lock(&lock);
    if (stream->recording) {
        append(&stream->recording->first, &stream->recording->last, run, a, in_graph);
    } else {
        now += ns;
        append(&stream->first, &stream->last, run, a, ns);
        stream->enqueued++;
        if (at_once()) advance(stream, stream->enqueued);
    }
    // What runs at once also fails at once.
    int status = at_once() ? failed : OK;
    pthread_mutex_unlock(&lock);
    return status;
}

int cuDriverGetVersion(int *version) { *version = 12000; return OK; }
int cuInit(unsigned flags) { return flags ? BAD_VALUE : OK; }
int cuDeviceGetCount(int *count) { *count = 1; return OK; }
int cuDeviceGet(int *device, int ordinal) { *device = 7; return ordinal ? BAD_VALUE : OK; }
int cuDeviceGetName(char *name, int len, int device) { snprintf(name, len, "Stand-in 1"); return device == 7 ? OK : BAD_VALUE; }
int cuGetErrorName(int error, const char **name)
{
    *name = error == NO_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT" : error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR";
    return OK;
}
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
    if (--contexts == 0 && (objects || count(memory) || count(pages))) {
        fprintf(stderr, "%d objects, %d allocations and %d pinned ranges outlive their context\n", objects, count(memory), count(pages));
        abort();
    }
    if (!contexts && asked("count")) printf("calls: %d launches of %d kernels, %d graphs\n", launches, ran, graphs);
    if (!contexts) failed = launches = ran = graphs = 0;
    return device == 7 ? OK : BAD_VALUE;
}
int cuCtxSynchronize(void) { return settle_all(); }

int cuMemGetInfo_v2(size_t *free, size_t *total) { *free = 256u << 20; *total = 300u << 20; return current ? OK : NO_CONTEXT; }

int cuMemAlloc_v2(uint64_t *at, size_t len)
{
    FAULT("cuMemAlloc_v2");
    if (!current) return NO_CONTEXT;
    pthread_mutex_lock(&lock);
    Range *range = find(memory, 0);
    if (range) {
        size_t whole = (len + 4095) / 4096 * 4096;
        *range = (Range){*at = (uint64_t)aligned_alloc(4096, whole), len};
        if (whole <= 64 << 20) memset((void *)*at, 0xff, whole);
    }
    pthread_mutex_unlock(&lock);
    return range ? OK : BAD_VALUE;
}

int cuMemFree_v2(uint64_t at)
{
    settle_all();
    pthread_mutex_lock(&lock);
    Range *range = find(memory, at);
    if (range) {
        free((void *)at);
        range->len = 0;
    }
    pthread_mutex_unlock(&lock);
    return range && current ? OK : BAD_VALUE;
}

int cuMemHostRegister_v2(void *start, size_t len, unsigned flags)
{
    if (flags || !len || (uint64_t)start % 4096) return BAD_VALUE;
    pthread_mutex_lock(&lock);
    Range *range = find(pages, 0);
    if (range) *range = (Range){(uint64_t)start, len};
    pthread_mutex_unlock(&lock);
    return !range ? BAD_VALUE : current ? OK : NO_CONTEXT;
}
int cuMemHostUnregister(void *start)
{
    settle_all();
    Range *range = find(pages, (uint64_t)start);
    if (range) range->len = 0;
    return range && current ? OK : BAD_VALUE;
}

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

static int copy_any(const uint64_t *a)
{
    if (!reachable(a[0], a[2]) || !reachable(a[1], a[2])) return ILLEGAL_ADDRESS;
    return copy(a);
}
int cuMemcpyAsync(uint64_t to, uint64_t from, size_t len, Stream *stream)
{
    FAULT("cuMemcpyAsync");
    uint64_t a[8] = {to, from, len};
    return enqueue(stream, copy_any, a, 1500 + len / 50.0, 1500 + len / 50.0);
}

typedef struct {
    size_t from_x, from_y; int from_type; const void *from_host; uint64_t from; void *from_array; size_t from_pitch;
    size_t to_x, to_y; int to_type; void *to_host; uint64_t to; void *to_array; size_t to_pitch;
    size_t width, height;
} Pieces;
static int copy_pieces(const uint64_t *a)
{
    for (uint64_t i = 0; i < a[5]; i++) {
        uint64_t piece[8] = {a[0] + i * a[2], a[1] + i * a[3], a[4]};
        int status = copy_any(piece);
        if (status) return status;
    }
    return OK;
}
int cuMemcpy2DAsync_v2(const Pieces *p, Stream *stream)
{
    if (p->from_x || p->from_y || p->to_x || p->to_y || p->from_type != 4 || p->to_type != 4) return BAD_VALUE;
    if (p->width > p->from_pitch || p->width > p->to_pitch || p->to_pitch > 0x7fffffff) return BAD_VALUE;
    uint64_t a[8] = {p->to, p->from, p->to_pitch, p->from_pitch, p->width, p->height};
    return enqueue(stream, copy_pieces, a, 1500 + p->width * p->height / 50.0, 1500);
}

void *object(size_t size) { __atomic_add_fetch(&objects, 1, __ATOMIC_SEQ_CST); return calloc(1, size); }
int gone(void *it) { __atomic_sub_fetch(&objects, 1, __ATOMIC_SEQ_CST); free(it); return it ? OK : BAD_VALUE; }

int cuStreamCreate(Stream **stream, unsigned flags)
{
    *stream = object(sizeof(Stream));
    pthread_mutex_lock(&lock);
    (*stream)->older = streams;
    streams = *stream;
    pthread_mutex_unlock(&lock);
    return flags == 1 && current ? OK : BAD_VALUE;
}
int cuStreamDestroy_v2(Stream *stream)
{
    // Its events may still be asked about it.
    __atomic_sub_fetch(&objects, 1, __ATOMIC_SEQ_CST);
    return settle(stream, stream->enqueued);
}
int cuStreamSynchronize(Stream *stream)
{
    FAULT("cuStreamSynchronize");
    return stream->recording ? IN_RECORDING : settle(stream, stream->enqueued);
}
// a: stream, place.
static int await(const uint64_t *a) { advance((Stream *)a[0], a[1]); return OK; }
int cuStreamWaitEvent(Stream *stream, Event *event, unsigned flags)
{
    if (!stream || !event || flags || !current) return BAD_VALUE;
    uint64_t a[8] = {(uint64_t)event->stream, event->place};
    return event->stream && !asked("forget") ? enqueue(stream, await, a, 0, 0) : OK;
}
int cuEventCreate(Event **event, unsigned flags) { *event = object(sizeof(Event)); return flags ? BAD_VALUE : OK; }
int cuEventDestroy_v2(Event *event) { return gone(event); }
int cuEventRecord(Event *event, Stream *stream)
{
    FAULT("cuEventRecord");
    pthread_mutex_lock(&lock);
    *event = (Event){now, stream, stream->enqueued};
    pthread_mutex_unlock(&lock);
    return stream->recording ? IN_RECORDING : current ? OK : NO_CONTEXT;
}
// a: the event; it happens when the graph is launched.
static int happen(const uint64_t *a) { (void)a; return OK; }
int cuEventRecordWithFlags(Event *event, Stream *stream, unsigned flags)
{
    uint64_t a[8] = {(uint64_t)event};
    return flags == 1 && stream->recording ? enqueue(stream, happen, a, 0, 0) : BAD_VALUE;
}
int cuEventSynchronize(Event *event) { return event->stream ? settle(event->stream, event->place) : OK; }
int cuEventElapsedTime(float *ms, Event *start, Event *end)
{
    if (!start->stream || !end->stream) return BAD_VALUE;
    if (start->stream->done < start->place || end->stream->done < end->place) return NOT_READY;
    *ms = (end->at - start->at) / 1e6;
    return OK;
}

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
    FAULT("cuGraphInstantiateWithFlags");
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
    FAULT("cuGraphLaunch");
    if (!current || stream->recording) return NO_CONTEXT;
    int status = OK;
    __atomic_add_fetch(&graphs, 1, __ATOMIC_SEQ_CST);
    for (Op *op = graph->first; op && !status; op = op->next)
        status = op->run == happen ? cuEventRecord((Event *)op->a[0], stream) : enqueue(stream, op->run, op->a, op->ns, 0);
    return status;
}
