#include "stand_in.h"

// cuBLASLt. Formats: 0 f32, 2 f16, 3 int8, 10 int32, 14 bf16, 28 e4m3.
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
typedef struct { size_t workspace; unsigned align[4]; } Preference; // of A, B, C, D
int cublasLtMatmulPreferenceCreate(Preference **it)
{
    *it = object(sizeof **it);
    for (int i = 0; i < 4; i++) (*it)->align[i] = 256;
    return OK;
}
int cublasLtMatmulPreferenceSetAttribute(Preference *it, int which, const void *value, size_t size)
{
    if (which == 1 && size == 8) memcpy(&it->workspace, value, 8);
    else if (which >= 5 && which <= 8 && size == 4) memcpy(&it->align[which - 5], value, 4);
    else return 7;
    return OK;
}
int cublasLtMatmulPreferenceDestroy(void *it) { return gone(it); }

static int knows(const Description *it, const Layout *a, const Layout *b, const Layout *d)
{
    int of_float = it->sum == 68 && it->scale == 0, of_integer = it->sum == 72 && it->scale == 10;
    int types = a->type == b->type && ((of_float && (a->type == 14 || a->type == 2) && (d->type == a->type || (a->type == 14 && d->type == 0)))
        || (of_float && a->type == 28 && d->type == 14) || (of_integer && a->type == 3 && d->type == 10));
    return types && it->transpose_a == 1 && a->rows == b->rows && d->rows == a->columns && d->columns == b->columns
        && a->stride == (int64_t)a->rows && b->stride == (int64_t)b->rows && d->stride >= (int64_t)d->rows;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, Description *it, Layout *a, Layout *b, Layout *c, Layout *d,
                                   Preference *preference, int wanted, Heuristic *found, int *count)
{
    memset(found, 0, sizeof *found);
    found->workspace = preference->workspace;
    for (int i = 0; i < 4; i++) found->algo[i] = preference->align[i];
    found->algo[4] = preference->workspace;
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

static uint16_t short_of(float wide)
{
    uint32_t bits;
    memcpy(&bits, &wide, 4);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// a: W, x, y, n, m, k, types (of operands, of y), y's stride. Large products are only timed, unless
// somebody asks.
static int multiply(const uint64_t *a)
{
    int type = a[6] & 255, to = a[6] >> 8;
    uint64_t n = a[3], m = a[4], k = a[5], operand = type == 2 || type == 14 ? 2 : 1, result = to == 0 || to == 10 ? 4 : 2;
    if (!inside(a[0], n * k * operand) || !inside(a[1], m * k * operand)) return 14;
    if (!inside(a[2], ((m - 1) * a[7] + n) * result)) return 14;
    if (m * n * k > 1000000 && !getenv("STAND_IN")) return OK;
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t j = 0; j < n; j++) {
            double sum = 0;
            if (type == 14) {
                const uint16_t *x = (const uint16_t *)a[1] + i * k, *w = (const uint16_t *)a[0] + j * k;
                for (uint64_t l = 0; l < k; l++) sum += brain(x[l]) * brain(w[l]);
            } else
                for (uint64_t l = 0; l < k; l++) sum += element(type, a[1], i * k + l) * element(type, a[0], j * k + l);
            uint64_t at = i * a[7] + j;
            if (to == 10) ((int32_t *)a[2])[at] = (int32_t)sum;
            else if (to == 0) ((float *)a[2])[at] = (float)sum;
            else if (to == 2) ((_Float16 *)a[2])[at] = (_Float16)sum;
            else ((uint16_t *)a[2])[at] = short_of((float)sum);
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
    if (!handle || !algorithm || given[0] != one || given[1] || c != y || cl != yl) return 7;
    if (!knows(it, wl, xl, yl)) return 15;
    const uint64_t *align = algorithm;
    if (workspace_size < align[4]) return 7;
    if (w % align[0] || x % align[1] || y % align[3] || align[2] != align[3] || !inside(workspace, workspace_size)) return 7;
    uint64_t a[8] = {w, x, y, wl->columns, xl->columns, wl->rows, (uint64_t)wl->type | (uint64_t)yl->type << 8, (uint64_t)yl->stride};
    double flop = 2.0 * a[3] * a[4] * a[5] / 500000, bytes = a[3] * a[5] * (wl->type == 2 || wl->type == 14 ? 2 : 1) / 4.0;
    double ns = 1000 + (flop > bytes ? flop : bytes);
    return enqueue(stream, multiply, a, ns + 1000, ns);
}
