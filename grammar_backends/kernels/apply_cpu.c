// Applies packed bitmasks to logits in host memory, in place; compiled.py calls it.
//
// A logit is a bit pattern of 2 or 4 bytes here: masked ones become the pattern of -inf, the others keep theirs,
// whatever it means. Words of the mask that allow everything are passed by, words that allow nothing become wide
// stores, the others select lanes of vectors. Vectors are the compiler's own, in the widths that the processor turns
// out to have, so that one binary is right on all of an architecture. Any alignment and any stride will do.

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#ifndef BYTES_PER_THREAD
#define BYTES_PER_THREAD (8 << 20) // of logits; for less, starting a thread may take longer than it saves
#endif
#ifndef WORDS_PER_STRIPE
#define WORDS_PER_STRIPE 64 // the least that a thread takes at a time: 2048 columns
#endif

enum {
    BLOCK = 64,             // words looked at together: all ones are skipped at the price of reading the mask
    STRIPES_PER_THREAD = 4, // so that a thread which is held up leaves the rest to the others
    MOST_THREADS = 64,
    MOST_CHECKED_ROWS = 4096,
};

typedef uint32_t word_t __attribute__((aligned(1), may_alias));
typedef int32_t index_t __attribute__((aligned(1), may_alias));
typedef uint16_t logit2_t __attribute__((aligned(1), may_alias));
typedef uint32_t logit4_t __attribute__((aligned(1), may_alias));

// `Arguments` in call.py says what the fields mean; an array's size is -1 when the array is not given.
struct arguments {
    char *logits;
    const word_t *bitmask;
    const index_t *logits_rows, *mask_rows;
    const uint8_t *enabled;
    const index_t *first_rows, *slots, *d2t;
    int64_t logits_row_stride, logits_column_stride, bitmask_row_stride, bitmask_word_stride;
    int32_t jobs, row_count, column_count, mask_row_count, mask_bits, column_offset, d2t_size, first_rows_size;
    int32_t step, positions_per_request, keep_tail, element_size;
    uint32_t minus_infinity, unused;
};

// Masks `count` words, 32 columns each, of a row of logits.
typedef void store_words(char *row, int64_t column_stride, const word_t *allowed, int64_t count,
                         uint32_t minus_infinity);

// One bit of each lane; a word goes to a vector in parts of as many bits as that has lanes, 16 at most.
#define LANE_BITS                                                                                                     \
    {1 << 0, 1 << 1, 1 << 2,  1 << 3,  1 << 4,  1 << 5,  1 << 6,  1 << 7,                                             \
     1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15}
static const uint16_t lane_bits_2[16] = LANE_BITS;
static const uint32_t lane_bits_4[16] = LANE_BITS;

static inline int allows_everything(const word_t *allowed, int64_t count) {
    uint32_t all = UINT32_MAX;
    for (int64_t w = 0; w < count; w++) all &= allowed[w];
    return all == UINT32_MAX;
}

#define DEFINE_STORE(NAME, TARGET, SIZE, LANE, VECTOR_BYTES)                                                          \
    typedef LANE NAME##_vector __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias));                     \
    TARGET static void NAME(char *row, int64_t column_stride, const word_t *allowed, int64_t count,                   \
                            uint32_t minus_infinity) {                                                                \
        enum { LANES = VECTOR_BYTES / SIZE, PARTS = 32 / LANES };                                                     \
        const NAME##_vector bits = *(const NAME##_vector *)lane_bits_##SIZE;                                          \
        const NAME##_vector masked = (NAME##_vector){0} + (LANE)minus_infinity;                                       \
        (void)column_stride;                                                                                          \
        for (int64_t block = 0; block < count; block += BLOCK) {                                                      \
            const int64_t end = count - block < BLOCK ? count : block + BLOCK;                                        \
            if (allows_everything(allowed + block, end - block)) continue;                                            \
            for (int64_t w = block; w < end; w++) {                                                                   \
                const uint32_t word = allowed[w];                                                                     \
                NAME##_vector *const part = (NAME##_vector *)(row + w * 32 * SIZE);                                   \
                if (word == 0) {                                                                                      \
                    for (int p = 0; p < PARTS; p++) part[p] = masked;                                                 \
                } else if (word != UINT32_MAX) {                                                                      \
                    for (int p = 0; p < PARTS; p++) {                                                                 \
                        const NAME##_vector is_masked = (NAME##_vector)((bits & (LANE)(word >> (p * LANES))) == 0);   \
                        part[p] = (masked & is_masked) | (part[p] & ~is_masked);                                      \
                    }                                                                                                 \
                }                                                                                                     \
            }                                                                                                         \
        }                                                                                                             \
    }

DEFINE_STORE(store_2, , 2, uint16_t, 16)
DEFINE_STORE(store_4, , 4, uint32_t, 16)
#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
DEFINE_STORE(store_2_avx2, AVX2, 2, uint16_t, 32)
DEFINE_STORE(store_4_avx2, AVX2, 4, uint32_t, 32)
DEFINE_STORE(store_2_avx512, AVX512, 2, uint16_t, 32)
DEFINE_STORE(store_4_avx512, AVX512, 4, uint32_t, 64)
#endif

// Column by column, at any distance: for strides other than 1, and for the last word of a row.
#define DEFINE_STORE_COLUMNS(NAME, LOGIT)                                                                             \
    static void NAME(char *row, int64_t column_stride, const word_t *allowed, int64_t count,                          \
                     uint32_t minus_infinity) {                                                                       \
        LOGIT *const logits = (LOGIT *)row;                                                                           \
        for (int64_t w = 0; w < count; w++)                                                                           \
            for (uint32_t masked = ~allowed[w]; masked; masked &= masked - 1)                                         \
                logits[(w * 32 + __builtin_ctz(masked)) * column_stride] = (LOGIT)minus_infinity;                     \
    }

DEFINE_STORE_COLUMNS(store_columns_2, logit2_t)
DEFINE_STORE_COLUMNS(store_columns_4, logit4_t)

static store_words *columns_store(const struct arguments *a) {
    return a->element_size == 2 ? store_columns_2 : store_columns_4;
}

static store_words *fastest_store(const struct arguments *a, int vector_bytes) {
    const int is_short = a->element_size == 2;
    if (a->logits_column_stride != 1) return columns_store(a);
#ifdef __x86_64__
    if (vector_bytes >= 64 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return is_short ? store_2_avx512 : store_4_avx512;
    if (vector_bytes >= 32 && __builtin_cpu_supports("avx2")) return is_short ? store_2_avx2 : store_4_avx2;
#endif
    (void)vector_bytes;
    return is_short ? store_2 : store_4;
}

// A call, divided into stripes of columns. A stripe holds all rows, so that of two masks for one row both apply.
struct task {
    const struct arguments *arguments;
    store_words *store, *store_columns;
    int64_t words;       // of columns in a row
    int64_t plain_words; // the first of them whose bits are whole words of the mask, one after the other
    int64_t stripe_words, stripes;
    int64_t next_stripe; // atomic
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t plain_words(const struct arguments *a) {
    if (a->d2t_size >= 0 || a->bitmask_word_stride != 1 || a->column_offset % 32) return 0;
    const int64_t covered = least(a->column_count, (int64_t)a->mask_bits - a->column_offset);
    return covered > 0 ? covered / 32 : 0;
}

// The 32 bits of a mask row from `bit` on, with what the tail is to be beyond them.
static uint32_t mask_word(const struct arguments *a, const word_t *mask, int64_t bit) {
    const int64_t covered = a->mask_bits - bit, word = bit / 32 * a->bitmask_word_stride, shift = bit % 32;
    const uint32_t beyond = covered >= 32 ? 0 : covered > 0 ? UINT32_MAX << covered : UINT32_MAX;
    const uint32_t tail = a->keep_tail ? beyond : 0;
    if (covered <= 0) return tail;
    uint32_t allowed = mask[word] >> shift;
    if (covered > 32 - shift && shift) allowed |= mask[word + a->bitmask_word_stride] << (32 - shift);
    return (allowed & ~beyond) | tail;
}

// The same where each id has a bit of its own, anywhere.
static uint32_t translated_word(const struct arguments *a, const word_t *mask, int64_t id, int64_t count) {
    uint32_t allowed = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t bit = id + i < a->d2t_size ? id + i + a->d2t[id + i] : -1;
        const uint32_t is_allowed = bit >= 0 && bit < a->mask_bits
                                        ? mask[bit / 32 * a->bitmask_word_stride] >> bit % 32 & 1
                                        : (uint32_t)a->keep_tail;
        allowed |= is_allowed << i;
    }
    return allowed;
}

// The bits of 32 columns; where there are fewer, the others are allowed, and so left alone.
static uint32_t columns_word(const struct arguments *a, const word_t *mask, int64_t column) {
    const int64_t count = least(32, a->column_count - column), id = column + a->column_offset;
    const uint32_t allowed = a->d2t_size >= 0 ? translated_word(a, mask, id, count) : mask_word(a, mask, id);
    return count < 32 ? allowed | UINT32_MAX << count : allowed;
}

static void apply_gathered(const struct task *t, char *row, const word_t *mask, int64_t word, int64_t end) {
    const struct arguments *a = t->arguments;
    const int64_t word_bytes = 32 * a->logits_column_stride * a->element_size, whole = a->column_count / 32;
    word_t allowed[BLOCK];
    while (word < end) {
        const int64_t count = least(end - word, BLOCK);
        for (int64_t i = 0; i < count; i++) allowed[i] = columns_word(a, mask, (word + i) * 32);
        const int64_t vectors = least(count, whole - word);
        t->store(row + word * word_bytes, a->logits_column_stride, allowed, vectors, a->minus_infinity);
        t->store_columns(row + (word + vectors) * word_bytes, a->logits_column_stride, allowed + vectors,
                         count - vectors, a->minus_infinity);
        word += count;
    }
}

// The logits row of a job, or -1 when it has none. `resolve_rows` in call.py says the same for tensors.
static int64_t logits_row(const struct arguments *a, int64_t job) {
    if (a->first_rows_size < 0) return a->logits_rows ? a->logits_rows[job] : job;
    int64_t request = job, position = a->step, requests = a->first_rows_size;
    if (a->slots) {
        if (a->slots[job] < 0) return -1;
        request = a->slots[job] / a->positions_per_request;
        position = a->slots[job] % a->positions_per_request;
        requests--; // the last entry is only where the rows of the one before end
    }
    if (request >= requests || a->first_rows[request] < 0) return -1;
    const int64_t row = a->first_rows[request] + position;
    const int64_t end = request + 1 < a->first_rows_size ? a->first_rows[request + 1] : a->row_count;
    return row < end ? row : -1;
}

static void apply_stripe(const struct task *t, int64_t stripe) {
    const struct arguments *a = t->arguments;
    const int64_t first = stripe * t->stripe_words, end = least(first + t->stripe_words, t->words);
    const int64_t plain = least(end, t->plain_words), word_bytes = 32 * a->logits_column_stride * a->element_size;
    for (int64_t job = 0; job < a->jobs; job++) {
        if (a->enabled && !a->enabled[job]) continue;
        const int64_t source = a->mask_rows ? a->mask_rows[job] : job, target = logits_row(a, job);
        if (source < 0 || source >= a->mask_row_count || target < 0 || target >= a->row_count) continue;
        char *const row = a->logits + target * a->logits_row_stride * a->element_size;
        const word_t *const mask = a->bitmask + source * a->bitmask_row_stride;
        if (first < plain)
            t->store(row + first * word_bytes, a->logits_column_stride, mask + a->column_offset / 32 + first,
                     plain - first, a->minus_infinity);
        apply_gathered(t, row, mask, first < plain ? plain : first, end);
    }
}

static void *work(void *task) {
    struct task *const t = task;
    for (;;) {
        const int64_t stripe = __atomic_fetch_add(&t->next_stripe, 1, __ATOMIC_RELAXED);
        if (stripe >= t->stripes) return NULL;
        apply_stripe(t, stripe);
    }
}

// Threads are started for the call and joined: nothing is left behind that a fork could catch in the middle. Where none
// can be started, this one does all the work.
static void work_in_threads(struct task *task, int64_t threads) {
    pthread_t helpers[MOST_THREADS];
    int64_t started = 0;
    while (started < threads - 1 && pthread_create(&helpers[started], NULL, work, task) == 0) started++;
    work(task);
    while (started > 0) pthread_join(helpers[--started], NULL);
}

// Tells a library that was built from another version of this file.
const char source_digest[] = SOURCE_DIGEST;

// `threads`: how many may be used. `vector_bytes`: the widest vectors to use, where the processor has them. Returns 1.
int32_t apply_bitmask(const struct arguments *arguments, int32_t threads, int32_t vector_bytes) {
    const int64_t words = ((int64_t)arguments->column_count + 31) / 32;
    const int64_t bytes = (int64_t)arguments->jobs * arguments->column_count * arguments->element_size;
    const int64_t most = least(least(threads, MOST_THREADS), bytes / BYTES_PER_THREAD);
    struct task task = {
        .arguments = arguments,
        .store = fastest_store(arguments, vector_bytes),
        .store_columns = columns_store(arguments),
        .words = words,
        .plain_words = plain_words(arguments),
        .stripe_words = words,
        .stripes = 1,
    };
    if (most > 1) {
        const int64_t even = (words + most * STRIPES_PER_THREAD - 1) / (most * STRIPES_PER_THREAD);
        task.stripe_words = even > WORDS_PER_STRIPE ? even : WORDS_PER_STRIPE;
        task.stripes = (words + task.stripe_words - 1) / task.stripe_words;
    }
    work_in_threads(&task, most);
    return 1;
}

// Whether indices are rows or -1, and no row comes twice.
static int are_distinct_rows(const index_t *rows, int64_t jobs, int64_t row_count) {
    uint64_t seen[MOST_CHECKED_ROWS / 64] = {0};
    if (row_count > MOST_CHECKED_ROWS) return 0;
    for (int64_t job = 0; job < jobs; job++) {
        const int64_t row = rows[job];
        if (row == -1) continue;
        const uint64_t bit = (uint64_t)1 << (row & 63);
        if (row < 0 || row >= row_count || seen[row / 64] & bit) return 0;
        seen[row / 64] |= bit;
    }
    return 1;
}

// The same for indices that nobody has checked: does nothing, and returns 0, where they are not obviously right.
int32_t apply_checked(const struct arguments *arguments, int32_t threads, int32_t vector_bytes) {
    if (arguments->logits_rows &&
        !are_distinct_rows(arguments->logits_rows, arguments->jobs, arguments->row_count))
        return 0;
    return apply_bitmask(arguments, threads, vector_bytes);
}
