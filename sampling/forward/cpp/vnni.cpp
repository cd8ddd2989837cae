// Products of rows in float32 with weights of 4 or 8 bits, by the dot products of bytes that a CPU has (VNNI).
//
// A row enters as whole numbers of 16 bits, in two parts of 8: a high one and a low one. Both parts are multiplied by
// the levels of the weights, exactly. GROUPED: 32 inputs share a scale of the row, and a step of each output; groups
// are added up from the first to the last. Else a row has one scale, and so has each output. No row's sums depend on
// another row, or on the number of threads: a thread has some outputs of all rows. Where a CPU has AMX, its tiles add up
// the same whole numbers.
#define DOT_TILES(sums, lines, weights) _tile_dpbsud(sums, lines, weights)
#include "tiles.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#define WIDTH 16
#elif defined(__AVXVNNI__) && defined(__F16C__) && defined(__FMA__)
#define WIDTH 8
#else
#define WIDTH 0
#endif

// How many outputs lie side by side; 0 where this CPU lacks the instructions.
extern "C" int64_t lanes() { return WIDTH; }

#define BY_TILES (TILES && WIDTH == 16 && !GROUPED)

#if WIDTH
namespace {

constexpr int GROUP = 32;
constexpr int PARTS = 2;
constexpr int ROWS = 48;           // that enter at once
constexpr int BLOCKS = 4;          // of outputs, whose weights stay in the nearest cache for all those rows
constexpr int64_t SMALL = 200000;  // multiplications that one thread does sooner than two begin
constexpr float HIGHEST = 127 * 256;
constexpr float TINY = 1e-30f;

#if WIDTH == 16
typedef __m512 Lanes;
typedef __m512i Whole;
constexpr int TALLEST = 6;  // rows that a loaded weight is multiplied with
constexpr int TWO = GROUPED ? 2 : 4, THREE = TWO, FOUR = GROUPED ? 1 : 2;  // blocks that so many rows read at once
inline Whole load(const void* from) { return _mm512_loadu_si512(from); }
inline Whole spread(int32_t x) { return _mm512_set1_epi32(x); }
inline Lanes spread(float x) { return _mm512_set1_ps(x); }
inline void dot(Whole& sum, Whole levels, const int8_t* quad) {  // the intrinsic takes three instructions for this one
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(levels), "m"(*reinterpret_cast<const int32_t*>(quad)));
}
inline Whole low(Whole both) { return _mm512_and_si512(both, _mm512_set1_epi8(15)); }
inline Whole high(Whole both) { return low(_mm512_srli_epi16(both, 4)); }
inline Whole plus(Whole a, Whole b) { return _mm512_add_epi32(a, b); }
inline Whole minus(Whole a, Whole b) { return _mm512_sub_epi32(a, b); }
inline Whole times256(Whole a) { return _mm512_slli_epi32(a, 8); }
inline Whole over256(Whole a) { return _mm512_srai_epi32(a, 8); }
inline Lanes floats(Whole a) { return _mm512_cvtepi32_ps(a); }
inline Whole nearest(Lanes a) { return _mm512_cvtps_epi32(a); }
inline Lanes product(Lanes a, Lanes b) { return _mm512_mul_ps(a, b); }
inline Lanes fused(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }
inline Lanes larger(Lanes a, Lanes b) { return _mm512_max_ps(a, b); }
inline Lanes size(Lanes a) { return _mm512_abs_ps(a); }
inline Lanes half(const uint16_t* from) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)from)); }
inline void narrow(int8_t* to, Whole a) { _mm_storeu_si128((__m128i*)to, _mm512_cvtepi32_epi8(a)); }
#else
typedef __m256 Lanes;
typedef __m256i Whole;
constexpr int TALLEST = 3;
constexpr int TWO = 2, THREE = 1, FOUR = 1;
inline Whole load(const void* from) { return _mm256_loadu_si256((const __m256i*)from); }
inline Whole spread(int32_t x) { return _mm256_set1_epi32(x); }
inline Lanes spread(float x) { return _mm256_set1_ps(x); }
inline void dot(Whole& sum, Whole levels, const int8_t* quad) {
  int32_t four;
  std::memcpy(&four, quad, sizeof four);
  sum = _mm256_dpbusd_avx_epi32(sum, levels, spread(four));
}
inline Whole low(Whole both) { return _mm256_and_si256(both, _mm256_set1_epi8(15)); }
inline Whole high(Whole both) { return low(_mm256_srli_epi16(both, 4)); }
inline Whole plus(Whole a, Whole b) { return _mm256_add_epi32(a, b); }
inline Whole minus(Whole a, Whole b) { return _mm256_sub_epi32(a, b); }
inline Whole times256(Whole a) { return _mm256_slli_epi32(a, 8); }
inline Whole over256(Whole a) { return _mm256_srai_epi32(a, 8); }
inline Lanes floats(Whole a) { return _mm256_cvtepi32_ps(a); }
inline Whole nearest(Lanes a) { return _mm256_cvtps_epi32(a); }
inline Lanes product(Lanes a, Lanes b) { return _mm256_mul_ps(a, b); }
inline Lanes fused(Lanes a, Lanes b, Lanes c) { return _mm256_fmadd_ps(a, b, c); }
inline Lanes larger(Lanes a, Lanes b) { return _mm256_max_ps(a, b); }
inline Lanes size(Lanes a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
inline Lanes half(const uint16_t* from) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from)); }
inline void narrow(int8_t* to, Whole a) {
  int32_t each[WIDTH];
  _mm256_storeu_si256((__m256i*)each, a);
  for (int i = 0; i < WIDTH; ++i) to[i] = static_cast<int8_t>(each[i]);
}
#endif

// As Python fills it: see vnni.py. Outputs and inputs are filled up to whole blocks and quads.
struct Matrix {
  const uint8_t* levels;   // [blocks, inputs / 4, WIDTH, 4], from 0; of 4 bits the next four inputs in the upper half
  const uint16_t* steps;   // GROUPED: [blocks, groups, WIDTH]
  const uint16_t* lowest;  // the same, in 4 bits: what level 0 means
  const float* scale;      // else: [blocks * WIDTH]
  int64_t outputs, inputs, filled;  // filled: inputs with what fills them up
  float factor;            // GROUPED: of steps and lowest values
};

// Rows that have entered.
struct Entered {
  std::vector<Line<int8_t>> lines;  // room for the parts
  int8_t* parts;               // [rows, PARTS, filled]
  std::vector<int32_t> whole;  // [rows, groups, PARTS], the sums of its numbers
  std::vector<float> scale;    // [rows, groups]
  std::vector<float> sum;      // [rows, groups], of what its numbers stand for
};

inline float most(Lanes lanes) {
  float each[WIDTH];
  std::memcpy(each, &lanes, sizeof lanes);
  return *std::max_element(each, each + WIDTH);
}

inline int32_t total(Whole lanes) {
  int32_t each[WIDTH], sum = 0;
  std::memcpy(each, &lanes, sizeof lanes);
  for (int32_t one : each) sum += one;
  return sum;
}

inline Lanes floats(const float* from) {
  Lanes found;
  std::memcpy(&found, from, sizeof found);
  return found;
}

// A number that is none stays none: the row's scale is none then.
inline float lost(const float* from, int64_t count) {
  Lanes sum = spread(0.0f);
  for (int64_t i = 0; i < count; i += WIDTH) sum = fused(floats(from + i), spread(0.0f), sum);
  float each[WIDTH], all = 0.0f;
  std::memcpy(each, &sum, sizeof sum);
  for (float one : each) all += one;
  return all;
}

// Room for so many rows, and for whole tiles of them.
void make_room(const Matrix& of, int64_t rows, Entered& in) {
  constexpr int SPARE = 16;
  const size_t groups = rows * (of.filled / (GROUPED ? GROUP : of.filled)), parts = (rows + SPARE) * PARTS * of.filled;
  if (in.lines.size() * sizeof(in.lines[0]) < parts) in.lines.resize(parts / sizeof(in.lines[0]) + 1);
  in.parts = in.lines.data()->numbers;
  if (in.scale.size() < groups) {
    in.whole.resize(groups * PARTS);
    in.scale.resize(groups);
    in.sum.resize(groups);
  }
}

// row: its numbers, filled up with zeros.
void enter(const Matrix& of, const float* row, int64_t r, Entered& in) {
  const int64_t span = GROUPED ? GROUP : of.filled, groups = of.filled / span;
  for (int64_t g = 0; g < groups; ++g) {
    const float* from = row + g * span;
    Lanes largest = spread(TINY);
    for (int64_t i = 0; i < span; i += WIDTH) largest = larger(size(floats(from + i)), largest);
    const float top = most(largest);
    const Lanes by = spread(HIGHEST / top);
    int8_t* to = &in.parts[r * PARTS * of.filled + g * span];
    Whole upper_sum = spread(0), lower_sum = spread(0);
    for (int64_t i = 0; i < span; i += WIDTH) {
      const Whole number = nearest(product(floats(from + i), by));
      const Whole upper = over256(plus(number, spread(128))), lower = minus(number, times256(upper));
      narrow(to + i, upper);
      narrow(to + of.filled + i, lower);
      upper_sum = plus(upper_sum, upper);
      lower_sum = plus(lower_sum, lower);
    }
    const int64_t at = r * groups + g;
    const int32_t upper = in.whole[at * PARTS] = total(upper_sum), lower = in.whole[at * PARTS + 1] = total(lower_sum);
    in.scale[at] = top / HIGHEST + lost(from, span);
    in.sum[at] = static_cast<float>(256 * upper + lower) * in.scale[at];
  }
}

void enter_row(const Matrix& of, const float* x, int64_t r, Entered& in) {
  if (of.inputs == of.filled) return enter(of, x + r * of.inputs, r, in);
  std::vector<float> row(of.filled, 0.0f);
  std::copy_n(x + r * of.inputs, of.inputs, row.begin());
  enter(of, row.data(), r, in);
}

// Levels of 8 bits count from 128. whole: the sum of the row's numbers.
inline Whole centred(Whole sum, int32_t whole) { return BITS == 8 ? minus(sum, spread(128 * whole)) : sum; }

// What sums come to, where all inputs of a row share a scale.
inline Lanes scaled(Whole upper, Whole lower, float scale) {
  return product(fused(floats(upper), spread(256.0f), floats(lower)), spread(scale));
}

// The numbers of a row that a block has.
inline void write(const Matrix& of, int64_t block, float* row, Lanes lanes) {
  const int64_t first = block * WIDTH, count = std::min<int64_t>(WIDTH, of.outputs - first);
  lanes = product(lanes, GROUPED ? spread(of.factor) : floats(of.scale + first));
  std::memcpy(row + first, &lanes, count * sizeof(float));
}

// R rows with V blocks of outputs.
template <int R, int V>
void tile(const Matrix& of, const Entered& in, int64_t row, int64_t block, float* out) {
  const int64_t span = GROUPED ? GROUP : of.filled, groups = of.filled / span, quads = of.filled / 4;
  const int64_t bytes = WIDTH * of.filled * BITS / 8;
  const int8_t* parts = &in.parts[row * PARTS * of.filled];
  Lanes y[R][V];
  for (auto& of_row : y)
    for (auto& lanes : of_row) lanes = spread(0.0f);
  for (int64_t g = 0; g < groups; ++g) {
    Whole sums[R][V][PARTS];
    for (auto& of_row : sums)
      for (auto& of_block : of_row)
        for (auto& sum : of_block) sum = spread(0);
    for (int64_t q = g * span / 4; q < (g + 1) * span / 4; q += 8 / BITS) {
      for (int v = 0; v < V; ++v) {
        const uint8_t* at = of.levels + (block + v) * bytes + q * WIDTH * BITS / 2;
        _mm_prefetch(reinterpret_cast<const char*>(at + V * bytes), _MM_HINT_T0);  // what comes behind these blocks
        const Whole both = load(at);
        const Whole first = BITS == 4 ? low(both) : both, second = high(both);
        for (int r = 0; r < R; ++r)
          for (int p = 0; p < PARTS; ++p) {
            const int8_t* quad = parts + ((r * PARTS + p) * quads + q) * 4;
            dot(sums[r][v][p], first, quad);
            if (BITS == 4) dot(sums[r][v][p], second, quad + 4);
          }
      }
    }
    for (int v = 0; v < V; ++v) {
      const int64_t at = ((block + v) * groups + g) * WIDTH;
      for (int r = 0; r < R; ++r) {
        const int32_t* whole = &in.whole[((row + r) * groups + g) * PARTS];
        const Lanes scale = spread(in.scale[(row + r) * groups + g]);
        const Whole upper = centred(sums[r][v][0], whole[0]), lower = centred(sums[r][v][1], whole[1]);
        if (GROUPED) {
          const Lanes number = product(floats(plus(times256(upper), lower)), scale);
          y[r][v] = fused(number, half(of.steps + at), y[r][v]);
          if (BITS == 4) y[r][v] = fused(spread(in.sum[(row + r) * groups + g]), half(of.lowest + at), y[r][v]);
        } else {
          y[r][v] = scaled(upper, lower, in.scale[row + r]);
        }
      }
    }
  }
  for (int v = 0; v < V; ++v)
    for (int r = 0; r < R; ++r) write(of, block + v, out + (row + r) * of.outputs, y[r][v]);
}

// R rows with the blocks from begin to end.
template <int R, int V>
int64_t tiles(const Matrix& of, const Entered& in, int64_t row, int64_t begin, int64_t end, float* out) {
  for (; begin + V <= end; begin += V) tile<R, V>(of, in, row, begin, out);
  for (; begin < end; ++begin) tile<R, 1>(of, in, row, begin, out);
  return row + R;
}

#if BY_TILES
constexpr int FEWEST = 5;  // rows from which on tiles are faster

// The rows from begin to end with the blocks from low to high.
void tiled(const Matrix& of, const Entered& in, int64_t begin, int64_t end, int64_t low, int64_t high, float* out) {
  const int8_t* lines = in.parts + begin * PARTS * of.filled;
  const auto each = [&](int64_t block, int64_t line, int64_t count, const int32_t* sums) {
    for (int64_t r = 0; r < count; r += PARTS, sums += PARTS * NEXT) {
      const int64_t row = begin + (line + r) / PARTS;
      const int32_t* whole = &in.whole[row * PARTS];
      const Whole upper = centred(load(sums), whole[0]), lower = centred(load(sums + NEXT), whole[1]);
      write(of, block, out + row * of.outputs, scaled(upper, lower, in.scale[row]));
    }
  };
  multiply_tiles<int32_t>(lines, (end - begin) * PARTS, of.levels, of.filled / STEP, low, high, each);
}
#endif

// All rows with the blocks from low to high.
void all(const Matrix& of, const Entered& in, int64_t rows, int64_t low, int64_t high, float* out) {
  for (int64_t top = 0; top < rows; top += ROWS) {
    const int64_t bottom = std::min<int64_t>(top + ROWS, rows);
#if BY_TILES
    if (bottom - top >= FEWEST && tiles_allowed() && of.filled % STEP == 0) {
      tiled(of, in, top, bottom, low, high, out);
      continue;
    }
#endif
    for (int64_t begin = low; begin < high; begin += BLOCKS) {
      const int64_t end = std::min(begin + BLOCKS, high);
      for (int64_t row = top; row < bottom;) {
        switch (std::min<int64_t>(TALLEST, bottom - row)) {
          case 1: row = tiles<1, 4>(of, in, row, begin, end, out); break;
          case 2: row = tiles<2, TWO>(of, in, row, begin, end, out); break;
          case 3: row = tiles<3, THREE>(of, in, row, begin, end, out); break;
          case 4: row = tiles<4, FOUR>(of, in, row, begin, end, out); break;
          case 5: row = tiles<5, 1>(of, in, row, begin, end, out); break;
          default: row = tiles<6, 1>(of, in, row, begin, end, out);
        }
      }
    }
  }
}

}  // namespace

// x: [rows, inputs]; out: [rows, outputs]. threads: at most.
extern "C" void multiply(const Matrix* of, const float* x, float* out, int64_t rows, int64_t threads) {
  static thread_local Entered entered;
  Entered& in = entered;  // of this thread, for all
  const int64_t blocks = (of->outputs + WIDTH - 1) / WIDTH;
  if (of->outputs * of->inputs * rows < SMALL) threads = 1;
  make_room(*of, rows, in);
  if (rows == 1) enter_row(*of, x, 0, in);
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    if (rows > 1) {
#pragma omp for schedule(static)
      for (int64_t r = 0; r < rows; ++r) enter_row(*of, x, r, in);
    }
#pragma omp for schedule(static, 1)
    for (int64_t t = 0; t < threads; ++t) all(*of, in, rows, blocks * t / threads, blocks * (t + 1) / threads, out);
  }
}
#endif
