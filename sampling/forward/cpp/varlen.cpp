// Attention of rows over columns of their own, on a CPU. A row's sums have an order that nothing beside it changes.
//
// Columns are counted as a row sees them. 16 of them are a tile and 128 a part. Scores of a tile are summed over the
// dimensions one by one. A part has its largest score, its sum of weights, and its weighted values. Parts are joined
// from the first to the last (Milakov and Gimelshein, https://arxiv.org/abs/1805.02867).
#include "lanes.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace {

constexpr int PART = 128;
constexpr int TILES = 2;   // that are scored at once
constexpr int ROWS = 4;    // that read a tile at once
constexpr int BLOCK = 48;  // most query rows of a task
constexpr int64_t SMALL = 100000;  // multiplications that one thread does sooner than two begin
constexpr float NONE = -1e30f;

inline Lanes capped(Lanes x, float cap) {  // cap * tanh(x / cap)
  Lanes size = x < 0.0f ? -x : x;
  Lanes small = power(size * (-2.0f / cap));
  Lanes found = cap * ((1.0f - small) / (1.0f + small));
  return x < 0.0f ? -found : found;
}

// Swap the blocks of STEP lanes off the diagonal, of all pairs of rows.
template <int STEP, int... J>
inline void exchange(Lanes* rows, std::integer_sequence<int, J...>) {
  for (int i = 0; i < WIDTH; ++i) {
    if (i & STEP) continue;
    Lanes a = rows[i], b = rows[i + STEP];
    rows[i] = __builtin_shufflevector(a, b, (J & STEP ? WIDTH + (J ^ STEP) : J)...);
    rows[i + STEP] = __builtin_shufflevector(a, b, (J & STEP ? WIDTH + J : J ^ STEP)...);
  }
}

inline void transpose(Lanes* rows) {
  constexpr auto lanes = std::make_integer_sequence<int, WIDTH>{};
  exchange<1>(rows, lanes);
  exchange<2>(rows, lanes);
  exchange<4>(rows, lanes);
  exchange<8>(rows, lanes);
}

// As Python fills it: see varlen.py.
struct Layout {
  const int32_t* firsts;   // [sequences + 1], the first row of each
  const int32_t* counts;   // [N], how many of the first columns a row sees
  const int32_t* more_at;  // [N + 1], where its further columns begin
  const int32_t* more;     // those, in rising order
  const int64_t* table;    // [sequences, line], the blocks of each
  const float* sinks;      // [heads], or null
  int64_t sequences, kv_heads, group, line, block, by_block, by_head, by_row, window, threads;  // 0: no window
  float scale, cap;        // 0: no cap
};

// What a row sees, counted from 0: [low, high). Below `same` that are the columns themselves, then those of `more`.
struct Row {
  int low, high, same;
  const int32_t* more;
};

struct State {
  float most, sum;
};

// Join what a further part gave to a row.
template <int D>
__attribute__((noinline)) void join(State* state, Lanes* sums, State part, const Lanes* added) {
  if (part.sum == 0.0f) return;
  float most = std::max(state->most, part.most);
  float before = state->most == most ? 1.0f : power(state->most - most);
  float now = part.most == most ? 1.0f : power(part.most - most);
  float kept = state->sum * before;
  state->sum = kept + part.sum * now;
  state->most = most;
  for (int d = 0; d < D / WIDTH; ++d) {
    Lanes held = sums[d] * before;
    sums[d] = held + added[d] * now;
  }
}

template <class T, int D>
struct Attention {
  const Layout& of;
  const T* query;
  const T* keys;
  const T* values;
  T* out;

  // The rows of a task, `n * group` of one key head, some of them; scores: [BLOCK, PART].
  struct Task {
    int64_t sequence, head, first, count;
  };

  struct Scratch {
    std::vector<Lanes> queries = std::vector<Lanes>(BLOCK * D / WIDTH);
    std::vector<float> scores = std::vector<float>(BLOCK * PART);
    Row rows[BLOCK];
    int64_t columns[PART];  // where those of the part lie
  };

  int64_t place(const Task& task, int column) const {
    int64_t block = of.table[task.sequence * of.line + column / of.block];
    return block * of.by_block + task.head * of.by_head + static_cast<int64_t>(column % of.block) * D;
  }

  // Where what a row sees lies, for [from, to).
  void places(const Task& task, const Row& row, int from, int to, int64_t* found) const {
    int p = from, stop = std::min(to, row.same);
    while (p < stop) {
      int64_t begin = place(task, p);
      for (int left = static_cast<int>(of.block - p % of.block); left > 0 && p < stop; --left, ++p, begin += D)
        found[p - from] = begin;
    }
    for (; p < to; ++p) found[p - from] = place(task, row.more[p - row.same]);
  }

  int64_t row_of(const Task& task, int64_t i) const {  // which flat row
    return of.firsts[task.sequence] + (task.first + i) / of.group;
  }

  int64_t head_of(const Task& task, int64_t i) const { return task.head * of.group + (task.first + i) % of.group; }

  void prepare(const Task& task, Scratch& scratch) const {
    float* queries = reinterpret_cast<float*>(scratch.queries.data());
    for (int i = 0; i < task.count; ++i) {
      int64_t row = row_of(task, i);
      const T* from = query + row * of.by_row + head_of(task, i) * D;
      for (int d = 0; d < D; d += WIDTH) store(queries + i * D + d, load(from + d));
      int same = of.counts[row], further = of.more_at[row + 1] - of.more_at[row], high = same + further;
      int low = of.window > 0 ? static_cast<int>(std::max<int64_t>(0, high - of.window)) : 0;
      scratch.rows[i] = {low, high, further ? same : high, of.more + of.more_at[row]};
    }
  }

  // Keys of a tile, one dimension behind the other; columns that are not there are zeros.
  void turn(const int64_t* columns, int count, Lanes* turned) const {
    for (int d = 0; d < D; d += WIDTH) {
      for (int j = 0; j < WIDTH; ++j) turned[d + j] = j < count ? load(keys + columns[j] + d) : Lanes{};
      transpose(turned + d);
    }
  }

  template <int R>
  void score(const float* queries, const Lanes* turned, float* scores) const {
    Lanes sums[R][TILES] = {};
    for (int d = 0; d < D; ++d)
      for (int r = 0; r < R; ++r)
        for (int t = 0; t < TILES; ++t) sums[r][t] += queries[r * D + d] * turned[t * D + d];
    for (int r = 0; r < R; ++r)
      for (int t = 0; t < TILES; ++t) {
        Lanes found = sums[r][t] * of.scale;
        store(scores + r * PART + t * WIDTH, of.cap > 0.0f ? capped(found, of.cap) : found);
      }
  }

  void score_rows(const float* queries, const Lanes* turned, int rows, float* scores) const {
    int r = 0;
    for (; r + ROWS <= rows; r += ROWS) score<ROWS>(queries + r * D, turned, scores + r * PART);
    queries += r * D, scores += r * PART;
    if (rows - r == 3) score<3>(queries, turned, scores);
    if (rows - r == 2) score<2>(queries, turned, scores);
    if (rows - r == 1) score<1>(queries, turned, scores);
  }

  void score_part(const Task& task, Scratch& scratch, int first, int stop) const {
    Lanes turned[TILES * D];
    const float* queries = reinterpret_cast<const float*>(scratch.queries.data());
    for (int from = first; from < stop; from += TILES * WIDTH) {
      int to = std::min(stop, from + TILES * WIDTH), begin = 0;
      auto fill = [&](const int64_t* columns, int count) {
        for (int t = 0; t < TILES; ++t) turn(columns + t * WIDTH, count - t * WIDTH, turned + t * D);
      };
      bool filled = false;
      while (begin < task.count) {  // runs of rows that see these columns, and rows that see others here
        const Row& row = scratch.rows[begin];
        float* scores = scratch.scores.data() + begin * PART + (from - first);
        if (row.high > row.same && row.same < to) {
          int64_t columns[TILES * WIDTH];
          int high = std::max(from, std::min(to, row.high));
          places(task, row, from, high, columns);
          fill(columns, high - from);
          filled = false;
          int end = begin + 1;  // the heads of a group see the same
          while (end < task.count && scratch.rows[end].more == row.more && scratch.rows[end].same == row.same) ++end;
          score_rows(queries + begin * D, turned, end - begin, scores);
          begin = end;
          continue;
        }
        int end = begin + 1;
        while (end < task.count && (scratch.rows[end].high == scratch.rows[end].same || scratch.rows[end].same >= to)) ++end;
        if (!filled) fill(scratch.columns + (from - first), to - from);
        filled = true;
        score_rows(queries + begin * D, turned, end - begin, scores);
        begin = end;
      }
    }
  }

  // Weights in place of the scores of a row.
  static State weigh(const Row& row, float* scores, int first, int stop) {
    int low = std::max(row.low, first) - first, high = std::min(row.high, stop) - first;
    int end = (stop - first + WIDTH - 1) / WIDTH * WIDTH;
    if (low >= high) {
      std::fill(scores, scores + end, 0.0f);
      return {NONE, 0.0f};
    }
    std::fill(scores, scores + low, NONE);
    std::fill(scores + high, scores + end, NONE);
    Lanes most = load(scores);
    for (int c = WIDTH; c < end; c += WIDTH) most = larger(most, load(scores + c));
    float top = most[0];
    for (int j = 1; j < WIDTH; ++j) top = std::max(top, most[j]);
    Lanes sums{};
    for (int c = 0; c < end; c += WIDTH) {
      Lanes at = load(scores + c);
      Lanes weights = at <= NONE ? Lanes{} : power(at - top);
      weights = at == at ? weights : at;  // what is no number stays none
      store(scores + c, weights);
      sums += weights;
    }
    float sum = 0.0f;
    for (int j = 0; j < WIDTH; ++j) sum += sums[j];
    return {top, sum};
  }

  template <int R, int WIDE>
  void add(const int64_t* columns, const float* weights, int count, int d, Lanes* sums) const {
    Lanes held[R][WIDE];
    for (int r = 0; r < R; ++r)
      for (int w = 0; w < WIDE; ++w) held[r][w] = sums[(r * D + d) / WIDTH + w];
    for (int c = 0; c < count; ++c) {
      const T* value = values + columns[c] + d;
      Lanes lanes[WIDE];
      for (int w = 0; w < WIDE; ++w) lanes[w] = load(value + w * WIDTH);
      for (int r = 0; r < R; ++r)
        for (int w = 0; w < WIDE; ++w) held[r][w] += weights[r * PART + c] * lanes[w];
    }
    for (int r = 0; r < R; ++r)
      for (int w = 0; w < WIDE; ++w) sums[(r * D + d) / WIDTH + w] = held[r][w];
  }

  template <int R>
  void add_rows(const Task& task, const Scratch& scratch, int at, int first, int stop, Lanes* sums) const {
    const Row* rows = scratch.rows + at;
    const float* weights = scratch.scores.data() + at * PART;
    sums += at * D / WIDTH;
    constexpr int WIDE = D % 64 == 0 ? 4 : D % 32 == 0 ? 2 : 1;
    int low = stop, high = first;
    for (int r = 0; r < R; ++r) {
      low = std::min(low, std::max(first, rows[r].low));
      high = std::max(high, std::min(stop, rows[r].high));
    }
    int common = high;  // behind it rows see other columns
    for (int r = 0; r < R; ++r)
      if (rows[r].same < rows[r].high) common = std::min(common, rows[r].same);
    common = std::max(common, low);
    for (int d = 0; d < D; d += WIDE * WIDTH)
      add<R, WIDE>(scratch.columns + (low - first), weights + (low - first), common - low, d, sums);
    for (int r = 0; r < R; ++r) {
      int end = std::min(stop, rows[r].high);
      if (end <= common) continue;
      int64_t columns[PART];
      places(task, rows[r], common, end, columns);
      for (int d = 0; d < D; d += WIDE * WIDTH)
        add<1, WIDE>(columns, weights + r * PART + (common - first), end - common, d, sums + r * D / WIDTH);
    }
  }

  // One part of the columns of a task: the state of each row, and its weighted values.
  void part(const Task& task, Scratch& scratch, int first, int stop, State* states, Lanes* sums) const {
    places(task, {0, stop, stop, nullptr}, first, stop, scratch.columns);
    score_part(task, scratch, first, stop);
    for (int i = 0; i < task.count; ++i)
      states[i] = weigh(scratch.rows[i], scratch.scores.data() + i * PART, first, stop);
    std::fill(sums, sums + task.count * D / WIDTH, Lanes{});
    int i = 0, count = static_cast<int>(task.count);
    for (; i + ROWS <= count; i += ROWS) add_rows<ROWS>(task, scratch, i, first, stop, sums);
    if (count - i == 3) add_rows<3>(task, scratch, i, first, stop, sums);
    if (count - i == 2) add_rows<2>(task, scratch, i, first, stop, sums);
    if (count - i == 1) add_rows<1>(task, scratch, i, first, stop, sums);
  }

  void finish(const Task& task, int64_t i, State state, Lanes* sums) const {
    if (of.sinks != nullptr) {  // a weight without a value
      const Lanes nothing[D / WIDTH] = {};
      join<D>(&state, sums, {of.sinks[head_of(task, i)], 1.0f}, nothing);
    }
    T* to = out + (row_of(task, i) * of.kv_heads * of.group + head_of(task, i)) * D;
    for (int d = 0; d < D / WIDTH; ++d) store(to + d * WIDTH, sums[d] / state.sum);
  }

  // A part of the columns of a task; at: where its rows are among those of all pieces.
  struct Piece {
    int64_t task;
    int low, high;
    int64_t at;
  };

  // What is to be done. The pieces of task t are [begin[t], begin[t + 1]).
  struct Plan {
    std::vector<Task> tasks;
    std::vector<Piece> pieces;
    std::vector<int64_t> begin;
    int64_t rows = 0, work = 0;  // rows of all pieces, and multiplications
  };

  Plan plan() const {
    Plan made;
    for (int64_t sequence = 0; sequence < of.sequences; ++sequence) {
      int64_t rows = (of.firsts[sequence + 1] - of.firsts[sequence]) * of.group;
      for (int64_t head = 0; head < of.kv_heads; ++head)
        for (int64_t first = 0; first < rows; first += BLOCK)
          made.tasks.push_back({sequence, head, first, std::min<int64_t>(BLOCK, rows - first)});
    }
    for (int64_t t = 0; t < static_cast<int64_t>(made.tasks.size()); ++t) {
      const Task& task = made.tasks[t];
      int low = 1 << 30, high = 0;
      for (int64_t row = row_of(task, 0); row <= row_of(task, task.count - 1); ++row) {
        int sees = of.counts[row] + of.more_at[row + 1] - of.more_at[row];
        high = std::max(high, sees);
        low = std::min(low, of.window > 0 ? static_cast<int>(std::max<int64_t>(0, sees - of.window)) : 0);
      }
      made.begin.push_back(made.pieces.size());
      for (int first = low / PART * PART; first < high; first += PART) {
        int stop = std::min(high, first + PART);
        made.pieces.push_back({t, first, stop, made.rows});
        made.rows += task.count;
        made.work += task.count * (stop - first) * D * 2;
      }
    }
    made.begin.push_back(made.pieces.size());
    return made;
  }

  // A thread takes a task with all its parts.
  void by_tasks(const Plan& plan, int threads) const {
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
      static thread_local Scratch scratch;
      static thread_local std::vector<State> states(BLOCK), parts(BLOCK);
      static thread_local std::vector<Lanes> sums(BLOCK * D / WIDTH), added(BLOCK * D / WIDTH);
#pragma omp for schedule(dynamic, 1)
      for (int64_t t = 0; t < static_cast<int64_t>(plan.tasks.size()); ++t) {
        const Task& task = plan.tasks[t];
        prepare(task, scratch);
        std::fill(states.begin(), states.end(), State{NONE, 0.0f});
        std::fill(sums.begin(), sums.end(), Lanes{});
        for (int64_t p = plan.begin[t]; p < plan.begin[t + 1]; ++p) {
          part(task, scratch, plan.pieces[p].low, plan.pieces[p].high, parts.data(), added.data());
          for (int i = 0; i < task.count; ++i)
            join<D>(&states[i], &sums[i * D / WIDTH], parts[i], &added[i * D / WIDTH]);
        }
        for (int i = 0; i < task.count; ++i) finish(task, i, states[i], &sums[i * D / WIDTH]);
      }
    }
  }

  // Too few tasks for all threads: a thread takes a part of one, and parts are joined when all are done.
  void by_parts(const Plan& plan, int threads) const {
    static thread_local std::vector<State> held_states;
    static thread_local std::vector<Lanes> held_sums;
    if (static_cast<int64_t>(held_states.size()) < plan.rows) {
      held_states.resize(plan.rows);
      held_sums.resize(plan.rows * D / WIDTH);
    }
    State* states = held_states.data();  // of this thread, for all
    Lanes* sums = held_sums.data();
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
      static thread_local Scratch scratch;
#pragma omp for schedule(dynamic, 1)
      for (int64_t p = 0; p < static_cast<int64_t>(plan.pieces.size()); ++p) {
        const Piece& piece = plan.pieces[p];
        const Task& task = plan.tasks[piece.task];
        prepare(task, scratch);
        part(task, scratch, piece.low, piece.high, &states[piece.at], &sums[piece.at * D / WIDTH]);
      }
#pragma omp for schedule(static)
      for (int64_t t = 0; t < static_cast<int64_t>(plan.tasks.size()); ++t)
        for (int i = 0; i < plan.tasks[t].count; ++i) {
          State state{NONE, 0.0f};
          Lanes joined[D / WIDTH] = {};
          for (int64_t p = plan.begin[t]; p < plan.begin[t + 1]; ++p) {
            int64_t row = plan.pieces[p].at + i;
            join<D>(&state, joined, states[row], &sums[row * D / WIDTH]);
          }
          finish(plan.tasks[t], i, state, joined);
        }
    }
  }

  void run() const {
    Plan made = plan();
    int threads = made.work < SMALL ? 1 : static_cast<int>(of.threads);
    if (static_cast<int64_t>(made.tasks.size()) < 4 * of.threads) {
      by_parts(made, threads);
    } else {
      by_tasks(made, threads);
    }
  }
};

}  // namespace

extern "C" void attend(const Layout* of, const void* query, const void* keys, const void* values, void* out) {
  Attention<NUMBER, DIM>{*of, static_cast<const NUMBER*>(query), static_cast<const NUMBER*>(keys),
                         static_cast<const NUMBER*>(values), static_cast<NUMBER*>(out)}
      .run();
}
