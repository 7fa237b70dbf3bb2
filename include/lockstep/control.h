// Control flow inside a compiled function: scan (a loop with a carry), fori_loop (a counted loop), cond and
// switch_case (a choice between computations). Loops with a condition are in loops.h.
//
//   auto [total, sums] = scan([](Array carry, Array x) { return std::pair{carry + x, carry + x}; }, Array(0.f), xs);
//   Array y = cond(x > 0, [](Array x) { return x; }, [](Array x) { return -x; }, x);
//
// Bodies are traced once. All functions may be nested, differentiated, and called from any thread.
#pragma once

#include "lockstep/create.h"
#include "lockstep/grad.h"
#include "lockstep/operand.h"

namespace lockstep {

struct ScanOptions {
  int64_t length = -1;   // number of iterations; required without xs
  bool reverse = false;  // iterate from the last x to the first
  int64_t unroll = 1;    // iterations in each round of the compiled loop; at least the length: no loop
};

// Stands for missing xs: scan(f, init, Nothing{}, {.length = n}). Then f's second argument is a Nothing.
struct Nothing {};

namespace detail {

// Returns the number of iterations. Throws Error unless all xs have a leading axis of one length, or `length`
// is given, and unless `unroll` is positive.
int64_t scan_length(std::span<const Array> xs, const ScanOptions& options);
Arrays unrolled_scan(const Traced& body, std::span<const Array> init, std::span<const Array> xs, int64_t length,
                     const ScanOptions& options);
Type element_type(const Operand& xs);
// Unify the types of a carry before and after an iteration, and of the results of all branches. Numbers take
// the other side's element type; a value that varies on one side varies in the result. Throw Error where the
// types still differ; `what` is the function called.
std::vector<Type> carry_types(const char* what, std::span<const Array> init, std::span<const Array> carry);
std::vector<Type> branch_types(const char* what, std::span<const Arrays> results);
bool have_types(std::span<const Array>, std::span<const Type>);
// Convert an array, and all arrays of a tree, to these types.
Array widened(const Array&, const Type&);
template <class T>
void widen(T& tree, const std::vector<Type>& types) {
  const Type* to = types.data();
  for_each_array(tree, [&](Array& a) { a = widened(a, *to++); });
}
void check_predicate(const Array&);
// Throws Error unless the index is an integer scalar; returns it as i32.
Array branch_index(const Operand& index, size_t branches);
// All branches map the operands, and their own captures, to results of the same types.
Arrays switch_case(const Operand& index, std::span<const Traced> branches, std::span<const Array> operands);

// Calls f with each function of a tuple, pair, vector or array.
template <class Branches, class F>
void for_each_branch(const Branches& branches, const F& f) {
  if constexpr (is_tuple<Branches>) {
    std::apply([&](const auto&... each) { (f(each), ...); }, branches);
  } else {
    for (const auto& each : branches) f(each);
  }
}
template <class Branches>
auto first_branch_of(const Branches& branches) {
  if constexpr (is_tuple<Branches>)
    return std::get<0>(branches);
  else
    return *std::begin(branches);
}
template <class Branches>
using FirstBranch = std::decay_t<decltype(first_branch_of(std::declval<const Branches&>()))>;

// Traces all branches on the operands, with results of the same types. run(traced branches, arrays of the operands)
// returns the arrays of the result.
template <class Branches, class Run, class... Args>
auto run_branches(const char* what, const Branches& branches, const Run& run, const Args&... operands) {
  using Result = ResultOf<FirstBranch<Branches>, Args...>;
  std::vector<Type> types;  // common result types, once all branches are traced
  const auto traced = [&](const auto& branch) {
    static_assert(std::is_same_v<ResultOf<std::decay_t<decltype(branch)>, Args...>, Result>,
                  "cond, switch_case: the branches return different types");
    const auto in_types = [&](const auto&... each) {
      Result result = branch(each...);
      if (!types.empty()) widen(result, types);
      return result;
    };
    return trace_call(what, in_types, operands...);
  };
  std::vector<TracedCall<Result>> calls;
  std::vector<Arrays> results;
  for_each_branch(branches, [&](const auto& branch) {
    calls.push_back(traced(branch));
    results.push_back(tree_leaves(calls.back().result));
  });
  types = branch_types(what, results);
  size_t i = 0;
  std::vector<Traced> programs;
  for_each_branch(branches, [&](const auto& branch) {
    TreeStructure(calls[0].result, true)
        .check_same(TreeStructure(calls[i].result, true), what, "in one branch's result", "in the other's",
                    "a value that depends on the predicate must be an Array");
    if (!have_types(results[i], types)) calls[i] = traced(branch);
    programs.push_back(calls[i++].traced);
  });
  const Arrays made = run(programs, leaves_of(operands...));
  const Array* next = made.data();
  return replace_arrays(std::move(calls[0].result), next);
}

}  // namespace detail

// Calls f(carry, x) -> {carry, y} for each x along the leading axis of the arrays of `stacked`. Returns {last
// carry, all y stacked along a leading axis}. Throws Error when f changes the carry's structure or types, or
// a static value in it.
template <class F, class C, class X>
auto scan(const F& f, const C& first, const X& stacked, ScanOptions options = {}) {
  return detail::with_parameters<F>(
      [&]<class Carry, class Xs>(const Carry& init, const Xs& xs) {
        const detail::Arrays xs_leaves = tree_leaves(xs);
        const int64_t length = detail::scan_length(xs_leaves, options);
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
            types = detail::carry_types("scan", init_leaves, tree_leaves(result.first));
            if (detail::have_types(init_leaves, types)) {
              detail::TreeStructure(start, true)
                  .check_same(detail::TreeStructure(result.first, true), "scan", "in the initial carry",
                              "in the returned carry", "a value that changes between iterations must be an Array");
              detail::widen(result.first, types);
              const detail::Traced body = tracing.finish(tree_leaves(result));
              const detail::Arrays results = detail::unrolled_scan(body, init_leaves, xs_leaves, length, options);
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
auto cond(const Operand& predicate, const T& if_true, const E& if_false, const Args&... passed) {
  return detail::with_parameters<T>(
      [&](const auto&... operands) {
        static_assert(std::is_same_v<detail::ResultOf<T, std::decay_t<decltype(operands)>...>,
                                     detail::ResultOf<E, std::decay_t<decltype(operands)>...>>,
                      "cond, switch_case: the branches return different types");
        detail::check_predicate(predicate);
        const auto run = [&](std::span<const detail::Traced> branches, const detail::Arrays& arrays) {
          return detail::cond(predicate, branches[0], branches[1], arrays);
        };
        return detail::run_branches("cond", std::tuple<const T&, const E&>(if_true, if_false), run, operands...);
      },
      passed...);
}

// Computes branches[index](operands...). `branches` is a tuple, vector or array of functions, which must return trees
// of the same structure and types. The index, an integer scalar, is clamped to the range of branches. Only the chosen
// branch runs, except where the index varies over devices or examples: then all run. Throws Error for any other index.
template <class Branches, class... Args>
auto switch_case(const Operand& index, const Branches& branches, const Args&... passed) {
  return detail::with_parameters<detail::FirstBranch<Branches>>(
      [&](const auto&... operands) {
        const auto run = [&](std::span<const detail::Traced> traced, const detail::Arrays& arrays) {
          return detail::switch_case(detail::branch_index(index, traced.size()), traced, arrays);
        };
        return detail::run_branches("switch_case", branches, run, operands...);
      },
      passed...);
}

}  // namespace lockstep
