// Blocks of a decoder over flat rows, in one call: norms, products, the rotary turn, attention, and the gated MLP.
//
// Products and attention are other kernels of ours, whose addresses a block has. What lies between them is computed
// here in float32, row by row: no row depends on another. Rows come and go as NUMBER, and so does what the cache has.
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

// A block in a forward. state: `[rows, width]`, where the rows behind it go, or null.
struct Call {
  const Block* block;
  const Rows* rows;
  const void* layout;
  NUMBER *keys, *values, *state;
};

namespace {

constexpr int64_t SMALL = 16;  // rows that one thread prepares sooner than two begin

struct Scratch {
  std::vector<float> held, read, raw, gated;
  std::vector<NUMBER> query, attended;
};

template <class T>
inline void grow(std::vector<T>& to, int64_t count) {
  if (static_cast<int64_t>(to.size()) < count) to.resize(count);
}

template <class Each>
void each_row(const Rows& rows, const Each& each) {
#pragma omp parallel for num_threads(rows.threads) schedule(static) if (rows.count >= SMALL)
  for (int64_t row = 0; row < rows.count; ++row) each(row);
}

template <class From, class To>
inline void copy(const From* from, To* to, int64_t count) {
  for (int64_t i = 0; i < count; i += WIDTH) store(to + i, load(from + i));
}

inline float total(Lanes lanes) {
  float sum = 0.0f;
  for (int i = 0; i < WIDTH; ++i) sum += lanes[i];
  return sum;
}

// A row by the norm; from and to may be the same.
inline void normed(const Norm& norm, const float* from, float* to, int64_t width) {
  if (norm.weight == nullptr) return copy(from, to, width);
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

// One block over the rows that the scratch holds.
class Forward {
 public:
  Forward(const Call& call, Scratch& scratch) : call(call), of(*call.block), rows(*call.rows), at(scratch) {
    const int64_t n = rows.count, heads = of.heads * of.dim;
    grow(at.held, n * of.width);
    grow(at.read, n * std::max({of.width, of.inputs, heads}));
    grow(at.raw, n * std::max({of.qkv.outputs, of.gate_up.outputs, of.width}));
    grow(at.gated, n * of.gate_up.outputs / 2);
    grow(at.query, n * heads);
    grow(at.attended, n * heads);
  }

  // x: rows that the scratch does not hold yet, or null. read: what the first product reads instead of a norm of them.
  void run(const NUMBER* x, const NUMBER* read) {
    each_row(rows, [&](int64_t row) {
      float* held = &at.held[row * of.width];
      if (x != nullptr) copy(x + row * of.width, held, of.width);
      if (read == nullptr) return normed(of.attention_norm, held, &at.read[row * of.width], of.width);
      copy(read + row * of.inputs, &at.read[row * of.inputs], of.inputs);
    });
    multiply(of.qkv, at.read);
    each_row(rows, [&](int64_t row) { turn(row); });
    of.attend(call.layout, at.query.data(), call.keys, call.values, at.attended.data());
    each_row(rows, [&](int64_t row) {
      const int64_t heads = of.heads * of.dim;
      copy(&at.attended[row * heads], &at.read[row * heads], heads);
    });
    multiply(of.out, at.read);
    each_row(rows, [&](int64_t row) {
      const float* held = add(row, of.out, of.attention_after);
      normed(of.mlp_norm, held, &at.read[row * of.width], of.width);
    });
    multiply(of.gate_up, at.read);
    each_row(rows, [&](int64_t row) { gate(row); });
    multiply(of.down, at.gated);
    each_row(rows, [&](int64_t row) {
      const float* held = add(row, of.down, of.mlp_after);
      if (call.state != nullptr) copy(held, call.state + row * of.width, of.width);
    });
  }

 private:
  void multiply(const Product& product, const std::vector<float>& x) {
    product.multiply(product.matrix, x.data(), at.raw.data(), rows.count, rows.threads);
  }

  // Heads of a row by their norms and by its position, to where they go.
  void turn(int64_t row) {
    float* mixed = &at.raw[row * of.qkv.outputs];
    biased(of.qkv, mixed);
    for (int64_t h = 0; h < of.heads + of.kv_heads; ++h, mixed += of.dim) {
      const bool query = h < of.heads;
      normed(query ? of.q_norm : of.k_norm, mixed, mixed, of.dim);
      turned(row, mixed, query ? &at.query[(row * of.heads + h) * of.dim] : call.keys + place(row, h - of.heads));
    }
    for (int64_t h = 0; h < of.kv_heads; ++h, mixed += of.dim) copy(mixed, call.values + place(row, h), of.dim);
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

  const Call& call;
  const Block& of;
  const Rows& rows;
  Scratch& at;
};

}  // namespace

// x: [rows, width], what enters the first block; read: [rows, inputs], what its first product reads, or null.
extern "C" void run(const Call* calls, int64_t count, const NUMBER* x, const NUMBER* read) {
  static thread_local Scratch scratch;
  for (int64_t i = 0; i < count; ++i) Forward(calls[i], scratch).run(i ? nullptr : x, i ? nullptr : read);
}
