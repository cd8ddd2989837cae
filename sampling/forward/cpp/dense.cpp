// Products of rows in float32 with weights in float32 or bfloat16. A sum goes over the inputs from the first to the
// last, so that no row's sums depend on another row, or on the number of threads: a thread has some outputs of all rows.
// Rows of a model in bfloat16 are rounded to it and go by AMX, where the CPU has that; the order is AMX's then.
#define DOT_TILES(sums, lines, weights) _tile_dpbf16ps(sums, lines, weights)
#include "lanes.h"
#include "tiles.h"

#include <algorithm>
#include <vector>

// As Python fills it: see dense.py. Outputs are filled up to whole blocks, inputs in bfloat16 to whole tiles.
struct Matrix {
  const NUMBER* weights;  // [blocks, filled / SIDE, WIDTH, SIDE]
  int64_t outputs, inputs, filled, rounds;  // rounds: whether rows may be rounded to bfloat16
};

namespace {

#if defined(__AVX512F__)
constexpr int TALLEST = 6;  // rows that a loaded weight is multiplied with
constexpr int BLOCKS = 4;   // of outputs, whose weights stay in the nearest cache for all rows
#else
constexpr int TALLEST = 3;
constexpr int BLOCKS = 2;
#endif
constexpr int SIDE = 4 / sizeof(NUMBER);  // inputs of an output that lie side by side
constexpr int64_t SMALL = 200000;         // multiplications that one thread does sooner than two begin
constexpr int64_t AHEAD = 1024;           // bytes before they are needed, weights are fetched

// The weights of SIDE inputs, an input each.
inline void widen(const float* from, Lanes* to) { to[0] = load(from); }

inline void widen(const bfloat16* from, Lanes* to) {
  Bits both;
  std::memcpy(&both, from, sizeof both);
  to[0] = reinterpret_cast<Lanes>(both << 16);
  to[1] = reinterpret_cast<Lanes>(both & 0xffff0000u);
}

// The numbers of a row that a block has.
inline void write(const Matrix& of, int64_t block, float* row, const void* numbers) {
  const int64_t first = block * WIDTH, count = std::min<int64_t>(WIDTH, of.outputs - first);
  std::memcpy(row + first, numbers, count * sizeof(float));
}

// R rows with V blocks of outputs.
template <int R, int V>
void tile(const Matrix& of, const float* x, int64_t block, float* out) {
  const NUMBER* weights = of.weights + block * of.filled * WIDTH;
  Lanes sums[R][V] = {};
  for (int64_t k = 0; k < of.inputs; k += SIDE) {
    Lanes wide[V][SIDE];
    for (int v = 0; v < V; ++v) {
      const NUMBER* at = weights + (v * of.filled + k) * WIDTH;
      __builtin_prefetch(reinterpret_cast<const char*>(at) + AHEAD);
      widen(at, wide[v]);
    }
    for (int s = 0; s < SIDE && k + s < of.inputs; ++s)
      for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) sums[r][v] += x[r * of.inputs + k + s] * wide[v][s];
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) write(of, block + v, out + r * of.outputs, &sums[r][v]);
}

// R rows with the blocks from begin to end.
template <int R>
void tiles(const Matrix& of, const float* x, int64_t begin, int64_t end, float* out) {
  for (; begin + BLOCKS <= end; begin += BLOCKS) tile<R, BLOCKS>(of, x, begin, out);
  for (; begin < end; ++begin) tile<R, 1>(of, x, begin, out);
}

void some(const Matrix& of, const float* x, int64_t rows, int64_t begin, int64_t end, float* out) {
  switch (rows) {
    case 1: return tiles<1>(of, x, begin, end, out);
    case 2: return tiles<2>(of, x, begin, end, out);
    case 3: return tiles<3>(of, x, begin, end, out);
    case 4: return tiles<4>(of, x, begin, end, out);
    case 5: return tiles<5>(of, x, begin, end, out);
    default: return tiles<6>(of, x, begin, end, out);
  }
}

#if TILES
constexpr int INPUTS = STEP / sizeof(bfloat16);  // of a tile

void enter(const Matrix& of, const float* x, int64_t r, bfloat16* line) {
  int64_t i = 0;
  for (; i + WIDTH <= of.inputs; i += WIDTH) store(line + i, load(x + r * of.inputs + i));
  if (i == of.filled) return;
  float rest[INPUTS] = {};
  std::copy(x + r * of.inputs + i, x + (r + 1) * of.inputs, rest);
  for (int64_t j = 0; i + j < of.filled; j += WIDTH) store(line + i + j, load(rest + j));
}

bool by_tiles(const Matrix& of, const float* x, float* out, int64_t rows, int64_t threads) {
  if (!of.rounds || rows == 0 || !tiles_allowed()) return false;
  static thread_local std::vector<Line<bfloat16>> entered;
  const int64_t blocks = (of.outputs + WIDTH - 1) / WIDTH, steps = of.filled / INPUTS;
  const size_t needed = (rows + LINES) * steps;  // whole tiles
  if (entered.size() < needed) entered.resize(needed);
  bfloat16* lines = entered.data()->numbers;  // of this thread, for all
  const auto each = [&](int64_t block, int64_t row, int64_t count, const float* sums) {
    for (int64_t r = 0; r < count; ++r) write(of, block, out + (row + r) * of.outputs, sums + r * NEXT);
  };
  if (rows == 1) enter(of, x, 0, lines);
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    if (rows > 1) {
#pragma omp for schedule(static)
      for (int64_t r = 0; r < rows; ++r) enter(of, x, r, lines + r * of.filled);
    }
#pragma omp for schedule(static, 1)
    for (int64_t t = 0; t < threads; ++t)
      multiply_tiles<float>(lines, rows, of.weights, steps, blocks * t / threads, blocks * (t + 1) / threads, each);
  }
  return true;
}
#else
bool by_tiles(const Matrix&, const float*, float*, int64_t, int64_t) { return false; }
#endif

}  // namespace

// x: [rows, inputs]; out: [rows, outputs]. threads: at most.
extern "C" void multiply(const Matrix* of, const float* x, float* out, int64_t rows, int64_t threads) {
  const int64_t blocks = (of->outputs + WIDTH - 1) / WIDTH, groups = (blocks + BLOCKS - 1) / BLOCKS;
  if (of->outputs * of->inputs * rows < SMALL) threads = 1;
  if (sizeof(NUMBER) == 2 && by_tiles(*of, x, out, rows, threads)) return;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t row = 0; row < rows; row += TALLEST)
      some(*of, x + row * of->inputs, std::min<int64_t>(TALLEST, rows - row), g * BLOCKS,
           std::min(blocks, (g + 1) * BLOCKS), out + row * of->outputs);
}
