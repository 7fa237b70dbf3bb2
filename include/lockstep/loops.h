// More loops inside a compiled function: while_loop (until a condition fails), fori_loop with bounds that are arrays,
// map (a function of each element) and associative_scan (running sums, products and the like in log(n) steps).
//
//   const auto more = [=](Array x) { return abs(x * x - a) > 1e-6f; };
//   Array root = while_loop(more, [=](Array x) { return (x + a / x) / 2; }, a);
//   Array sums = associative_scan([](Array a, Array b) { return a + b; }, xs);
//
// Functions are traced once. All may be nested and batched, and called from any thread.
#pragma once

#include "lockstep/control.h"
#include "lockstep/rearrange.h"
#include "lockstep/source_line.h"
#include "lockstep/vmap.h"

namespace lockstep {

namespace detail {

// The types of the carries of a while_loop: as carry_types(), but a carry also varies where the condition does.
std::vector<Type> loop_types(std::span<const Array> init, std::span<const Array> carry, const Array& condition);
// Throws Error unless the condition of a while_loop is a bool scalar.
void check_condition(const Array& condition);
// `cond` maps (carries..., captures...) to a bool, `body` to carries.
Arrays while_loop(const Traced& cond, const Traced& body, std::span<const Array> init);
Arrays while_loop_flat(TreeRef init, const FlatFunction& condition, const FlatFunction& body);

// Bounds of a fori_loop, of one integer type. `known`: the bounds as numbers, unless one is traced.
struct LoopBounds {
  Array lower, upper;
  std::optional<std::pair<int64_t, int64_t>> known;
};
LoopBounds loop_bounds(const Array& lower, const Array& upper);

// x[start : limit : step] along an axis.
Array slice_along(const Array& x, int64_t axis, int64_t start, int64_t limit, int64_t step = 1);
Array join_along(const Array& x, const Array& y, int64_t axis);
// Elements of `even` at positions 0, 2, ... along an axis and those of `odd` in between. `even` has as many, or one
// more.
Array interleave(const Array& even, const Array& odd, int64_t axis);
// Splits the first dimension into [blocks, size]; merges the first two.
Array in_blocks(const Array& x, int64_t blocks, int64_t size);
Array merge_blocks(const Array& x);
int64_t map_length(std::span<const Array> xs, int64_t batch_size);
// Converts `axis` to a non-negative one. Throws Error unless all elements have the same extent along it.
int64_t associative_axis(std::span<const Array> elements, int64_t axis);
void check_combined(std::span<const Array> combined, std::span<const Array> operands);

}  // namespace detail

// Computes carry = body(carry) while condition(carry), a bool scalar, is true, and returns the last carry. The number
// of rounds need not be known, so there is no reverse-mode gradient: use scan or a fori_loop of integers for that, or
// custom_vjp. In a batch (vmap), the loop runs until the condition of every example is false; an example whose
// condition is false keeps its carry. Throws Error when the body changes the carry's structure or types.
template <class P, class F, class C>
auto while_loop(const P& condition, const F& body, const C& first, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return detail::with_parameters<F>(
      [&]<class Carry>(const Carry& init) {
        using Tested = detail::ResultOf<P, Carry>;
        static_assert(std::is_same_v<Tested, Array>, "while_loop: the condition must return an Array");
        detail::ResultSlot<Tested> test;
        detail::ResultSlot<Carry> next;
        const auto step = [&body](const Carry& carry) -> Carry { return body(carry); };
        const detail::Arrays results = detail::while_loop_flat(init, detail::on_arrays(test, condition, init),
                                                               detail::on_arrays(next, step, init));
        return next.take(results.data());
      },
      first);
}

// fori_loop with bounds that may be computed. Integer scalars that are not traced are as good as integers; otherwise
// the loop is a while_loop, and has no reverse-mode gradient.
template <class F, class C>
auto fori_loop(const Operand& lower, const Operand& upper, const F& f, const C& first) {
  return detail::with_parameters<F>(
      [&]<class Index, class Carry>(const Index&, const Carry& init) {
        const detail::LoopBounds bounds = detail::loop_bounds(lower, upper);
        if (bounds.known) return Carry(fori_loop(bounds.known->first, bounds.known->second, f, init));
        using State = std::pair<Array, Carry>;
        const auto more = [&bounds](const State& s) { return s.first < bounds.upper; };
        const auto step = [&f](const State& s) { return State{s.first + 1, f(s.first, s.second)}; };
        return while_loop(more, step, State{bounds.lower, init}).second;
      },
      lower, first);
}

struct MapOptions {
  int64_t batch_size = 1;  // how many elements are computed together, by vmap
};

// Returns f(x) for each x along the leading axis of the arrays of `stacked`, stacked along a leading axis. Needs the
// memory of `batch_size` elements at a time, where vmap needs that of all. Throws Error unless all leading axes agree.
template <class F, class X>
auto map(const F& f, const X& stacked, MapOptions options = {}, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return detail::with_parameters<F>(
      [&]<class Xs>(const Xs& xs) {
        const int64_t size = options.batch_size, n = detail::map_length(tree_leaves(xs), size);
        const auto over = [](const auto& function, const Xs& elements) {
          const auto step = [&function](const Nothing& none, const Xs& x) { return std::pair{none, function(x)}; };
          return scan(step, Nothing{}, elements).second;
        };
        if (size == 1) return over(f, xs);
        const int64_t blocks = n / size, looped = blocks * size;
        const auto rows = [&xs](int64_t begin, int64_t end) {
          return tree_map([&](const Array& a) { return detail::slice_along(a, 0, begin, end); }, xs);
        };
        // f's parameter may be an Array; then it takes the arrays of a batch as well.
        const auto together = vmap([&f](Xs x) { return f(x); });
        if (blocks == 0) return together(xs);
        const Xs in_blocks =
            tree_map([&](const Array& a) { return detail::in_blocks(a, blocks, size); }, rows(0, looped));
        const auto whole = tree_map(detail::merge_blocks, over(together, in_blocks));
        if (looped == n) return whole;
        return tree_map([](const Array& a, const Array& b) { return detail::join_along(a, b, 0); }, whole,
                        together(rows(looped, n)));
      },
      stacked);
}

struct AssociativeScanOptions {
  bool reverse = false;  // accumulate from the last element
  int64_t axis = 0;      // negative axes count from the back
};

namespace detail {

// `n`: the extent of `axis`.
template <class F, class T>
T accumulate(const F& fn, const T& elements, int64_t axis, int64_t n) {
  if (n < 2) return elements;
  const auto part = [axis](const T& tree, int64_t start, int64_t limit, int64_t step) {
    return tree_map([&](const Array& a) { return slice_along(a, axis, start, limit, step); }, tree);
  };
  const auto combine = [&fn](const T& a, const T& b) {
    const T out = fn(a, b);
    check_combined(tree_leaves(out), tree_leaves(a));
    return out;
  };
  // Results at odd positions are those of the sequence of pairs; one more element each gives those at even positions.
  const T odd = accumulate(fn, combine(part(elements, 0, n - 1, 2), part(elements, 1, n, 2)), axis, n / 2);
  T even = part(elements, 0, 1, 1);
  if (const int64_t rest = (n - 1) / 2; rest > 0)
    even = tree_map([axis](const Array& a, const Array& b) { return join_along(a, b, axis); }, even,
                    combine(part(odd, 0, rest, 1), part(elements, 2, n, 2)));
  return tree_map([axis](const Array& a, const Array& b) { return interleave(a, b, axis); }, even, odd);
}

}  // namespace detail

// Returns the running results of an associative function along an axis: x[0], fn(x[0], x[1]), fn(fn(x[0], x[1]), x[2])
// and so on, in log(n) steps. `elements` is an array or a tree of arrays; fn combines two such trees elementwise along
// the axis, as in [](Array a, Array b) { return a * b; }, and keeps their types.
template <class F, class T>
auto associative_scan(const F& fn, const T& elements, AssociativeScanOptions options = {},
                      SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return detail::with_parameters<F>(
      [&]<class Tree>(const Tree& tree, const Tree&) {
        const detail::Arrays leaves = tree_leaves(tree);
        const int64_t axis = detail::associative_axis(leaves, options.axis), n = leaves[0].shape(axis);
        const auto flipped = [axis](const Tree& t) {
          return tree_map([axis](const Array& a) { return flip(a, axis); }, t);
        };
        if (!options.reverse) return detail::accumulate(fn, tree, axis, n);
        return flipped(detail::accumulate(fn, flipped(tree), axis, n));
      },
      elements, elements);
}

}  // namespace lockstep
