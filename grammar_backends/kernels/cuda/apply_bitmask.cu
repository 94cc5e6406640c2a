// Packed bitmasks applied to logits, in place: the one source of the CUDA kernel.
//
// It includes nothing, so that NVRTC takes it without a toolkit's headers, and a C++ compiler takes it behind a shim that
// checks every access. Logits are only ever stored to, with the bits of -inf, never loaded: a masked NaN needs no rule,
// two masks for one row intersect in any order, and what stays keeps every bit.
//
// What a row and a column mean is said once, in `apply_token_bitmask` and `RowMapping`; `Arguments` is laid out as in
// call.py. Rows that do not exist are skipped, so that a captured graph can be replayed with any contents of the arrays.

#ifndef LOAD
#define LOAD(address) (*(address))
#define LOAD_16_BYTES(address) (*reinterpret_cast<const uint4*>(address))
#define STORE(address, value) (*(address) = (value))
// In assembly, because the compiler merges a vector store with the narrow ones beside it and splits it into those.
#define STORE_16_BYTES(address, word)                                                                            \
  asm volatile("st.global.v4.b32 [%0], {%1, %1, %1, %1};" ::"l"(address), "r"(word) : "memory")
#endif

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;
typedef int i32;
typedef long long i64;
typedef unsigned long long u64;

struct Arguments {
  void* logits;
  const u32* bitmask;
  const i32* logits_rows;
  const i32* mask_rows;
  const u8* enabled;
  const i32* first_rows;
  const i32* slots;
  const i32* d2t;
  i64 logits_row_stride, logits_column_stride, bitmask_row_stride, bitmask_word_stride;
  i32 jobs, row_count, column_count, mask_row_count, mask_bits, column_offset, d2t_size, first_rows_size, step;
  i32 positions_per_request, keep_tail, element_size;
  u32 minus_infinity, unused;
};

#define ALL 0xFFFFFFFFu

// The row of the logits that a job is for, or -1.
static __device__ __forceinline__ i64 logits_row_of(const Arguments& a, i32 job) {
  if (a.first_rows_size < 0) return a.logits_rows ? LOAD(a.logits_rows + job) : job;
  i32 request = job, position = a.step;
  if (a.slots) {
    const i32 slot = LOAD(a.slots + job);
    if (slot < 0) return -1;
    request = slot / a.positions_per_request;
    position = slot % a.positions_per_request;
  }
  const bool has_next = request + 1 < a.first_rows_size;
  if (request >= a.first_rows_size || (a.slots && !has_next)) return -1;
  const i64 first = LOAD(a.first_rows + request);
  const i64 end = has_next ? LOAD(a.first_rows + request + 1) : a.row_count;
  return first >= 0 && first + position < end ? first + position : -1;
}

// The two rows of a job, or false when it is skipped.
template <typename Element>
static __device__ __forceinline__ bool rows_of(const Arguments& a, i32 job, Element*& logits, const u32*& mask) {
  if (a.enabled && !LOAD(a.enabled + job)) return false;
  const i32 mask_row = a.mask_rows ? LOAD(a.mask_rows + job) : job;
  const i64 logits_row = logits_row_of(a, job);
  if (mask_row < 0 || mask_row >= a.mask_row_count || logits_row < 0 || logits_row >= a.row_count) return false;
  logits = static_cast<Element*>(a.logits) + logits_row * a.logits_row_stride;
  mask = a.bitmask + mask_row * a.bitmask_row_stride;
  return true;
}

// Elements that a row lies behind a boundary of 16 bytes.
template <typename Element>
static __device__ __forceinline__ i32 phase_of(const Element* row) {
  return static_cast<i32>((reinterpret_cast<u64>(row) & 15u) / sizeof(Element));
}

// Mask 16 bytes of logits: a bit that is set in `masked` stands for an element that becomes -inf.
template <typename Element>
static __device__ __forceinline__ void store_chunk(Element* chunk, i64 stride, u32 masked, u32 minus_infinity) {
  constexpr i32 LANES = 16 / sizeof(Element);
  if (masked == (1u << LANES) - 1 && stride == 1) {
    STORE_16_BYTES(chunk, sizeof(Element) == 2 ? minus_infinity * 0x10001u : minus_infinity);
  } else if (masked) {
#pragma unroll
    for (i32 lane = 0; lane < LANES; ++lane)
      if (masked >> lane & 1u) STORE(chunk + lane * stride, static_cast<Element>(minus_infinity));
  }
}

// Masked ids among those of one word of the mask, the tail included.
static __device__ __forceinline__ u32 masked_ids(const Arguments& a, const u32* mask, i32 word) {
  const u32 tail = a.keep_tail ? 0u : ALL;
  const i32 known = a.mask_bits - word * 32;
  if (word < 0 || known <= 0) return tail;
  const u32 masked = ~LOAD(mask + word);
  return known >= 32 ? masked : (masked & (ALL >> (32 - known))) | (tail & (ALL << known));
}

// Masked columns among the 32 from `column` on, none outside of the row. Column c has the id c + column_offset.
static __device__ __forceinline__ u32 masked_columns(const Arguments& a, const u32* mask, i32 column) {
  const i32 id = column + a.column_offset;
  const i32 word = id >> 5, shift = id & 31;
  u32 masked = masked_ids(a, mask, word) >> shift;
  if (shift) masked |= masked_ids(a, mask, word + 1) << (32 - shift);
  if (column < 0) masked &= column > -32 ? ALL << -column : 0u;
  const i32 left = a.column_count - column;
  if (left < 32) masked &= left > 0 ? ALL >> (32 - left) : 0u;
  return masked;
}

// Logits whose columns are adjacent, WORDS words of 32 columns to a thread at a time. The columns are counted from the
// boundary of 16 bytes before the row. The threads that share a word write its columns as one segment of 128 bytes (64
// for two-byte elements), each of them 16 bytes. A thread whose words mask nothing touches nothing but the mask.
template <typename Element, i32 WORDS>
static __device__ __forceinline__ void apply_packed(const Arguments& a) {
  constexpr i32 LANES = 16 / sizeof(Element);
  constexpr i32 SHARERS = 32 / LANES;
  const i32 threads = static_cast<i32>(blockDim.x) / SHARERS;
  const i32 first = (static_cast<i32>(blockIdx.x) * threads + static_cast<i32>(threadIdx.x) / SHARERS) * WORDS;
  const i32 lane = static_cast<i32>(threadIdx.x) % SHARERS * LANES;

#pragma unroll 1
  for (i32 job = static_cast<i32>(blockIdx.y); job < a.jobs; job += static_cast<i32>(gridDim.y)) {
    Element* row;
    const u32* mask;
    if (!rows_of(a, job, row, mask)) continue;
    const i32 phase = phase_of(row);
    const i32 known = a.mask_bits - a.column_offset;
    const i32 plain_columns = known < a.column_count ? known : a.column_count;
    const u32* const words = mask + a.column_offset / 32;
    const bool wide = WORDS == 4 && phase == 0 && a.column_offset % 32 == 0 && reinterpret_cast<u64>(words) % 16 == 0;

#pragma unroll 1
    for (i32 word = first; word * 32 < a.column_count + phase; word += static_cast<i32>(gridDim.x) * threads * WORDS) {
      u32 masked[WORDS];
      if (wide && (word + WORDS) * 32 <= plain_columns) {
        const uint4 four = LOAD_16_BYTES(words + word);
        const u32 all[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (i32 i = 0; i < WORDS; ++i) masked[i] = ~all[i];
      } else {
#pragma unroll
        for (i32 i = 0; i < WORDS; ++i) masked[i] = masked_columns(a, mask, (word + i) * 32 - phase);
      }
      u32 any = 0;
#pragma unroll
      for (i32 i = 0; i < WORDS; ++i) any |= masked[i];
      if (!any) continue;
      Element* const chunk = row + (word * 32 + lane - phase);
#pragma unroll
      for (i32 i = 0; i < WORDS; ++i)
        store_chunk(chunk + i * 32, 1, masked[i] >> lane & ((1u << LANES) - 1), a.minus_infinity);
    }
  }
}

// Whether a column is masked, whatever the strides, through the draft-to-target map where there is one.
static __device__ __forceinline__ bool is_masked(const Arguments& a, const u32* mask, i32 column) {
  if (column < 0 || column >= a.column_count) return false;
  i64 id = static_cast<i64>(column) + a.column_offset;
  if (a.d2t_size >= 0) id = id < a.d2t_size ? id + LOAD(a.d2t + id) : -1;
  if (id < 0 || id >= a.mask_bits) return !a.keep_tail;
  return !(LOAD(mask + (id >> 5) * a.bitmask_word_stride) >> (id & 31) & 1u);
}

// Any strides and any map, one chunk to a thread at a time.
template <typename Element>
static __device__ __forceinline__ void apply_strided(const Arguments& a) {
  constexpr i32 LANES = 16 / sizeof(Element);
  const i64 stride = a.logits_column_stride;

#pragma unroll 1
  for (i32 job = static_cast<i32>(blockIdx.y); job < a.jobs; job += static_cast<i32>(gridDim.y)) {
    Element* row;
    const u32* mask;
    if (!rows_of(a, job, row, mask)) continue;
    const i32 phase = stride == 1 ? phase_of(row) : 0;

#pragma unroll 1
    for (i32 chunk = static_cast<i32>(blockIdx.x * blockDim.x + threadIdx.x); chunk * LANES < a.column_count + phase;
         chunk += static_cast<i32>(gridDim.x * blockDim.x)) {
      const i32 column = chunk * LANES - phase;
      u32 masked = 0;
#pragma unroll
      for (i32 lane = 0; lane < LANES; ++lane) masked |= is_masked(a, mask, column + lane) ? 1u << lane : 0u;
      store_chunk(row + column * stride, stride, masked, a.minus_infinity);
    }
  }
}

// Four blocks of 256 threads leave a thread 64 registers: without the second bound, the compiler aims lower and spills.
#define ENTRY(name, body) \
  extern "C" __global__ void __launch_bounds__(256, 4) name(const Arguments a) { body(a); }

ENTRY(apply_packed_4_bytes_1_word, (apply_packed<u32, 1>))
ENTRY(apply_packed_4_bytes_4_words, (apply_packed<u32, 4>))
ENTRY(apply_packed_2_bytes_1_word, (apply_packed<u16, 1>))
ENTRY(apply_packed_2_bytes_4_words, (apply_packed<u16, 4>))
ENTRY(apply_strided_4_bytes, (apply_strided<u32>))
ENTRY(apply_strided_2_bytes, (apply_strided<u16>))
