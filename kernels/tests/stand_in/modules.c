// The compiler and its results: kernels' texts compiled as C behind block.c, and the two kernels of
// a measurement.
#include "stand_in.h"
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct { char *text, *name, log[4096]; unsigned char *code; size_t len; } Unit;

static int put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    return file && fputs(text, file) >= 0 && !fclose(file) ? OK : BAD_VALUE;
}

static int take(const char *path, Unit *unit)
{
    FILE *file = fopen(path, "r");
    if (!file || fseek(file, 0, SEEK_END)) return BAD_VALUE;
    unit->len = ftell(file);
    unit->code = malloc(unit->len);
    rewind(file);
    return fread(unit->code, 1, unit->len, file) == unit->len && !fclose(file) ? OK : BAD_VALUE;
}

const char *nvrtcGetErrorString(int error) { return error ? "an error of the stand-in" : "none"; }
int nvrtcCreateProgram(Unit **unit, const char *text, const char *name, int headers, const char *const *of, const char *const *named)
{
    *unit = calloc(1, sizeof **unit);
    (*unit)->text = strdup(text);
    (*unit)->name = strdup(name);
    return headers || of || named ? BAD_VALUE : OK;
}
int nvrtcDestroyProgram(Unit **unit)
{
    free((*unit)->text);
    free((*unit)->name);
    free((*unit)->code);
    free(*unit);
    return OK;
}
// What this process has compiled, the last first, because each session compiles everything and a
// test has many sessions.
typedef struct Known { char *text; unsigned char *code; size_t len; struct Known *before; } Known;
static Known *known;

static int look_up(Unit *unit)
{
    for (Known *it = known; it; it = it->before)
        if (!strcmp(it->text, unit->text)) {
            unit->code = memcpy(malloc(it->len), it->code, unit->len = it->len);
            return 1;
        }
    return 0;
}

static void keep(const Unit *unit)
{
    Known *it = malloc(sizeof *it);
    *it = (Known){strdup(unit->text), memcpy(malloc(unit->len), unit->code, unit->len), unit->len, known};
    known = it;
}

static int compile(Unit *unit, int count, const char *const *options)
{
    char folder[] = "/tmp/stand_in_XXXXXX", path[99], made[99], command[999];
    if (count != 1 || strncmp(options[0], "--gpu-architecture=sm_", 22) || !mkdtemp(folder)) return BAD_VALUE;
    snprintf(path, sizeof path, "%s/kernels.c", folder);
    snprintf(made, sizeof made, "%s/kernels.so", folder);
    char *text = NULL;
    if (asprintf(&text, "#include \"%s\"\n#line 1 \"%s.cu\"\n%s", BLOCK, unit->name, unit->text) < 0) return BAD_VALUE;
    snprintf(command, sizeof command, "cc -std=gnu11 -O2 -w -shared -fPIC -fno-strict-aliasing -ffp-contract=off -o %s %s -lm", made, path);
    int status = put(path, text) || system(command) || take(made, unit) ? 6 : OK;
    if (!status) keep(unit);
    unlink(path);
    unlink(made);
    rmdir(folder);
    free(text);
    return status;
}

int nvrtcCompileProgram(Unit *unit, int count, const char *const *options)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&one);
    int status = look_up(unit) ? OK : compile(unit, count, options);
    pthread_mutex_unlock(&one);
    return status;
}
int nvrtcGetProgramLogSize(Unit *unit, size_t *size) { *size = strlen(unit->log) + 1; return OK; }
int nvrtcGetProgramLog(Unit *unit, char *log) { strcpy(log, unit->log); return OK; }
int nvrtcGetCUBINSize(Unit *unit, size_t *size) { *size = unit->len; return unit->code ? OK : 8; }
int nvrtcGetCUBIN(Unit *unit, char *code) { memcpy(code, unit->code, unit->len); return OK; }

typedef struct { void *library; } Module; // none: PTX
typedef struct { void *kernel, *run; unsigned threads, bytes; } Function;

static const char EMPTY, READ;
int cuModuleLoadData(Module **module, const char *image)
{
    *module = object(sizeof **module);
    if (memcmp(image, ELFMAG, SELFMAG)) return strstr(image, ".entry") ? OK : BAD_VALUE;
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
    size_t len = header->e_shoff + (size_t)header->e_shentsize * header->e_shnum;
    char path[99];
    int file = memfd_create("kernels", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    // Every library needs another name, or the loader returns the previous one.
    if (file < 0 || write(file, image, len) != (ssize_t)len) return BAD_VALUE;
    (*module)->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!(*module)->library) fprintf(stderr, "%s\n", dlerror());
    return (*module)->library ? OK : BAD_VALUE;
}
int cuModuleUnload(Module *module) { return gone(module); }
int cuModuleGetFunction(const void **function, Module *module, const char *name)
{
    if (!module->library) {
        *function = !strcmp(name, "empty") ? &EMPTY : !strcmp(name, "read_all") ? &READ : NULL;
        return *function ? OK : NOT_FOUND;
    }
    char symbol[99];
    Function *found = malloc(sizeof *found); // as long as the process
    found->kernel = dlsym(module->library, name);
    found->run = dlsym(module->library, "run_on_host");
    if (!found->kernel) return NOT_FOUND;
    snprintf(symbol, sizeof symbol, "threads_of_%s", name);
    found->threads = *(const unsigned *)dlsym(module->library, symbol);
    snprintf(symbol, sizeof symbol, "bytes_of_%s", name);
    found->bytes = *(const unsigned *)dlsym(module->library, symbol);
    *function = found;
    return OK;
}

// a: the function, blocks, the arguments, threads.
static int run_kernel(const uint64_t *a)
{
    int error = fault("kernel");
    __atomic_add_fetch(&ran, 1, __ATOMIC_SEQ_CST);
    if (error) return error;
    const Function *function = (const Function *)a[0];
    const unsigned grid[3] = {a[1], a[2], a[3]};
    const char *(*run)(void *, const void *, const unsigned *, unsigned, int);
    memcpy(&run, &function->run, sizeof run);
    const char *failure = run(function->kernel, (const void *)a[4], grid, a[5], asked("others"));
    if (failure) fprintf(stderr, "a kernel: %s\n", failure);
    return failure ? FAILED : OK;
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
    int error = fault("cuLaunchKernel");
    __atomic_add_fetch(&launches, 1, __ATOMIC_SEQ_CST);
    if (error) return error;
    if (!gx || bx % 32 || by != 1 || bz != 1 || shared || extra) return BAD_VALUE;
    if (function == &EMPTY) return enqueue(stream, empty, a, 2000, 1000);
    if (function != &READ) {
        const Function *ours = function;
        if (!bx || ours->threads < bx || !gy || !gz || gy > 65535 || gz > 65535) return BAD_VALUE;
        // Never freed: a graph runs it again.
        void *arguments = malloc(ours->bytes);
        memcpy(arguments, parameters[0], ours->bytes);
        uint64_t call[8] = {(uint64_t)ours, gx, gy, gz, (uint64_t)arguments, bx};
        double work = 20000.0 * gx * gy * gz;
        return enqueue(stream, run_kernel, call, 2000 + work, 1000 + work);
    }
    for (int i = 0; i < 3; i++) a[i] = *(uint64_t *)parameters[i];
    return enqueue(stream, read_all, a, 16 * a[1] / 4.0, 16 * a[1] / 4.0);
}
