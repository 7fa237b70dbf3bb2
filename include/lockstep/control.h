// Control flow inside a compiled function: scan (a loop with a carry), fori_loop (a counted loop) and cond (a
// choice between two computations).
//
//   auto [total, sums] = scan([](Array carry, Array x) { return std::pair{carry + x, carry + x}; }, Array(0.f), xs);
//   Array y = cond(x > 0, [](Array x) { return x; }, [](Array x) { return -x; }, x);
//
// Bodies are traced once. All functions may be nested, differentiated, and called from any thread.
#pragma once

#include "lockstep/create.h"
#include "lockstep/grad.h"

namespace lockstep {

struct ScanOptions {
  int64_t length = -1;   // number of iterations; required without xs
  bool reverse = false;  // iterate from the last x to the first
};

// Stands for missing xs: scan(f, init, Nothing{}, {.length = n}). Then f's second argument is a Nothing.
struct Nothing {};

namespace detail {

// Returns the number of iterations. Throws Error unless all xs have a leading axis of one length, or `length`
// is given.
int64_t scan_length(std::span<const Array> xs, int64_t length);
Type element_type(const Array& xs);
// Unify the types of a carry before and after an iteration, and of the results of both branches. Numbers take
// the other side's element type; a value that varies on one side varies in the result. Throw Error where the
// types still differ.
std::vector<Type> carry_types(std::span<const Array> init, std::span<const Array> carry);
std::vector<Type> branch_types(std::span<const Array> if_true, std::span<const Array> if_false);
bool have_types(std::span<const Array>, std::span<const Type>);
// Convert an array, and all arrays of a tree, to these types.
Array widened(const Array&, const Type&);
template <class T>
void widen(T& tree, const std::vector<Type>& types) {
  const Type* to = types.data();
  for_each_array(tree, [&](Array& a) { a = widened(a, *to++); });
}
void check_predicate(const Array&);

}  // namespace detail

// Calls f(carry, x) -> {carry, y} for each x along the leading axis of the arrays of `stacked`. Returns {last
// carry, all y stacked along a leading axis}. Throws Error when f changes the carry's structure or types, or
// a static value in it.
template <class F, class C, class X>
auto scan(const F& f, const C& first, const X& stacked, ScanOptions options = {}) {
  return detail::with_parameters<F>(
      [&]<class Carry, class Xs>(const Carry& init, const Xs& xs) {
        const detail::Arrays xs_leaves = tree_leaves(xs);
        const int64_t length = detail::scan_length(xs_leaves, options.length);
        Carry start = init;
        for (std::vector<Type> types;;) {  // until the carry has the same types before and after an iteration
          const detail::Arrays init_leaves = tree_leaves(start);
          {
            detail::Tracing tracing("scan");
            Carry carry = detail::trace_inputs(tracing, start);
            Xs x = xs;
            detail::for_each_array(x, [&](Array& a) { a = tracing.input(detail::element_type(a), a); });
            auto result = f(carry, x);  // {carry, y}
            static_assert(detail::is_pair<decltype(result)>, "scan: the body must return a std::pair{carry, y}");
            types = detail::carry_types(init_leaves, tree_leaves(result.first));
            if (detail::have_types(init_leaves, types)) {
              detail::TreeStructure(start, true)
                  .check_same(detail::TreeStructure(result.first, true), "scan", "in the initial carry",
                              "in the returned carry", "a value that changes between iterations must be an Array");
              detail::widen(result.first, types);
              const detail::Traced body = tracing.finish(tree_leaves(result));
              const detail::Arrays results = detail::scan(body, init_leaves, xs_leaves, length, options.reverse);
              const Array* next = results.data();
              return detail::replace_arrays(std::move(result), next);
            }
          }
          detail::widen(start, types);
        }
      },
      first, stacked);
}

// Computes carry = f(i, carry) for i in [lower, upper) and returns the last carry. i is an Array: i32, or i64
// if a bound needs it.
template <class F, class C>
auto fori_loop(int64_t lower, int64_t upper, const F& f, const C& first) {
  return detail::with_parameters<F>(
      [&]<class Index, class Carry>(const Index&, const Carry& init) {
        const auto body = [&f](const Carry& carry, const Array& i) { return std::pair{f(i, carry), Nothing{}}; };
        return scan(body, init, arange(lower, upper)).first;
      },
      Array(lower), first);
}

// Computes if_true(operands...) or if_false(operands...). Both must return trees of the same structure and
// types. Only the chosen branch runs, except where the predicate varies over devices: then both run. Throws
// Error unless `predicate` is a bool scalar.
template <class T, class E, class... Args>
auto cond(const Array& predicate, const T& if_true, const E& if_false, const Args&... passed) {
  return detail::with_parameters<T>(
      [&](const auto&... operands) {
        detail::check_predicate(predicate);
        std::vector<Type> types;  // common result types, once both branches are traced
        const auto traced = [&](const auto& branch) {
          const auto in_types = [&](const auto&... each) {
            auto result = branch(each...);
            if (!types.empty()) detail::widen(result, types);
            return result;
          };
          return detail::trace_call("cond", in_types, operands...);
        };
        auto yes = traced(if_true);
        auto no = traced(if_false);
        static_assert(std::is_same_v<decltype(yes.result), decltype(no.result)>,
                      "cond: the branches return different types");
        const detail::Arrays if_yes = tree_leaves(yes.result), if_no = tree_leaves(no.result);
        types = detail::branch_types(if_yes, if_no);
        detail::TreeStructure(yes.result, true)
            .check_same(detail::TreeStructure(no.result, true), "cond", "in one branch's result", "in the other's",
                        "a value that depends on the predicate must be an Array");
        if (!detail::have_types(if_yes, types)) yes = traced(if_true);
        if (!detail::have_types(if_no, types)) no = traced(if_false);
        const detail::Arrays results = detail::cond(predicate, yes.traced, no.traced, detail::leaves_of(operands...));
        const Array* next = results.data();
        return detail::replace_arrays(std::move(yes.result), next);
      },
      passed...);
}

}  // namespace lockstep
