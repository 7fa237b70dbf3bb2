// Control flow that stays inside a compiled function: scan (a loop with a carry) and cond (one of two computations).
//
//   auto [total, partial] = scan([](Array carry, Array x) { return std::pair{carry + x, carry + x}; }, Array(0.f), xs);
//   Array y = cond(x > 0, [](Array x) { return x; }, [](Array x) { return -x; }, x);
#pragma once

#include "lockstep/grad.h"

namespace lockstep {

struct ScanOptions {
  int64_t length = -1;   // needed only when there are no xs
  bool reverse = false;  // from the last x to the first
};

// No xs: scan(f, init, nothing, {.length = n}); f's second argument is a Nothing.
struct Nothing {};

namespace detail {

// Throws Error unless all xs have a leading axis of one length (or `length` gives it).
int64_t scan_length(std::span<const Array> xs, int64_t length);
Type element_type(const Array& xs);
// Throws Error unless the carry comes out with the types it went in with.
void check_carry(std::span<const Array> init, std::span<const Array> carry);
void check_branches(std::span<const Array> if_true, std::span<const Array> if_false);
void check_predicate(const Array&);

}  // namespace detail

// f(carry, x) -> {carry, y}, over the leading axis of the arrays of xs. Returns {last carry, ys stacked along a leading
// axis}.
template <class F, class C, class X>
auto scan(const F& f, const C& first, const X& stacked, ScanOptions options = {}) {
  return detail::with_parameters<F>(
      [&]<class Carry, class Xs>(const Carry& init, const Xs& xs) {
        const detail::Arrays xs_leaves = tree_leaves(xs), init_leaves = tree_leaves(init);
        const int64_t length = detail::scan_length(xs_leaves, options.length);
        detail::Tracing tracing("scan");
        Carry carry = detail::trace_inputs(tracing, init);
        Xs x = xs;
        detail::for_each_array(x, [&](Array& a) { a = tracing.input(detail::element_type(a)); });
        auto result = f(carry, x);  // {carry, y}
        const detail::Arrays carry_out = tree_leaves(result.first);
        detail::check_carry(init_leaves, carry_out);
        const detail::Traced body = tracing.finish(tree_leaves(result));
        const detail::Arrays results = detail::scan(body, init_leaves, xs_leaves, length, options.reverse);
        const Array* next = results.data();
        return detail::replace_arrays(std::move(result), next);
      },
      first, stacked);
}

// if_true(operands...) or if_false(operands...), which return trees of the same types. Only the chosen one is computed.
template <class T, class E, class... Args>
auto cond(const Array& predicate, const T& if_true, const E& if_false, const Args&... passed) {
  return detail::with_parameters<T>(
      [&](const auto&... operands) {
        detail::check_predicate(predicate);
        auto yes = detail::trace_call("cond", if_true, operands...);
        auto no = detail::trace_call("cond", if_false, operands...);
        static_assert(std::is_same_v<decltype(yes.result), decltype(no.result)>,
                      "cond: the branches return different types");
        detail::check_branches(tree_leaves(yes.result), tree_leaves(no.result));
        const detail::Arrays results = detail::cond(predicate, yes.traced, no.traced, detail::leaves_of(operands...));
        const Array* next = results.data();
        return detail::replace_arrays(std::move(yes.result), next);
      },
      passed...);
}

}  // namespace lockstep
