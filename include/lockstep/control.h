// Control flow that stays inside a compiled function: scan (a loop with a carry), fori_loop (one without more) and cond
// (one of two computations).
//
//   auto [total, partial] = scan([](Array carry, Array x) { return std::pair{carry + x, carry + x}; }, Array(0.f), xs);
//   Array y = cond(x > 0, [](Array x) { return x; }, [](Array x) { return -x; }, x);
#pragma once

#include "lockstep/create.h"
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
// The types that each array of a carry has before and after, and each result in both branches: numbers take the other's
// element type, and what is the same on all devices may vary. Throws Error where that does not make them alike.
std::vector<Type> carry_types(std::span<const Array> init, std::span<const Array> carry);
std::vector<Type> branch_types(std::span<const Array> if_true, std::span<const Array> if_false);
bool have_types(std::span<const Array>, std::span<const Type>);
// The arrays of a tree in these types.
Array widened(const Array&, const Type&);
template <class T>
void widen(T& tree, const std::vector<Type>& types) {
  const Type* to = types.data();
  for_each_array(tree, [&](Array& a) { a = widened(a, *to++); });
}
void check_predicate(const Array&);

}  // namespace detail

// f(carry, x) -> {carry, y}, over the leading axis of the arrays of xs. Returns {last carry, ys stacked along a leading
// axis}.
template <class F, class C, class X>
auto scan(const F& f, const C& first, const X& stacked, ScanOptions options = {}) {
  return detail::with_parameters<F>(
      [&]<class Carry, class Xs>(const Carry& init, const Xs& xs) {
        const detail::Arrays xs_leaves = tree_leaves(xs);
        const int64_t length = detail::scan_length(xs_leaves, options.length);
        Carry start = init;
        for (std::vector<Type> types;;) {  // once, or until the carry goes in as it comes out
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
                  .check_same(detail::TreeStructure(result.first, true), "scan", "in the first carry",
                              "in the one that a round returns", "what changes from round to round must be an Array");
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

// carry = f(i, carry) for each i from lower on below upper, as an Array (i32 where the bounds are); the last carry.
template <class F, class C>
auto fori_loop(int64_t lower, int64_t upper, const F& f, const C& first) {
  return detail::with_parameters<F>(
      [&]<class Index, class Carry>(const Index&, const Carry& init) {
        const auto body = [&f](const Carry& carry, const Array& i) { return std::pair{f(i, carry), Nothing{}}; };
        return scan(body, init, arange(lower, upper)).first;
      },
      Array(lower), first);
}

// if_true(operands...) or if_false(operands...), which return trees of the same types. Only the chosen one is computed.
template <class T, class E, class... Args>
auto cond(const Array& predicate, const T& if_true, const E& if_false, const Args&... passed) {
  return detail::with_parameters<T>(
      [&](const auto&... operands) {
        detail::check_predicate(predicate);
        std::vector<Type> types;  // of the results, where a branch returns others
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
            .check_same(detail::TreeStructure(no.result, true), "cond", "in the result of one branch",
                        "in that of the other", "what depends on the predicate must be an Array");
        if (!detail::have_types(if_yes, types)) yes = traced(if_true);
        if (!detail::have_types(if_no, types)) no = traced(if_false);
        const detail::Arrays results = detail::cond(predicate, yes.traced, no.traced, detail::leaves_of(operands...));
        const Array* next = results.data();
        return detail::replace_arrays(std::move(yes.result), next);
      },
      passed...);
}

}  // namespace lockstep
