// A stand-in for NVIDIA's driver, so that programs for CUDA run where there is no card: a `libcuda.so` that takes
// every kernel and every launch, writes them down, checks them against the limits of a real card, and computes
// nothing. `tools/kernels/run.sh` compiles it and puts it into the path of libraries.
//
//     STAND_IN_ARCH     sm_80, sm_90 or sm_120: an A100, an H100 or a GeForce RTX 5090 (default: sm_90)
//     STAND_IN_MEMORY   the bytes of the card's memory (default: as on that card)
//     STAND_IN_OUT      the folder for what is written down (default: nothing is)
//
// The folder gets, with tabs between the columns and times in microseconds since the first call:
//
//     0001.ptx …        the modules, in the order in which they were loaded
//     modules           number, function, bytes, when it was assembled, and the time that its thread had taken for
//                       it: the time since that thread's last call
//     launches          "key" lines: a number, module, function, grid, block, bytes of dynamic shared memory;
//                       "run" lines: a time, a key's number and how many launches in a row were like it;
//                       "graph" lines: a time and how many launches were replayed at once
//     violations        what a real driver would have refused, or would have done wrong without a word
//
// What the host reads back is what it wrote, as long as no kernel was given that buffer. After that it is zeros:
// a kernel here computes nothing, and what its memory held before would be another answer in each run.
//
// There are only the functions that cubecl-cuda calls, by the name and with the arguments of NVIDIA's <cuda.h>,
// which is not needed. cudarc looks each of them up when it is first called, and names one that is missing.

#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define API __attribute__((visibility("default")))

typedef uint64_t Pointer; // on the card

// Numbers of <cuda.h>.
typedef enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_IMAGE = 200,
    NOT_FOUND = 500,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
} Result;

// ---- the card -------------------------------------------------------------------------------

typedef struct {
    const char *arch, *name;
    int major, minor;
    int multiprocessors, threads, blocks; // the last two in one multiprocessor
    int shared;                           // bytes of shared memory in one multiprocessor
    int cache;                            // bytes
    int64_t memory;                       // bytes
} Card;

static const Card cards[] = {
    {"sm_80", "NVIDIA A100 (stand-in)", 8, 0, 108, 2048, 32, 164 << 10, 40 << 20, 80LL << 30},
    {"sm_90", "NVIDIA H100 (stand-in)", 9, 0, 132, 2048, 32, 228 << 10, 50 << 20, 80LL << 30},
    {"sm_120", "NVIDIA GeForce RTX 5090 (stand-in)", 12, 0, 170, 1536, 24, 100 << 10, 96 << 20, 32LL << 30},
};

// These are the same on all three.
enum { MAX_THREADS = 1024, MAX_BLOCK_Z = 64, MAX_GRID_YZ = 65535, MAX_GRID_X = 2147483647 };
enum { SHARED_ALWAYS = 48 << 10, SHARED_RESERVED = 1 << 10, REGISTERS = 65536, MAX_CLUSTER = 8 };

static const Card *card;
static int64_t memory_left;

// A block may ask for all of a multiprocessor's shared memory but what the driver keeps for itself.
static int shared_at_most(void) { return card->shared - SHARED_RESERVED; }

// ---- what is written down -------------------------------------------------------------------

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *folder;
static FILE *modules_file, *launches_file, *violations_file;
static int64_t began;
// When this thread was last in here.
static __thread int64_t last_call;

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static double microseconds(int64_t time) { return (double)(time - began) / 1e3; }

static FILE *file(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *opened = fopen(path, "w");
    if (!opened) {
        perror(path);
        exit(2);
    }
    return opened;
}

__attribute__((format(printf, 2, 3))) static Result violation(Result result, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "stand-in driver: %s\n", text);
    if (violations_file) {
        fprintf(violations_file, "%s\n", text);
        fflush(violations_file);
    }
    return result;
}

static Result enter(Result result) {
    last_call = now();
    return result;
}

__attribute__((constructor)) static void open_all(void) {
    began = last_call = now();
    const char *arch = getenv("STAND_IN_ARCH"), *memory = getenv("STAND_IN_MEMORY");
    if (!arch || !*arch) arch = "sm_90";
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++)
        if (!strcmp(cards[i].arch, arch)) card = &cards[i];
    if (!card) {
        fprintf(stderr, "STAND_IN_ARCH is %s, expected sm_80, sm_90 or sm_120\n", arch);
        exit(2);
    }
    memory_left = memory && *memory ? atoll(memory) : card->memory;
    folder = getenv("STAND_IN_OUT");
    if (folder && *folder) {
        modules_file = file("modules");
        launches_file = file("launches");
        violations_file = file("violations");
    }
}

// ---- memory ---------------------------------------------------------------------------------

typedef struct {
    Pointer start;
    size_t size;
} Range;

static Range *allocated;
static size_t allocated_count, allocated_room;

// Returns the live allocation that has all of the bytes, or null.
static Range *allocation(Pointer start, size_t size) {
    for (size_t i = 0; i < allocated_count; i++) {
        Range *range = &allocated[i];
        if (start >= range->start && start + size <= range->start + range->size) return range;
    }
    return NULL;
}

// What the host wrote, by the place where it begins, as long as no kernel was given it. A pool of memory hands
// the same places out over and over, so the table stays small.
enum { PLACES = 1 << 20 };
static Range written[PLACES];

static Range *place(Pointer start, bool add) {
    static size_t used;
    for (size_t i = (start >> 4) * 0x9E3779B97F4A7C15ULL >> 44;; i = (i + 1) % PLACES) {
        if (written[i].start == start) return &written[i];
        if (written[i].start) continue;
        if (!add) return NULL;
        if (++used > PLACES / 2) {
            fputs("stand-in driver: the host wrote to more places than expected; enlarge PLACES\n", stderr);
            exit(2);
        }
        written[i].start = start;
        return &written[i];
    }
}

static void write_at(Pointer start, size_t size) { place(start, true)->size = size; }

static void forget(Pointer start) {
    Range *range = place(start, false);
    if (range) range->size = 0;
}

static bool is_written(Pointer start, size_t size) {
    Range *range = place(start, false);
    return range && range->size >= size;
}

// ---- a recording of launches ----------------------------------------------------------------

// One at a time, which is what cubecl does, too. The mode is the strictest, so no thread may take memory or wait
// while it is running.
static void *recording;
static bool recording_broken;
static size_t recorded;

static Result unless_recording(const char *function) {
    if (!recording) return SUCCESS;
    recording_broken = true;
    return violation(CAPTURE_UNSUPPORTED, "%s was called while launches were recorded", function);
}

// ---- kernels --------------------------------------------------------------------------------

enum { PARAMETERS = 128 };

typedef struct {
    int module;
    char name[256];
    unsigned required[3], most[3], cluster[3]; // units and cubes by the kernel's own directives, or zeros
    unsigned fixed_shared;                     // bytes of shared memory that it declares itself
    int allowed_shared;                        // bytes of dynamic shared memory that the program asked for
    int parameters;
    struct {
        bool pointer, map;
    } is[PARAMETERS];
} Kernel;

// Reads up to three numbers after the directive `name` in the text between the two ends.
static void directive(const char *from, const char *to, const char *name, unsigned numbers[3]) {
    const char *at = memmem(from, (size_t)(to - from), name, strlen(name));
    if (!at) return;
    numbers[0] = numbers[1] = numbers[2] = 1;
    sscanf(at + strlen(name), " %u , %u , %u", &numbers[0], &numbers[1], &numbers[2]);
}

// Reads a kernel's head: its name, its parameters up to `)`, and its directives up to `{`.
static bool read_kernel(const char *ptx, Kernel *kernel) {
    const char *entry = strstr(ptx, ".entry");
    if (!entry || sscanf(entry, ".entry %255[^( \n]", kernel->name) != 1) return false;
    const char *open = strchr(entry, '('), *body = strchr(entry, '{');
    if (!body) return false;
    const char *close = open && open < body ? strchr(open, ')') : NULL;
    for (const char *at = close ? open : body; (at = strstr(at, ".param")) && at < close; at++) {
        if (kernel->parameters == PARAMETERS) return false;
        const char *end = strpbrk(at, ",)");
        size_t length = (size_t)(end - at);
        kernel->is[kernel->parameters].pointer = memmem(at, length, ".ptr", 4) != NULL;
        kernel->is[kernel->parameters].map = memmem(at, length, "[128]", 5) && memmem(at, length, ".align 64", 9);
        kernel->parameters++;
    }
    directive(close ? close : entry, body, ".reqntid", kernel->required);
    directive(close ? close : entry, body, ".maxntid", kernel->most);
    directive(close ? close : entry, body, ".reqnctapercluster", kernel->cluster);
    for (const char *at = ptx; (at = strstr(at, ".shared .align")); at++) {
        unsigned bytes;
        bool outside = at >= ptx + 8 && !memcmp(at - 8, ".extern ", 8);
        if (!outside && sscanf(at, ".shared .align %*u .b8 %*[^[][%u]", &bytes) == 1) kernel->fixed_shared += bytes;
    }
    return true;
}

static Result check(const Kernel *kernel, const unsigned grid[3], const unsigned block[3], unsigned shared) {
    const unsigned *fixed = kernel->required, *most = kernel->most, *cluster = kernel->cluster;
    uint64_t units = (uint64_t)block[0] * block[1] * block[2];
    const char *broken = NULL;
    if (!grid[0] || !grid[1] || !grid[2] || !units)
        broken = "a side is zero";
    else if (grid[0] > MAX_GRID_X || grid[1] > MAX_GRID_YZ || grid[2] > MAX_GRID_YZ)
        broken = "a grid has at most 2147483647, 65535 and 65535 cubes";
    else if (units > MAX_THREADS || block[2] > MAX_BLOCK_Z)
        broken = "a cube has at most 1024 units, and 64 in its third side";
    else if (fixed[0] && (block[0] != fixed[0] || block[1] != fixed[1] || block[2] != fixed[2]))
        broken = "the kernel was compiled for another cube (.reqntid)";
    else if (most[0] && units > (uint64_t)most[0] * most[1] * most[2])
        broken = "the kernel was compiled for a smaller cube (.maxntid)";
    else if (cluster[0] && (grid[0] % cluster[0] || grid[1] % cluster[1] || grid[2] % cluster[2]))
        broken = "the grid is no multiple of the kernel's cluster";
    else if (cluster[0] && cluster[0] * cluster[1] * cluster[2] > MAX_CLUSTER)
        broken = "a cluster has at most 8 cubes";
    else if (kernel->fixed_shared + shared > (unsigned)shared_at_most())
        broken = "that is more shared memory than the card has";
    else if (kernel->fixed_shared + shared > SHARED_ALWAYS && (int)shared > kernel->allowed_shared)
        broken = "more than 48 KiB of shared memory has to be asked for";
    if (!broken) return SUCCESS;
    return violation(INVALID_VALUE, "%s, grid %u %u %u, cube %u %u %u, shared %u + %u bytes: %s", kernel->name, grid[0],
                     grid[1], grid[2], block[0], block[1], block[2], kernel->fixed_shared, shared, broken);
}

// ---- launches -------------------------------------------------------------------------------

typedef struct {
    const Kernel *kernel;
    unsigned grid[3], block[3], shared;
} Key;

// A key's number is its place among all.
static Key *keys;
static int *key_numbers, key_count, key_room;
enum { KEY_SLOTS = 1 << 18 };

static int number_of(const Key *key) {
    if (!key_numbers) key_numbers = calloc(KEY_SLOTS, sizeof *key_numbers);
    uint64_t hash = 14695981039346656037ULL;
    for (size_t i = 0; i < sizeof *key; i++) hash = (hash ^ ((const uint8_t *)key)[i]) * 1099511628211ULL;
    size_t slot = hash % KEY_SLOTS;
    for (; key_numbers[slot]; slot = (slot + 1) % KEY_SLOTS)
        if (!memcmp(&keys[key_numbers[slot] - 1], key, sizeof *key)) return key_numbers[slot];
    if (key_count == key_room) keys = realloc(keys, (size_t)(key_room = 2 * key_room + 64) * sizeof *keys);
    if (key_count == KEY_SLOTS / 2) {
        fputs("stand-in driver: more kinds of launches than expected; enlarge KEY_SLOTS\n", stderr);
        exit(2);
    }
    keys[key_count++] = *key;
    if (launches_file)
        fprintf(launches_file, "key\t%d\t%d\t%s\t%u\t%u\t%u\t%u\t%u\t%u\t%u\n", key_count, key->kernel->module,
                key->kernel->name, key->grid[0], key->grid[1], key->grid[2], key->block[0], key->block[1],
                key->block[2], key->shared);
    return key_numbers[slot] = key_count;
}

// A launch takes 10 microseconds of the card's own time, which continues with launches alone: what is measured with
// it is the same in each run, and never zero.
enum { LAUNCH_NANOSECONDS = 10000 };
static int64_t card_time;

static int row_key;
static long row_count;
static double row_time;

static void write_row(void) {
    if (row_count && launches_file) fprintf(launches_file, "run\t%.1f\t%d\t%ld\n", row_time, row_key, row_count);
    row_count = 0;
}

static void note(const Key *key, int64_t at) {
    int number = number_of(key);
    if (number != row_key || !row_count) {
        write_row();
        row_key = number;
        row_time = microseconds(at);
    }
    row_count++;
}

__attribute__((destructor)) static void close_all(void) {
    pthread_mutex_lock(&lock);
    write_row();
    for (int i = 0; i < 3; i++) {
        FILE *open = (FILE *[]){modules_file, launches_file, violations_file}[i];
        if (open) fflush(open);
    }
    pthread_mutex_unlock(&lock);
}

// Launches have the times of a clock that stands still while they are written down, so that what the program itself
// takes for each is known.
static int64_t in_launches;

API Result cuLaunchKernel(Kernel *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters,
                          void **extra) {
    int64_t at = now();
    Key key;
    memset(&key, 0, sizeof key); // so that equal keys have equal bytes, and those between the fields too
    key.kernel = kernel, key.shared = shared;
    key.grid[0] = grid_x, key.grid[1] = grid_y, key.grid[2] = grid_z;
    key.block[0] = block_x, key.block[1] = block_y, key.block[2] = block_z;
    pthread_mutex_lock(&lock);
    Result result = check(kernel, key.grid, key.block, shared);
    for (int i = 0; i < kernel->parameters && !result; i++) {
        if (!parameters || !parameters[i]) {
            result = violation(INVALID_VALUE, "%s has no parameter %d of %d", kernel->name, i, kernel->parameters);
        } else if (kernel->is[i].pointer || kernel->is[i].map) {
            // A tensor map begins with its tensor's place; see below.
            Pointer given;
            memcpy(&given, parameters[i], sizeof given);
            if (given && !allocation(given, 1))
                result = violation(INVALID_VALUE, "%s: parameter %d is no place in the card's memory", kernel->name, i);
            forget(given);
        }
    }
    if (recording && stream == recording) {
        recorded++;
    } else {
        card_time += LAUNCH_NANOSECONDS;
        note(&key, at - in_launches);
    }
    (void)extra;
    last_call = now();
    in_launches += last_call - at;
    pthread_mutex_unlock(&lock);
    return result;
}

API Result cuFuncSetAttribute(Kernel *kernel, int attribute, int value) {
    if (attribute != 8) return violation(INVALID_VALUE, "cuFuncSetAttribute of attribute %d", attribute);
    if (value < 0 || (unsigned)value + kernel->fixed_shared > (unsigned)shared_at_most())
        return violation(INVALID_VALUE, "%s asks for %d bytes of shared memory, beside %u of its own; at most %d",
                         kernel->name, value, kernel->fixed_shared, shared_at_most());
    kernel->allowed_shared = value;
    return SUCCESS;
}

// ---- modules --------------------------------------------------------------------------------

// Assembling returns the PTX itself in place of machine code. ptxas reads it later, from its file.
typedef struct {
    char *ptx;
    size_t size;
} Link;

API Result cuLinkCreate_v2(unsigned count, int *options, void **values, Link **link) {
    (void)count, (void)options, (void)values;
    return *link = calloc(1, sizeof **link), SUCCESS;
}

API Result cuLinkAddData_v2(Link *link, int type, void *data, size_t size, const char *name, unsigned count,
                            int *options, void **values) {
    (void)name, (void)count, (void)options, (void)values;
    if (type != 1 || link->ptx) return violation(INVALID_VALUE, "cuLinkAddData of something else than one PTX");
    // The time of generating stands in front of the text, so that it comes to the module. It is a comment in PTX.
    const char *head = "// generated in %lld ns\n";
    int64_t took = now() - last_call;
    int extra = snprintf(NULL, 0, head, (long long)took);
    link->ptx = malloc((size_t)extra + size + 1);
    sprintf(link->ptx, head, (long long)took);
    memcpy(link->ptx + extra, data, size);
    link->size = (size_t)extra + size;
    link->ptx[link->size++] = 0;
    return SUCCESS;
}

API Result cuLinkComplete(Link *link, void **image, size_t *size) {
    *image = link->ptx;
    *size = link->size;
    return SUCCESS;
}

API Result cuLinkDestroy(Link *link) {
    free(link->ptx);
    free(link);
    return enter(SUCCESS);
}

API Result cuModuleLoadData(Kernel **module, const char *image) {
    static int loaded;
    Result result = unless_recording("cuModuleLoadData");
    if (result) return result;
    Kernel *kernel = calloc(1, sizeof *kernel);
    long long took = 0;
    sscanf(image, "// generated in %lld ns", &took);
    if (!read_kernel(image, kernel))
        return violation(INVALID_IMAGE, "a module is not PTX with a kernel: %.200s", image);
    pthread_mutex_lock(&lock);
    kernel->module = ++loaded;
    if (modules_file) {
        char name[32];
        snprintf(name, sizeof name, "%04d.ptx", kernel->module);
        FILE *ptx = file(name);
        // The first line differs in each run, and the files are told apart by their contents.
        const char *text = took ? strchr(image, '\n') + 1 : image;
        fputs(text, ptx);
        fclose(ptx);
        fprintf(modules_file, "%d\t%s\t%zu\t%.0f\t%.0f\n", kernel->module, kernel->name, strlen(text),
                microseconds(now()), (double)took / 1e3);
    }
    pthread_mutex_unlock(&lock);
    *module = kernel;
    return enter(SUCCESS);
}

API Result cuModuleLoadDataEx(Kernel **module, const char *image, unsigned count, int *options, void **values) {
    (void)count, (void)options, (void)values;
    return cuModuleLoadData(module, image);
}

// A module has one kernel, so the two are one here.
API Result cuModuleGetFunction(Kernel **function, Kernel *module, const char *name) {
    *function = module;
    return strcmp(name, module->name) ? violation(NOT_FOUND, "%s has no kernel %s", module->name, name) : SUCCESS;
}

// ---- memory, as the program sees it ---------------------------------------------------------

API Result cuMemAlloc_v2(Pointer *start, size_t size) {
    Result result = unless_recording("cuMemAlloc");
    if (result) return result;
    if (!size) return violation(INVALID_VALUE, "cuMemAlloc of no bytes");
    pthread_mutex_lock(&lock);
    // The system gives a page when it is first touched, so a card may have more memory than the machine.
    void *memory = MAP_FAILED;
    if ((int64_t)size <= memory_left)
        memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        result = OUT_OF_MEMORY;
    } else {
        memory_left -= (int64_t)size;
        if (allocated_count == allocated_room)
            allocated = realloc(allocated, (allocated_room = 2 * allocated_room + 64) * sizeof *allocated);
        allocated[allocated_count++] = (Range){*start = (Pointer)memory, size};
    }
    pthread_mutex_unlock(&lock);
    return enter(result);
}

API Result cuMemFree_v2(Pointer start) {
    Result result = unless_recording("cuMemFree");
    if (result) return result;
    pthread_mutex_lock(&lock);
    Range *range = allocation(start, 1);
    if (!range || range->start != start) {
        result = violation(INVALID_VALUE, "cuMemFree of what was not allocated");
    } else {
        munmap((void *)start, range->size);
        memory_left += (int64_t)range->size;
        *range = allocated[--allocated_count];
        // Whatever gets these places next is no longer what the host wrote.
        for (size_t i = 0; i < PLACES; i++)
            if (written[i].size && !allocation(written[i].start, 1)) written[i].size = 0;
    }
    pthread_mutex_unlock(&lock);
    return enter(result);
}

API Result cuMemAllocAsync(Pointer *start, size_t size, void *stream) {
    (void)stream;
    return cuMemAlloc_v2(start, size);
}

API Result cuMemFreeAsync(Pointer start, void *stream) {
    (void)stream;
    return cuMemFree_v2(start);
}

API Result cuMemAllocHost_v2(void **start, size_t size) {
    Result result = unless_recording("cuMemAllocHost");
    if (result) return result;
    return enter((*start = calloc(1, size)) ? SUCCESS : OUT_OF_MEMORY);
}

API Result cuMemFreeHost(void *start) {
    free(start);
    return enter(unless_recording("cuMemFreeHost"));
}

// The smallest rectangle is one row. Both sides may be the host's or the card's.
typedef struct {
    bool on_card;
    Pointer start;
    size_t pitch;
} Side;

static Result copy(const char *function, Side to, Side from, size_t width, size_t rows) {
    if (!width || !rows) return SUCCESS;
    pthread_mutex_lock(&lock);
    Result result = SUCCESS;
    size_t of_from = (rows - 1) * from.pitch + width, of_to = (rows - 1) * to.pitch + width;
    if ((from.on_card && !allocation(from.start, of_from)) || (to.on_card && !allocation(to.start, of_to))) {
        result = violation(INVALID_VALUE, "%s of %zu bytes leaves the card's memory", function, width * rows);
    } else {
        bool known = !from.on_card || is_written(from.start, of_from);
        for (size_t row = 0; row < rows; row++) {
            char *target = (char *)to.start + row * to.pitch;
            if (known)
                memmove(target, (const char *)from.start + row * from.pitch, width);
            else if (!to.on_card)
                memset(target, 0, width);
        }
        if (to.on_card && known)
            write_at(to.start, of_to);
        else if (to.on_card)
            forget(to.start);
        if (recording) recorded++;
    }
    pthread_mutex_unlock(&lock);
    return enter(result);
}

API Result cuMemcpyHtoDAsync_v2(Pointer to, const void *from, size_t size, void *stream) {
    (void)stream;
    return copy("cuMemcpyHtoD", (Side){true, to, size}, (Side){false, (Pointer)from, size}, size, 1);
}

API Result cuMemcpyDtoHAsync_v2(void *to, Pointer from, size_t size, void *stream) {
    (void)stream;
    return copy("cuMemcpyDtoH", (Side){false, (Pointer)to, size}, (Side){true, from, size}, size, 1);
}

API Result cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t size, void *stream) {
    (void)stream;
    return copy("cuMemcpyDtoD", (Side){true, to, size}, (Side){true, from, size}, size, 1);
}

typedef struct {
    size_t x, y;
    int kind; // 1 is the host, 2 the card
    const void *host;
    Pointer card;
    void *array;
    size_t pitch;
} Rectangle;

typedef struct {
    Rectangle from, to;
    size_t width, rows;
} Copy2D;

static bool side(const Rectangle *of, Side *side) {
    Pointer start = of->kind == 1 ? (Pointer)of->host : of->card;
    *side = (Side){of->kind == 2, start + of->y * of->pitch + of->x, of->pitch};
    return of->kind == 1 || of->kind == 2;
}

API Result cuMemcpy2DAsync_v2(const Copy2D *asked, void *stream) {
    Side to, from;
    (void)stream;
    if (!side(&asked->to, &to) || !side(&asked->from, &from))
        return violation(INVALID_VALUE, "cuMemcpy2D between kinds of memory that are not known here");
    if (asked->width > to.pitch || asked->width > from.pitch)
        return violation(INVALID_VALUE, "cuMemcpy2D of rows that are wider than their distance");
    return copy("cuMemcpy2D", to, from, asked->width, asked->rows);
}

// ---- tensor maps ----------------------------------------------------------------------------

// Checks what the manual asks for. A map is opaque, so it may begin with the tensor's place here, by which a
// launch finds it.
API Result cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *start, const uint64_t *shape,
                                  const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                                  int swizzle, int promotion, int fill) {
    static const unsigned bytes_of[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    static const unsigned swizzled[] = {0, 32, 64, 128, 128, 128, 128};
    (void)promotion, (void)fill;
    const char *broken = NULL;
    unsigned align = interleave == 2 ? 32 : 16;
    // The types after these are packed formats of fewer than 8 bits, which nothing here uses.
    unsigned bytes = (unsigned)type < sizeof bytes_of / sizeof *bytes_of ? bytes_of[type] : 0;
    if (card->major < 9) broken = "this card has none";
    else if (!bytes) broken = "its type is not known here";
    else if (rank < (interleave ? 3 : 1) || rank > 5) broken = "its rank is too small or too large";
    else if ((Pointer)start % align) broken = "its tensor is not aligned to 16 bytes, or 32 if interleaved";
    else if ((unsigned)swizzle > 6) broken = "its swizzle is not known here";
    for (unsigned i = 0; i < rank && !broken; i++) {
        if (!shape[i] || shape[i] > 1ULL << 32) broken = "a side of its tensor is not 1 to 2^32";
        else if (!box[i] || box[i] > 256) broken = "a side of its box is not 1 to 256";
        else if (!steps[i] || steps[i] > 8) broken = "a step is not 1 to 8";
        else if (i && (strides[i - 1] % align || strides[i - 1] >= 1ULL << 40))
            broken = "a stride is no multiple of 16 bytes, or 32 if interleaved, or is too large";
    }
    if (!broken && !interleave && box[0] * bytes % 16) broken = "a row of its box is no multiple of 16 bytes";
    if (!broken && !interleave && swizzle && box[0] * bytes > swizzled[swizzle])
        broken = "a row of its box is wider than its swizzle";
    if (broken) return violation(INVALID_VALUE, "a tensor map can't be made: %s", broken);
    memset(map, 0, 128);
    memcpy(map, &start, sizeof start);
    return SUCCESS;
}

// ---- streams, events, recordings ------------------------------------------------------------

API Result cuStreamCreate(void **stream, unsigned flags) {
    (void)flags;
    return (*stream = malloc(1)) ? SUCCESS : OUT_OF_MEMORY;
}

API Result cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    (void)priority;
    return cuStreamCreate(stream, flags);
}

API Result cuStreamDestroy_v2(void *stream) { return free(stream), SUCCESS; }

API Result cuStreamSynchronize(void *stream) {
    (void)stream;
    return enter(unless_recording("cuStreamSynchronize"));
}

API Result cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    (void)stream, (void)event, (void)flags;
    return enter(SUCCESS);
}

API Result cuEventCreate(int64_t **event, unsigned flags) {
    (void)flags;
    return (*event = calloc(1, sizeof **event)) ? SUCCESS : OUT_OF_MEMORY;
}

API Result cuEventDestroy_v2(int64_t *event) { return free(event), SUCCESS; }

API Result cuEventRecord(int64_t *event, void *stream) {
    (void)stream;
    *event = card_time;
    return enter(SUCCESS);
}

API Result cuEventSynchronize(int64_t *event) {
    (void)event;
    return enter(unless_recording("cuEventSynchronize"));
}

// No time at all would be read as a clock that does not work.
API Result cuEventElapsedTime(float *milliseconds, int64_t *from, int64_t *to) {
    int64_t took = *to - *from;
    *milliseconds = (float)(took > 1000 ? took : 1000) / 1e6f;
    return SUCCESS;
}

API Result cuEventElapsedTime_v2(float *milliseconds, int64_t *from, int64_t *to) {
    return cuEventElapsedTime(milliseconds, from, to);
}

API Result cuStreamBeginCapture_v2(void *stream, int mode) {
    if (recording || mode) return violation(CAPTURE_UNSUPPORTED, "a recording in another one, or in another mode");
    recording = stream;
    recording_broken = false;
    recorded = 0;
    return enter(SUCCESS);
}

// A graph is the number of its nodes.
API Result cuStreamEndCapture(void *stream, size_t **graph) {
    *graph = NULL;
    if (recording != stream) return violation(INVALID_VALUE, "the end of a recording that has not begun");
    recording = NULL;
    if (recording_broken) return violation(CAPTURE_INVALIDATED, "a recording that was broken off");
    *graph = malloc(sizeof **graph);
    **graph = recorded;
    return enter(SUCCESS);
}

API Result cuGraphGetNodes(size_t *graph, void **nodes, size_t *count) {
    if (nodes)
        for (size_t i = 0; i < *count && i < *graph; i++) nodes[i] = graph;
    *count = *graph;
    return SUCCESS;
}

// All nodes are kernels: taking memory is refused above.
API Result cuGraphNodeGetType(void *node, int *type) {
    (void)node;
    return *type = 0, SUCCESS;
}

API Result cuGraphInstantiateWithFlags(size_t **made, size_t *graph, unsigned long long flags) {
    (void)flags;
    *made = malloc(sizeof **made);
    **made = *graph;
    return SUCCESS;
}

API Result cuGraphUpload(size_t *made, void *stream) {
    (void)made, (void)stream;
    return SUCCESS;
}

API Result cuGraphLaunch(size_t *made, void *stream) {
    (void)stream;
    pthread_mutex_lock(&lock);
    write_row();
    card_time += LAUNCH_NANOSECONDS;
    if (launches_file) fprintf(launches_file, "graph\t%.1f\t%zu\n", microseconds(now() - in_launches), *made);
    pthread_mutex_unlock(&lock);
    return enter(SUCCESS);
}

API Result cuGraphDestroy(size_t *graph) { return free(graph), SUCCESS; }

API Result cuGraphExecDestroy(size_t *made) { return free(made), SUCCESS; }

// ---- what there is --------------------------------------------------------------------------

API Result cuInit(unsigned flags) { return flags ? INVALID_VALUE : SUCCESS; }

// PTX is written in the version that this driver reads.
API Result cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }

API Result cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }

API Result cuDeviceGet(int *device, int index) { return *device = index, index ? INVALID_VALUE : SUCCESS; }

API Result cuDeviceGetName(char *name, int size, int device) {
    (void)device;
    return snprintf(name, (size_t)size, "%s", card->name), SUCCESS;
}

API Result cuDeviceGetPCIBusId(char *text, int size, int device) {
    (void)device;
    return snprintf(text, (size_t)size, "0000:01:00.0"), SUCCESS;
}

API Result cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    return *bytes = (size_t)memory_left, SUCCESS;
}

API Result cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case 1: *value = MAX_THREADS; break;
    case 2: case 3: *value = MAX_THREADS; break;
    case 4: *value = MAX_BLOCK_Z; break;
    case 5: *value = MAX_GRID_X; break;
    case 6: case 7: *value = MAX_GRID_YZ; break;
    case 8: *value = SHARED_ALWAYS; break;
    case 10: *value = 32; break; // units of a plane
    case 12: *value = REGISTERS; break;
    case 16: *value = card->multiprocessors; break;
    case 18: *value = 0; break; // it is not part of the processor
    case 38: *value = card->cache; break;
    case 39: *value = card->threads; break;
    case 75: *value = card->major; break;
    case 76: *value = card->minor; break;
    case 81: *value = card->shared; break;
    case 82: *value = REGISTERS; break;
    case 97: *value = shared_at_most(); break;
    case 106: *value = card->blocks; break;
    case 111: *value = SHARED_RESERVED; break;
    default: return violation(INVALID_VALUE, "attribute %d of a device is not known here", attribute);
    }
    return SUCCESS;
}

API Result cuDevicePrimaryCtxRetain(void **context, int device) {
    (void)device;
    return *context = (void *)card, SUCCESS;
}

API Result cuCtxSetCurrent(void *context) {
    (void)context;
    return SUCCESS;
}

API Result cuCtxGetStreamPriorityRange(int *least, int *greatest) { return *least = *greatest = 0, SUCCESS; }

API Result cuGetErrorName(Result error, const char **text) {
    switch (error) {
    case SUCCESS: *text = "CUDA_SUCCESS"; break;
    case INVALID_VALUE: *text = "CUDA_ERROR_INVALID_VALUE"; break;
    case OUT_OF_MEMORY: *text = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case INVALID_IMAGE: *text = "CUDA_ERROR_INVALID_IMAGE"; break;
    case NOT_FOUND: *text = "CUDA_ERROR_NOT_FOUND"; break;
    case CAPTURE_UNSUPPORTED: *text = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"; break;
    case CAPTURE_INVALIDATED: *text = "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"; break;
    default: return INVALID_VALUE;
    }
    return SUCCESS;
}

API Result cuGetErrorString(Result error, const char **text) { return cuGetErrorName(error, text); }
