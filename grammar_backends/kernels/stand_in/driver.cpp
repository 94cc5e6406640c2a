// A library that stands in for the CUDA driver: the functions that driver.py calls, with two devices whose kernels run on
// the host. Everything between Python and the kernel's source is thereby the same as with a GPU.

#include "shim.h"

#include KERNEL

#include <cstdlib>
#include <string>
#include <vector>

namespace {

enum Result { SUCCESS, INVALID_VALUE, INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201,
              UNSUPPORTED_PTX = 222, INVALID_HANDLE = 400, NOT_FOUND = 500, ILLEGAL_ACCESS = 700 };

constexpr int DEVICES = 2;
char contexts[DEVICES];  // their addresses are what stands for them

thread_local std::vector<void*> current;
thread_local std::string fault;

int driver_version = 13000;
int capability = 90;
int newest_ptx = 90;  // 10 * major + minor
bool takes_machine_code = true;

struct Launch {
  int device;
  void* stream;
  unsigned blocks, rows_of_blocks;
  uint64_t loads, wide_loads, stores, wide_stores;
};
thread_local Launch last;

struct EntryPoint {
  const char* name;
  void (*function)(Arguments);
} const entry_points[] = {
    {"apply_packed_4_bytes_1_word", apply_packed_4_bytes_1_word},
    {"apply_packed_4_bytes_4_words", apply_packed_4_bytes_4_words},
    {"apply_packed_2_bytes_1_word", apply_packed_2_bytes_1_word},
    {"apply_packed_2_bytes_4_words", apply_packed_2_bytes_4_words},
    {"apply_strided_4_bytes", apply_strided_4_bytes},
    {"apply_strided_2_bytes", apply_strided_2_bytes},
};

template <typename T>
Region region_of(const T* array, int64_t size) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(array);
  return {begin, array && size > 0 ? begin + size * sizeof(T) : begin};
}

void watch_for(const Arguments& a) {
  watch = {};
  const int64_t words = (a.mask_bits + 31) / 32;
  const int64_t last_word = (a.mask_row_count - 1) * a.bitmask_row_stride + (words - 1) * a.bitmask_word_stride;
  watch.bitmask = region_of(a.bitmask, words > 0 ? last_word + 1 : 0);
  watch.flags = region_of(a.enabled, a.jobs);
  watch.integers[0] = region_of(a.logits_rows, a.jobs);
  watch.integers[1] = region_of(a.mask_rows, a.jobs);
  watch.integers[2] = region_of(a.slots, a.jobs);
  watch.integers[3] = region_of(a.first_rows, a.first_rows_size);
  watch.integers[4] = region_of(a.d2t, a.d2t_size);
  watch.logits = reinterpret_cast<uintptr_t>(a.logits);
  watch.element_size = a.element_size;
  watch.row_stride = a.logits_row_stride;
  watch.column_stride = a.logits_column_stride;
  watch.row_count = a.row_count;
  watch.column_count = a.column_count;
}

void run_thread(void (*kernel)(Arguments), const Arguments& arguments, unsigned number) {
  threadIdx = {number, 0};
  steps = 0;
  try {
    kernel(arguments);
  } catch (const Endless&) {
    steps = 0;
    faulty("a loop without end", arguments.logits, false);
  }
}

void run(void (*kernel)(Arguments), const Arguments& arguments, Position grid, unsigned threads) {
  gridDim = {{grid.x}, {grid.y}};
  blockDim = {threads, 1};
  for (unsigned y = grid.y; y-- > 0;)
    for (unsigned x = 0; x < grid.x && !watch.fault[0]; ++x) {
      blockIdx = {x, y};
      // 37 shares no divisor with a power of two: every thread once.
      for (unsigned i = 0; i < threads && !watch.fault[0]; ++i) run_thread(kernel, arguments, i * 37 % threads);
    }
}

bool is_too_new(const char* ptx) {
  int major = 0, minor = 0;
  const char* const header = std::strstr(ptx, ".version ");
  if (!header || std::sscanf(header, ".version %d.%d", &major, &minor) != 2) return false;
  return 10 * major + minor > newest_ptx;
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return SUCCESS; }

int cuDriverGetVersion(int* version) { return *version = driver_version, SUCCESS; }

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < DEVICES ? SUCCESS : INVALID_DEVICE;
}

int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : attribute == 16 ? 8 : 0;
  return SUCCESS;
}

int cuDevicePrimaryCtxRetain(void** context, int device) { return *context = &contexts[device], SUCCESS; }

int cuCtxGetCurrent(void** context) { return *context = current.empty() ? nullptr : current.back(), SUCCESS; }

int cuCtxSetCurrent(void* context) {
  if (!current.empty()) current.pop_back();
  return current.push_back(context), SUCCESS;
}

int cuCtxPushCurrent_v2(void* context) { return current.push_back(context), SUCCESS; }

int cuCtxPopCurrent_v2(void** context) {
  if (current.empty()) return INVALID_CONTEXT;
  *context = current.back();
  return current.pop_back(), SUCCESS;
}

int cuGetErrorString(int result, const char** text) {
  *text = result == INVALID_IMAGE     ? "device kernel image is invalid"
          : result == UNSUPPORTED_PTX ? "the provided PTX was compiled with an unsupported toolchain"
          : result == INVALID_DEVICE  ? "invalid device ordinal"
          : result == ILLEGAL_ACCESS  ? fault.c_str()
                                      : "invalid argument";
  return SUCCESS;
}

int cuLibraryLoadData(void** library, const void* image, void*, void*, unsigned, void*, void*, unsigned) {
  const char* const text = static_cast<const char*>(image);
  const bool is_ptx = std::strstr(text, ".target") != nullptr;
  const bool is_machine_code = !std::memcmp(text, "\x7f" "ELF", 4);
  if (!is_ptx && !(is_machine_code && takes_machine_code)) return INVALID_IMAGE;
  if (is_ptx && is_too_new(text)) return UNSUPPORTED_PTX;
  *library = contexts;
  return SUCCESS;
}

int cuLibraryGetKernel(void** kernel, void*, const char* name) {
  for (const EntryPoint& entry : entry_points)
    if (!std::strcmp(entry.name, name)) return *kernel = const_cast<EntryPoint*>(&entry), SUCCESS;
  return NOT_FOUND;
}

int cuLaunchKernel(void* kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared, void* stream, void** parameters, void** extra) {
  if (current.empty()) return INVALID_CONTEXT;
  if (!kernel) return INVALID_HANDLE;
  if (!grid_x || !grid_y || grid_y > 65535 || grid_z != 1 || block_x != 256 || block_y != 1 || block_z != 1 || shared || extra)
    return INVALID_VALUE;
  const Arguments arguments = *static_cast<Arguments*>(parameters[0]);
  watch_for(arguments);
  run(static_cast<EntryPoint*>(kernel)->function, arguments, {grid_x, grid_y}, block_x);
  const int device = static_cast<int>(static_cast<char*>(current.back()) - contexts);
  last = {device, stream, grid_x, grid_y, watch.loads, watch.wide_loads, watch.stores, watch.wide_stores};
  fault = watch.fault;
  return fault.empty() ? SUCCESS : ILLEGAL_ACCESS;
}

// What no driver has: for tests.
void standInPretend(int version, int ptx, int compute_capability, int machine_code) {
  driver_version = version;
  newest_ptx = ptx;
  capability = compute_capability;
  takes_machine_code = machine_code;
}
void standInLastLaunch(Launch* launch) { *launch = last; }
void* standInCurrentContext() { return current.empty() ? nullptr : current.back(); }
size_t standInArgumentsSize() { return sizeof(Arguments); }
}
