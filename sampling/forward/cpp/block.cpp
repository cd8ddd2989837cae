// A block of a decoder over flat rows, in one call: norms, products, the rotary turn, attention, and the gated MLP.
//
// Products and attention are other kernels of ours, whose addresses a block has. What lies between them is computed
// here in float32, row by row: no row depends on another. Rows are stored as NUMBER between blocks and in the cache.
#include "lanes.h"

#include <algorithm>
#include <cmath>
#include <vector>

typedef void (*Multiply)(const void* matrix, const float* x, float* out, int64_t rows, int64_t threads);
typedef void (*Attend)(const void* layout, const void* query, const void* keys, const void* values, void* out);

// As Python fills them: see block.py. A norm without weights leaves rows as they are.
struct Product {
  Multiply multiply;
  const void* matrix;
  const float* bias;  // or null
  int64_t outputs;
};

struct Norm {
  const float* weight;
  int64_t width;
  float eps;
};

struct Block {
  Product qkv, out, gate_up, down;
  Norm attention_norm, q_norm, k_norm, attention_after, mlp_norm, mlp_after;
  Attend attend;
  const NUMBER *cos, *sin;  // [window, dim]; sin has the sign of the turn
  int64_t width, inputs, heads, kv_heads, dim, gelu;  // inputs: of qkv
  float residual_scale;
};

// The rows of a forward: where they stand in the text, and where their keys and values go.
struct Rows {
  const int64_t *positions, *places;
  int64_t count, row_step, head_step, head_rows, threads;
};

namespace {

constexpr int64_t SMALL = 16;  // rows that one thread prepares sooner than two begin

struct Scratch {
  std::vector<float> read, raw, gated, held;
  std::vector<NUMBER> query, attended;
};

template <class Each>
void each_row(const Rows& rows, const Each& each) {
#pragma omp parallel for num_threads(rows.threads) schedule(static) if (rows.count >= SMALL)
  for (int64_t row = 0; row < rows.count; ++row) each(row);
}

template <class T>
inline float* wide(std::vector<float>& to, const T* from, int64_t count) {
  for (int64_t i = 0; i < count; i += WIDTH) store(&to[i], load(from + i));
  return to.data();
}

inline float total(Lanes lanes) {
  float sum = 0.0f;
  for (int i = 0; i < WIDTH; ++i) sum += lanes[i];
  return sum;
}

// A row by the norm; from and to may be the same.
template <class T>
inline void normed(const Norm& norm, const T* from, float* to, int64_t width) {
  if (norm.weight == nullptr) {
    for (int64_t i = 0; i < width; i += WIDTH) store(to + i, load(from + i));
    return;
  }
  Lanes squares{};
  for (int64_t i = 0; i < width; i += WIDTH) squares += load(from + i) * load(from + i);
  const float scale = 1.0f / std::sqrt(total(squares) / width + norm.eps);
  for (int64_t i = 0; i < width; i += WIDTH) store(to + i, load(from + i) * scale * load(norm.weight + i));
}

inline void biased(const Product& of, float* row) {
  if (of.bias == nullptr) return;
  for (int64_t i = 0; i < of.outputs; i += WIDTH) store(row + i, load(row + i) + load(of.bias + i));
}

inline Lanes sigmoid(Lanes x) {
  const Lanes small = power(x < 0.0f ? x : -x);
  return (x < 0.0f ? small : Lanes{} + 1.0f) / (1.0f + small);
}

inline Lanes activation(Lanes x, bool gelu) {  // GELU(x) by tanh is x * sigmoid(2u)
  const Lanes by = gelu ? 1.5957691216057308f * (x + 0.044715f * x * x * x) : x;
  return x * sigmoid(by);
}

class Forward {
 public:
  Forward(const Block& block, const Rows& rows, Scratch& scratch) : of(block), rows(rows), at(scratch) {
    const int64_t mixed = of.qkv.outputs, n = rows.count;
    at.read.resize(n * std::max({of.width, of.inputs, of.heads * of.dim}));
    at.raw.resize(n * std::max({mixed, of.gate_up.outputs, of.width}));
    at.gated.resize(n * of.gate_up.outputs / 2);
    at.held.resize(n * of.width);
    at.query.resize(n * of.heads * of.dim);
    at.attended.resize(n * of.heads * of.dim);
  }

  // read: what the first product reads instead of a norm of x, or null.
  void run(const void* layout, const NUMBER* x, const NUMBER* read, NUMBER* keys, NUMBER* values, NUMBER* out) {
    each_row(rows, [&](int64_t row) {
      wide_row(x + row * of.width, &at.held[row * of.width]);
      if (read != nullptr) {
        normed(Norm{}, read + row * of.inputs, &at.read[row * of.inputs], of.inputs);
      } else {
        normed(of.attention_norm, &at.held[row * of.width], &at.read[row * of.width], of.width);
      }
    });
    multiply(of.qkv, at.read);
    each_row(rows, [&](int64_t row) { turn(row, keys, values); });
    of.attend(layout, at.query.data(), keys, values, at.attended.data());
    each_row(rows, [&](int64_t row) {
      const int64_t heads = of.heads * of.dim;
      normed(Norm{}, &at.attended[row * heads], &at.read[row * heads], heads);
    });
    multiply(of.out, at.read);
    each_row(rows, [&](int64_t row) {
      float* held = add(row, of.out, of.attention_after);
      normed(of.mlp_norm, held, &at.read[row * of.width], of.width);
    });
    multiply(of.gate_up, at.read);
    each_row(rows, [&](int64_t row) { gate(row); });
    multiply(of.down, at.gated);
    each_row(rows, [&](int64_t row) {
      const float* held = add(row, of.down, of.mlp_after);
      for (int64_t i = 0; i < of.width; i += WIDTH) store(out + row * of.width + i, load(held + i));
    });
  }

 private:
  void wide_row(const NUMBER* from, float* to) { normed(Norm{}, from, to, of.width); }

  void multiply(const Product& product, const std::vector<float>& x) {
    product.multiply(product.matrix, x.data(), at.raw.data(), rows.count, rows.threads);
  }

  // Heads of a row by their norms and by its position, to where they go.
  void turn(int64_t row, NUMBER* keys, NUMBER* values) {
    float* mixed = &at.raw[row * of.qkv.outputs];
    biased(of.qkv, mixed);
    for (int64_t h = 0; h < of.heads + of.kv_heads; ++h, mixed += of.dim) {
      const bool query = h < of.heads;
      normed(query ? of.q_norm : of.k_norm, mixed, mixed, of.dim);
      turned(row, mixed, query ? &at.query[(row * of.heads + h) * of.dim] : keys + place(row, h - of.heads));
    }
    for (int64_t h = 0; h < of.kv_heads; ++h, mixed += of.dim)
      for (int64_t i = 0; i < of.dim; i += WIDTH) store(values + place(row, h) + i, load(mixed + i));
  }

  void turned(int64_t row, const float* head, NUMBER* to) {
    const int64_t half = of.dim / 2, position = rows.positions[row] * of.dim;
    for (int64_t i = 0; i < of.dim; i += WIDTH) {
      const Lanes other = load(head + (i < half ? i + half : i - half));
      store(to + i, load(head + i) * load(of.cos + position + i) + other * load(of.sin + position + i));
    }
  }

  int64_t place(int64_t row, int64_t head) const {
    return (rows.places[row * rows.row_step + head * rows.head_step] + head * rows.head_rows) * of.dim;
  }

  // A row with what a half of the block adds to it.
  float* add(int64_t row, const Product& product, const Norm& after) {
    float *more = &at.raw[row * of.width], *held = &at.held[row * of.width];
    biased(product, more);
    normed(after, more, more, of.width);
    for (int64_t i = 0; i < of.width; i += WIDTH) store(held + i, load(held + i) + load(more + i) * of.residual_scale);
    return held;
  }

  void gate(int64_t row) {
    const int64_t inner = of.gate_up.outputs / 2;
    float *both = &at.raw[row * 2 * inner], *to = &at.gated[row * inner];
    biased(of.gate_up, both);
    for (int64_t i = 0; i < inner; i += WIDTH)
      store(to + i, activation(load(both + i), of.gelu) * load(both + inner + i));
  }

  const Block& of;
  const Rows& rows;
  Scratch& at;
};

}  // namespace

// x, out: [rows, width]; read: [rows, inputs] or null; keys, values: a layer's buffers.
extern "C" void run(const Block* block, const Rows* rows, const void* layout, const NUMBER* x, const NUMBER* read,
                    NUMBER* keys, NUMBER* values, NUMBER* out) {
  static thread_local Scratch scratch;
  Forward(*block, *rows, scratch).run(layout, x, read, keys, values, out);
}
