// Products of tiles by AMX, where the CPU has them and the system lets us: 16 lines of 64 bytes by 16 outputs.
//
// Who includes this defines DOT_TILES(sums, lines, weights), the instruction that it multiplies by.
#pragma once
#include <algorithm>
#include <cstdint>

namespace {

// Numbers of a size that tiles are read from without crossing lines of a cache.
template <class T>
struct alignas(64) Line {
  T numbers[64 / sizeof(T)];
};

}  // namespace

#if defined(__AMX_TILE__) && defined(__AMX_INT8__) && defined(__AMX_BF16__) && defined(__linux__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#define TILES 1

namespace {

constexpr int LINES = 16;                  // of a tile, and outputs of a block
constexpr int64_t STEP = 64;               // bytes of a line
constexpr int DEEP = 2;                    // tiles of lines
constexpr int BROAD = 2;                   // blocks of outputs
constexpr int64_t NEXT = BROAD * LINES;    // sums from a line to the next

inline bool tiles_allowed() {  // asked for once a process
  constexpr int ASK = 0x1023, TILE_DATA = 18;
  static const bool allowed = syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
  return allowed;
}

// The shapes of tiles, for as long as this lives: sums in 0 to 3, lines in 4 and 5, weights in 6 and 7. Lines beyond
// those of one tile or two take no time.
class Tiles {
 public:
  explicit Tiles(int64_t lines) {
    struct {
      uint8_t palette = 1, start = 0, none[14] = {};
      uint16_t bytes[16] = {};
      uint8_t lines[16] = {};
    } shape;
    const uint8_t first = std::clamp<int64_t>(lines, 1, LINES), second = std::clamp<int64_t>(lines - LINES, 1, LINES);
    const uint8_t there[8] = {first, first, second, second, first, second, LINES, LINES};
    for (int t = 0; t < 8; ++t) shape.bytes[t] = STEP, shape.lines[t] = there[t];
    _tile_loadconfig(&shape);
  }
  ~Tiles() { _tile_release(); }
};

// What lies in memory behind two blocks of weights is on its way while these are multiplied.
inline void fetch_next(const char* weights, int64_t bytes) {
  for (int64_t i = 0; i < LINES * STEP; i += STEP) _mm_prefetch(weights + BROAD * LINES * bytes + i, _MM_HINT_T0);
}

// The sums of lines in one tile or two with two blocks: `[DEEP * LINES, BROAD, LINES]`.
template <class T>
void sum_tiles(const char* lines, bool deep, const char* first, const char* second, int64_t steps, T* sums) {
  const int64_t bytes = steps * STEP;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = 0; k < bytes; k += STEP) {
    fetch_next(first + k * LINES, bytes);
    fetch_next(second + k * LINES, bytes);
    _tile_loadd(4, lines + k, bytes);
    _tile_loadd(6, first + k * LINES, STEP);
    DOT_TILES(0, 4, 6);
    _tile_loadd(7, second + k * LINES, STEP);
    DOT_TILES(1, 4, 7);
    if (deep) {
      _tile_loadd(5, lines + LINES * bytes + k, bytes);
      DOT_TILES(2, 5, 6);
      DOT_TILES(3, 5, 7);
    }
  }
  _tile_stored(0, sums, NEXT * sizeof(T));
  _tile_stored(1, sums + LINES, NEXT * sizeof(T));
  if (deep) {
    _tile_stored(2, sums + LINES * NEXT, NEXT * sizeof(T));
    _tile_stored(3, sums + LINES * NEXT + LINES, NEXT * sizeof(T));
  }
}

// So many lines with the blocks from low to high, each of `steps` tiles. each: told a block, the first of some lines, how
// many they are, and their sums, NEXT from a line to the next. T: of sums.
template <class T, class Each>
void multiply_tiles(const void* from, int64_t count, const void* weights, int64_t steps, int64_t low, int64_t high,
                    const Each& each) {
  const char *lines = static_cast<const char*>(from), *blocks = static_cast<const char*>(weights);
  const int64_t bytes = steps * STEP;
  alignas(64) T sums[DEEP * LINES * NEXT];
  const Tiles shaped(count);
  for (int64_t block = low; block < high; block += BROAD) {
    const char *first = blocks + block * LINES * bytes, *second = block + 1 < high ? first + LINES * bytes : first;
    for (int64_t line = 0; line < count; line += DEEP * LINES) {
      const int64_t some = std::min<int64_t>(DEEP * LINES, count - line);
      sum_tiles(lines + line * bytes, some > LINES, first, second, steps, sums);
      for (int64_t v = 0; v < std::min<int64_t>(BROAD, high - block); ++v) each(block + v, line, some, sums + v * LINES);
    }
  }
}

}  // namespace
#else
#define TILES 0
#endif
