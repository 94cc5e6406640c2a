// Lets a C++ compiler take apply_bitmask.cu as it is and run it on the host, one thread after the other.
//
// The kernel has neither barriers nor shared memory, so that any order of its threads is a schedule that a device may
// choose; they run in one that is not the obvious one. Every access is checked for its alignment and for lying in the
// array that it is meant for, and every store for hitting a logit; the first that does not is kept as a fault, and what
// it would have touched is left alone. A thread whose loops do not end is stopped.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};

struct Position {
  unsigned x, y;
};

static thread_local Position threadIdx, blockIdx, blockDim;

struct Endless {};

constexpr unsigned MOST_STEPS = 100000;
static thread_local unsigned steps;

// Counts what every loop of the kernel does: access memory, or read a size of the grid, by which it steps.
static inline void count_step() {
  if (++steps > MOST_STEPS) throw Endless();
}

struct Stride {
  unsigned size;
  operator unsigned() const {
    count_step();
    return size;
  }
};

struct Strides {
  Stride x, y;
};

static thread_local Strides gridDim;

struct Region {
  uintptr_t begin, end;
};

// What one launch may touch, and what it did.
struct Watch {
  Region bitmask, flags, integers[5];
  uintptr_t logits;
  int64_t element_size, row_stride, column_stride, row_count, column_count;
  char fault[200];
  uint64_t loads, wide_loads, stores, wide_stores;
};

static thread_local Watch watch;

static inline bool faulty(const char* what, const void* address, bool is_right) {
  count_step();
  if (is_right) return false;
  if (!watch.fault[0])
    std::snprintf(watch.fault, sizeof watch.fault, "%s at %p by thread %u of block %u, %u", what, address, threadIdx.x,
                  blockIdx.x, blockIdx.y);
  return true;
}

static inline bool lies_in(const void* address, size_t size, const Region& region) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(address);
  return begin % size == 0 && begin >= region.begin && begin + size <= region.end;
}

// Whether an offset, in elements, is `outer * i + inner * j` for an i and a j in range.
static inline bool splits(int64_t offset, int64_t outer, int64_t outer_count, int64_t inner, int64_t inner_count) {
  const int64_t i = outer ? offset / outer : 0;
  for (int64_t candidate = i < outer_count ? i : outer_count - 1; candidate >= 0; --candidate) {
    const int64_t rest = offset - candidate * outer;
    const int64_t j = inner ? rest / inner : 0;
    if (j >= inner_count && inner) return false;
    if (j < inner_count && rest == j * inner) return true;
  }
  return false;
}

static inline bool is_logit(const char* address, size_t size) {
  const int64_t bytes = static_cast<int64_t>(reinterpret_cast<uintptr_t>(address) - watch.logits);
  if (bytes < 0 || bytes % watch.element_size || static_cast<int64_t>(size) != watch.element_size) return false;
  const int64_t offset = bytes / watch.element_size;
  return watch.row_stride >= watch.column_stride
             ? splits(offset, watch.row_stride, watch.row_count, watch.column_stride, watch.column_count)
             : splits(offset, watch.column_stride, watch.column_count, watch.row_stride, watch.row_count);
}

static inline uint32_t checked_load(const uint32_t* address) {
  ++watch.loads;
  return faulty("a load beside the bitmask", address, lies_in(address, 4, watch.bitmask)) ? 0 : *address;
}

static inline uint8_t checked_load(const uint8_t* address) {
  return faulty("a load beside the switches", address, lies_in(address, 1, watch.flags)) ? 0 : *address;
}

static inline int32_t checked_load(const int32_t* address) {
  bool is_right = false;
  for (const Region& region : watch.integers) is_right |= lies_in(address, 4, region);
  return faulty("a load beside the arrays of rows and ids", address, is_right) ? 0 : *address;
}

static inline uint4 checked_wide_load(const uint32_t* address) {
  ++watch.wide_loads;
  uint4 value = {};
  if (!faulty("a load of 16 bytes beside the bitmask", address, lies_in(address, 16, watch.bitmask)))
    std::memcpy(&value, address, 16);
  return value;
}

template <typename Element>
static inline void checked_store(Element* address, Element value) {
  ++watch.stores;
  if (!faulty("a store beside the logits", address, is_logit(reinterpret_cast<char*>(address), sizeof(Element))))
    *address = value;
}

template <typename Element>
static inline void checked_wide_store(Element* address, uint32_t word) {
  ++watch.wide_stores;
  bool is_right = reinterpret_cast<uintptr_t>(address) % 16 == 0;
  for (size_t i = 0; i < 16 / sizeof(Element); ++i)
    is_right = is_right && is_logit(reinterpret_cast<char*>(address + i), sizeof(Element));
  if (faulty("a store of 16 bytes beside the logits", address, is_right)) return;
  const uint32_t words[4] = {word, word, word, word};
  std::memcpy(address, words, 16);
}

#define LOAD(address) checked_load(address)
#define LOAD_16_BYTES(address) checked_wide_load(address)
#define STORE(address, value) checked_store(address, value)
#define STORE_16_BYTES(address, word) checked_wide_store(address, word)
