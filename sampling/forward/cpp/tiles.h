// Products of tiles by AMX: 16 lines of 64 bytes by 16 outputs, where the CPU has them and the system lets us.
#pragma once
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

// All eight tiles whole, for as long as this lives.
class WholeTiles {
 public:
  WholeTiles() {
    struct {
      uint8_t palette = 1, start = 0, none[14] = {};
      uint16_t bytes[16] = {};
      uint8_t lines[16] = {};
    } shape;
    for (int t = 0; t < 8; ++t) shape.bytes[t] = 64, shape.lines[t] = LINES;
    _tile_loadconfig(&shape);
  }
  ~WholeTiles() { _tile_release(); }
};

}  // namespace
#else
#define TILES 0
#endif
