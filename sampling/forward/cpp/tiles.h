// Products of tiles by AMX: 16 lines of 64 bytes by 16 outputs, where the CPU has them and the system lets us.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__AMX_TILE__) && defined(__linux__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#define TILES 1

namespace {

constexpr int LINES = 16;

inline bool tiles_allowed() {  // asked for once a process
  constexpr int ASK = 0x1023, TILE_DATA = 18;
  static const bool allowed = syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
  return allowed;
}

// The shapes of tiles, for as long as this lives: sums in 0 to 3, lines in 4 and 5, weights in 6 and 7. Of one tile of
// lines or two so many are there: what is not there costs nothing.
class Tiles {
 public:
  explicit Tiles(int64_t lines) {
    struct {
      uint8_t palette = 1, start = 0, none[14] = {};
      uint16_t bytes[16] = {};
      uint8_t lines[16] = {};
    } shape;
    const uint8_t first = std::min<int64_t>(LINES, lines), second = std::max<int64_t>(1, std::min<int64_t>(LINES, lines - LINES));
    const uint8_t there[8] = {first, first, second, second, first, second, LINES, LINES};
    for (int t = 0; t < 8; ++t) shape.bytes[t] = 64, shape.lines[t] = there[t];
    _tile_loadconfig(&shape);
  }
  ~Tiles() { _tile_release(); }
};

}  // namespace
#else
#define TILES 0
#endif
