/* The four loops of STREAM (McCalpin), written anew for arrays that the caller owns, and a sum. One loop, one
 * parallel region, static shares: what gcc -O3 -march=native -fopenmp makes of the textbook. */
#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>
#include <stddef.h>

void stream_copy(double *restrict c, const double *restrict a, size_t n) {
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < n; i++) c[i] = a[i];
}

void stream_scale(double *restrict b, const double *restrict c, double factor, size_t n) {
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < n; i++) b[i] = factor * c[i];
}

void stream_add(double *restrict c, const double *restrict a, const double *restrict b, size_t n) {
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < n; i++) c[i] = a[i] + b[i];
}

void stream_triad(double *restrict a, const double *restrict b, const double *restrict c, double factor, size_t n) {
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < n; i++) a[i] = b[i] + factor * c[i];
}

double stream_sum(const double *a, size_t n) {
    double sum = 0;
#pragma omp parallel for simd schedule(static) reduction(+ : sum)
    for (size_t i = 0; i < n; i++) sum += a[i];
    return sum;
}

/* As many threads as there are cores in the list, each on one of them. */
void stream_threads(const size_t *cores, int threads) {
    omp_set_num_threads(threads);
#pragma omp parallel
    {
        cpu_set_t core;
        CPU_ZERO(&core);
        CPU_SET(cores[omp_get_thread_num()], &core);
        sched_setaffinity(0, sizeof core, &core);
    }
}
