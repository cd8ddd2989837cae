// Blocks of a decoder over flat rows, in one call: norms, products, the rotary turn, attention, and the gated MLP.
// With what stands in front of them and behind them they are a whole forward, of a model or of a head: see `whole`.
//
// Products and attention are other kernels of ours, whose addresses a block has. What lies between them is computed
// here in float32, row by row: no row depends on another. Rows come and go as NUMBER, and so does what the cache has.
#include "lanes.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
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

// What is computed in front of the blocks and behind them. Null: what there is not. embedding: `[embedded, width]`. ids:
// whose logits `output` gives, where those of others are `lowest`. normed_feedback: states are those behind `norm`. The others are a head's alone. joining:
// of a token's embedding and a state side by side; without it the first attention reads them so. mask_..: of rows without
// a token. normed_residual: the blocks add to the state behind its norm.
struct Ends {
  const NUMBER *embedding, *mask_embedding, *mask_state;
  const int64_t* ids;
  Product joining, output;
  Norm embed_norm, state_norm, norm;
  int64_t embedded, vocabulary, normed_residual, normed_feedback;
  float lowest;
};

// Tokens `[n]`; of a head also `[n, width]` of what each continues, else null. asked: `[m]`, whose logits are wanted.
struct Fed {
  const int64_t *tokens, *asked;
  const NUMBER* above;
  int64_t wanted;
  NUMBER *states, *logits;  // to fill: [n, width], [m, vocabulary]
};

namespace {

constexpr int64_t SMALL = 4;  // rows that one thread prepares sooner than two begin
constexpr int64_t PIECE = 64;  // rows whose logits are computed at once

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
template <class From, class To>
inline void normed(const Norm& norm, const From* from, To* to, int64_t width) {
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

  // x: rows that the scratch does not hold yet. read: what the first product reads instead of a norm of them, or null.
  void enter(const NUMBER* x, const NUMBER* read) {
    each_row(rows, [&](int64_t row) {
      copy(x + row * of.width, &at.held[row * of.width], of.width);
      if (read != nullptr) copy(read + row * of.inputs, &at.read[row * of.inputs], of.inputs);
    });
    if (read == nullptr) norm();
  }

  // The same of tokens.
  void enter(const Ends& ends, const Fed& fed) {
    if (fed.above != nullptr) return join(ends, fed);
    each_row(rows, [&](int64_t row) {
      copy(ends.embedding + fed.tokens[row] * of.width, &at.held[row * of.width], of.width);
    });
    norm();
  }

  // The same of a head's rows: embeddings and states.
  void join(const Ends& ends, const Fed& fed) {
    const int64_t width = of.width;
    grow(at.read, rows.count * 2 * width);
    each_row(rows, [&](int64_t row) {
      const int64_t token = fed.tokens[row];
      const bool masked = token < 0;
      const NUMBER* state = masked ? ends.mask_state : fed.above + row * width;
      float* both = &at.read[row * 2 * width];
      normed(ends.embed_norm, masked ? ends.mask_embedding : ends.embedding + token * width, both, width);
      normed(ends.state_norm, state, both + width, width);
      if (ends.joining.matrix != nullptr) return;
      if (ends.normed_residual) return copy(both + width, &at.held[row * width], width);
      copy(state, &at.held[row * width], width);
    });
    if (ends.joining.matrix == nullptr) return;
    multiply(ends.joining, at.read);
    each_row(rows, [&](int64_t row) {
      biased(ends.joining, &at.raw[row * width]);
      copy(&at.raw[row * width], &at.held[row * width], width);
    });
    norm();
  }

  // What the first product reads, of what the scratch holds.
  void norm() {
    each_row(rows, [&](int64_t row) {
      normed(of.attention_norm, &at.held[row * of.width], &at.read[row * of.width], of.width);
    });
  }

  void run() {
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

  // States of the rows, and logits of those that are asked for.
  void leave(const Ends& ends, const Fed& fed) {
    const int64_t width = of.width;
    each_row(rows, [&](int64_t row) {
      normed(ends.normed_feedback ? ends.norm : Norm{}, &at.held[row * width], fed.states + row * width, width);
    });
    for (int64_t done = 0; done < fed.wanted; done += PIECE)
      tell(ends, fed.asked + done, std::min(PIECE, fed.wanted - done), fed.logits + done * ends.vocabulary);
  }

 private:
  void multiply(const Product& product, const std::vector<float>& x) {
    product.multiply(product.matrix, x.data(), at.raw.data(), rows.count, rows.threads);
  }

  // Logits of a few of the rows.
  void tell(const Ends& ends, const int64_t* asked, int64_t count, NUMBER* logits) {
    const Product& output = ends.output;
    grow(at.read, count * of.width);
    for (int64_t i = 0; i < count; ++i) normed(ends.norm, &at.held[asked[i] * of.width], &at.read[i * of.width], of.width);
    if (std::is_same_v<NUMBER, float> && ends.ids == nullptr && output.bias == nullptr)
      return output.multiply(output.matrix, at.read.data(), reinterpret_cast<float*>(logits), count, rows.threads);
    grow(at.raw, count * output.outputs);
    output.multiply(output.matrix, at.read.data(), at.raw.data(), count, rows.threads);
#pragma omp parallel for num_threads(rows.threads) schedule(static) if (count >= SMALL)
    for (int64_t i = 0; i < count; ++i) spread(ends, &at.raw[i * output.outputs], logits + i * ends.vocabulary);
  }

  // A row of logits over the whole vocabulary, of what the output gave.
  static void spread(const Ends& ends, float* found, NUMBER* logits) {
    biased(ends.output, found);
    if (ends.ids == nullptr) return copy(found, logits, ends.output.outputs);
    NUMBER side[WIDTH];
    store(side, Lanes{} + ends.lowest);
    std::fill(logits, logits + ends.vocabulary, side[0]);
    for (int64_t i = 0; i < ends.output.outputs; i += WIDTH) {
      store(side, load(found + i));
      for (int64_t j = 0; j < WIDTH; ++j) logits[ends.ids[i + j]] = side[j];
    }
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

thread_local Scratch scratch;

// Blocks over what the scratch holds, where the first has what it reads.
void each_block(const Call* calls, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    Forward block(calls[i], scratch);
    if (i) block.norm();
    block.run();
  }
}

}  // namespace

// x: [rows, width], what enters the first block; read: [rows, inputs], what its first product reads, or null.
extern "C" bool run(const Call* calls, int64_t count, const NUMBER* x, const NUMBER* read) {
  Forward(calls[0], scratch).enter(x, read);
  each_block(calls, count);
  return true;
}

// The same blocks as a whole forward. It says whether all tokens were there; else it has done nothing.
extern "C" bool whole(const Call* calls, int64_t count, const Ends* ends, const Fed* fed) {
  const int64_t lowest = ends->mask_embedding == nullptr ? 0 : -1;
  for (int64_t row = 0; row < calls[0].rows->count; ++row)
    if (fed->tokens[row] < lowest || fed->tokens[row] >= ends->embedded) return false;
  Forward(calls[0], scratch).enter(*ends, *fed);
  each_block(calls, count);
  Forward(calls[0], scratch).leave(*ends, *fed);
  return true;
}
