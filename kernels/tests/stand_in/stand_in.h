// Declarations shared by the parts of the stand-in.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, BAD_VALUE = 1, NO_CONTEXT = 201, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, FAILED = 719, IN_RECORDING = 900 };

// Work, and the streams in which it waits.
typedef struct Op { int (*run)(const uint64_t *a); uint64_t a[8]; double ns; struct Op *next; } Op;
typedef struct { Op *first, *last; } Graph;
typedef struct Stream {
    Op *first, *last;
    uint64_t enqueued, done; // so many so far
    Graph *recording;
    struct Stream *older;
} Stream;

extern __thread int current;
// Whether `len` bytes at `at` are the GPU's.
int inside(uint64_t at, uint64_t len);
// The same, or locked pages of the host.
int reachable(uint64_t at, uint64_t len);
int enqueue(Stream *stream, int (*run)(const uint64_t *), const uint64_t *a, double ns, double in_graph);
// An object that must be gone before the context is.
void *object(size_t size);
int gone(void *it);
// Whether the variable STAND_IN has this word. Without words everything runs as it is enqueued.
int asked(const char *word);
// The error with which a call is to fail now, if any.
int fault(const char *call);
// Kernels that were launched, and that ran.
extern int launches, ran;
