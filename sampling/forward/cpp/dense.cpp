// Products of rows in float32 with weights in float32 or bfloat16. A sum goes over the inputs from the first to the
// last, so that no row's sums depend on another row, or on the number of threads: a thread has some outputs of all rows.
#include "lanes.h"

#include <algorithm>

// As Python fills it: see dense.py. Outputs are filled up to whole blocks.
struct Matrix {
  const NUMBER* weights;  // [blocks, inputs, WIDTH]
  int64_t outputs, inputs;
};

namespace {

#if defined(__AVX512F__)
constexpr int TALLEST = 6;  // rows that a loaded weight is multiplied with
constexpr int BLOCKS = 4;   // of outputs, whose weights stay in the nearest cache for all rows
#else
constexpr int TALLEST = 3;
constexpr int BLOCKS = 2;
#endif
constexpr int64_t SMALL = 200000;  // multiplications that one thread does sooner than two begin
constexpr int64_t AHEAD = 16;      // inputs before they are needed, weights are fetched

// R rows with V blocks of outputs.
template <int R, int V>
void tile(const Matrix& of, const float* x, int64_t block, float* out) {
  const NUMBER* weights = of.weights + block * of.inputs * WIDTH;
  Lanes sums[R][V] = {};
  for (int64_t k = 0; k < of.inputs; ++k) {
    Lanes wide[V];
    for (int v = 0; v < V; ++v) {
      const NUMBER* at = weights + (v * of.inputs + k) * WIDTH;
      __builtin_prefetch(at + AHEAD * WIDTH);
      wide[v] = load(at);
    }
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v) sums[r][v] += x[r * of.inputs + k] * wide[v];
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) {
      const int64_t first = (block + v) * WIDTH, count = std::min<int64_t>(WIDTH, of.outputs - first);
      std::memcpy(out + r * of.outputs + first, &sums[r][v], count * sizeof(float));
    }
}

// R rows with the blocks from begin to end.
template <int R>
void tiles(const Matrix& of, const float* x, int64_t begin, int64_t end, float* out) {
  for (; begin + BLOCKS <= end; begin += BLOCKS) tile<R, BLOCKS>(of, x, begin, out);
  for (; begin < end; ++begin) tile<R, 1>(of, x, begin, out);
}

void rows_of(const Matrix& of, const float* x, int64_t rows, int64_t begin, int64_t end, float* out) {
  switch (rows) {
    case 1: return tiles<1>(of, x, begin, end, out);
    case 2: return tiles<2>(of, x, begin, end, out);
    case 3: return tiles<3>(of, x, begin, end, out);
    case 4: return tiles<4>(of, x, begin, end, out);
    case 5: return tiles<5>(of, x, begin, end, out);
    default: return tiles<6>(of, x, begin, end, out);
  }
}

}  // namespace

// x: [rows, inputs]; out: [rows, outputs]. threads: at most.
extern "C" void multiply(const Matrix* of, const float* x, float* out, int64_t rows, int64_t threads) {
  const int64_t groups = (of->outputs + BLOCKS * WIDTH - 1) / (BLOCKS * WIDTH), blocks = (of->outputs + WIDTH - 1) / WIDTH;
  if (of->outputs * of->inputs * rows < SMALL) threads = 1;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t row = 0; row < rows; row += TALLEST)
      rows_of(*of, x + row * of->inputs, std::min<int64_t>(TALLEST, rows - row), g * BLOCKS,
              std::min(blocks, (g + 1) * BLOCKS), out + row * of->outputs);
}
