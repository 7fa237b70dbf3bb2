// A scan whose rounds run several iterations each. With 7 iterations and unroll = 3, a loop of 2 rounds runs iterations
// 0 to 5, in blocks of 3 slices, and iteration 6 follows it.
#include <algorithm>

#include "ops/control.h"
#include "ops/dims.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

// Slices [begin, end) along dimension 0.
Value rows_of(Value x, int64_t begin, int64_t end) {
  if (begin == 0 && end == x.shape()[0]) return x;
  Dims starts(x.shape().size(), 0), limits = x.shape();
  starts[0] = begin;
  limits[0] = end;
  return slice(x, starts, limits, Dims(x.shape().size(), 1));
}

Shape without_first(const Shape& shape) { return Shape(shape.begin() + 1, shape.end()); }

// The last carries, then the stacked ys of these iterations.
struct Iterations {
  Values carry, ys;
};

// Runs the body once for each slice of the xs, without a loop. REQUIRES: length > 0.
Iterations run_iterations(Builder& b, const Program& body, Values carry, const Values& xs, const Values& constants,
                          int64_t length, bool reverse) {
  const size_t carries = carry.size();
  std::vector<Values> rows(body.outputs.size() - carries);  // by y
  for (int64_t step = 0; step < length; ++step) {
    const int64_t at = reverse ? length - 1 - step : step;
    Values args = std::move(carry);
    for (const Value& x : xs) args.push_back(reshape(rows_of(x, at, at + 1), without_first(x.shape())));
    args.insert(args.end(), constants.begin(), constants.end());
    Values out = b.inline_program(body, args);
    for (size_t y = 0; y < rows.size(); ++y)
      rows[y].push_back(reshape(out[carries + y], prepend(1, out[carries + y].shape())));
    out.resize(carries);
    carry = std::move(out);
  }
  Iterations result{std::move(carry), {}};
  for (Values& each : rows) {
    if (reverse) std::reverse(each.begin(), each.end());
    result.ys.push_back(each.size() == 1 ? each[0] : concatenate(each, 0));
  }
  return result;
}

// The body of a round: maps (carry..., block of x..., constants...) to (carry..., block of y...).
ProgramPtr body_of_block(const Program& body, const Values& carry, const Values& xs, const Values& constants,
                         int64_t unroll, bool reverse) {
  Builder b;
  const auto inputs = [&b](const Values& like) {
    Values out;
    for (const Value& v : like) out.push_back(b.input(v.type()));
    return out;
  };
  const Values start = inputs(carry);
  Values blocks;
  for (const Value& x : xs)
    blocks.push_back(b.input({x.dtype(), prepend(unroll, without_first(x.shape())), x.type().varying}));
  Iterations all = run_iterations(b, body, start, blocks, inputs(constants), unroll, reverse);
  all.carry.insert(all.carry.end(), all.ys.begin(), all.ys.end());
  return std::make_shared<const Program>(b.take(all.carry));
}

}  // namespace

Values unrolled_scan(Builder& b, ProgramPtr body, const Values& carry, const Values& xs, const Values& constants,
                     int64_t length, bool reverse, int64_t unroll) {
  const int64_t rounds = unroll < length ? length / unroll : 0, looped = rounds * unroll, rest = length - looped;
  if (length <= 1 || unroll == 1) return scan(b, std::move(body), carry, xs, constants, length, reverse);
  // The loop has the first slices, or the last ones if it begins with them.
  const int64_t first = reverse ? rest : 0, first_rest = reverse ? 0 : looped;
  Iterations result{carry, {}};
  if (rounds > 0) {
    Values blocks;
    for (const Value& x : xs)
      blocks.push_back(
          reshape(rows_of(x, first, first + looped), prepend(rounds, prepend(unroll, without_first(x.shape())))));
    Values out =
        scan(b, body_of_block(*body, carry, xs, constants, unroll, reverse), carry, blocks, constants, rounds, reverse);
    const auto ys = out.begin() + static_cast<std::ptrdiff_t>(carry.size());
    result.carry.assign(out.begin(), ys);
    for (auto y = ys; y != out.end(); ++y)
      result.ys.push_back(reshape(*y, prepend(looped, Shape(y->shape().begin() + 2, y->shape().end()))));
  }
  if (rest > 0) {
    Values tail;
    for (const Value& x : xs) tail.push_back(rows_of(x, first_rest, first_rest + rest));
    Iterations after = run_iterations(b, *body, std::move(result.carry), tail, constants, rest, reverse);
    for (size_t y = 0; y < result.ys.size(); ++y)
      after.ys[y] = reverse ? concatenate({after.ys[y], result.ys[y]}, 0) : concatenate({result.ys[y], after.ys[y]}, 0);
    result = std::move(after);
  }
  result.carry.insert(result.carry.end(), result.ys.begin(), result.ys.end());
  return result.carry;
}

}  // namespace lockstep
