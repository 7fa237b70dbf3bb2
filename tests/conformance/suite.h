// The conformance suite: calls of JAX functions with their results and gradients, recorded by jax_cases/generate.py, and
// the functions of Lockstep that must return the same. Not thread-safe.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"

namespace lockstep::conformance {

using Json = nlohmann::json;
using Arrays = std::vector<Array>;

// A recorded call.
struct Case {
  std::string function;  // JAX's name
  Json attrs;
  std::vector<std::string> inputs;  // their keys, which say type, shape and domain
  double tolerance = 1;             // in units of the type's tolerance
  Arrays in, out;
  std::optional<Arrays> gradients;  // of the floating inputs

  std::string to_string() const;
};

// All cases, by function.
const std::map<std::string, std::vector<Case>>& all_cases();

// What an attribute may be in an expression of the table of functions: the operands and attributes of a case, by the
// names that JAX gives them.
struct Call {
  explicit Call(const Case&, Arrays operands);

  Arrays xs;
  Array x, y, z, w;  // the first operands
  int64_t axis = 0, n = 0, m = 0, k = 0, a = 0, b = 0, ddof = 0, decimals = 0, shift = 0, repeats = 0, d = 0, start = 0, stop = 0,
          step = 0, count = 0, groups = 1, low = 0, high = 0, length = 0, num_segments = 0, bins = 0, trans = 0;
  double q = 0, dx = 0, from = 0, to = 0, spacing = 0;
  std::optional<int64_t> maybe_axis;  // absent: JAX's None
  Axes axes;                          // also of `axis`
  bool keepdims = false, reverse = false, descending = false, lower = false, unit_diagonal = false, increasing = false,
       endpoint = true, antialias = true, approximate = true;
  Shape shape;
  DType dtype = f32;
  Array key;  // random::key of `seed`
  std::string method, mode, side, text, norm, indexing;
  Json attrs;

  std::vector<int64_t> integers(const char* name) const { return attrs.at(name).get<std::vector<int64_t>>(); }
  std::vector<std::pair<int64_t, int64_t>> pairs(const char* name) const;
  // The C++ number in the attribute `name`; undefined if that is null.
  Array number(const char* name) const;
};

struct Function {
  std::string jax;         // JAX's name, as in the cases
  std::string ours;        // the expression
  std::string difference;  // from JAX, deliberate; empty: none
  Arrays (*call)(const Call&);
  bool (*differs)(const Case&) = nullptr;  // the cases that the difference is about; they are not compared
};

// All functions, by JAX's name.
const std::map<std::string, Function>& all_functions();

inline Arrays results(Array x) { return {std::move(x)}; }
inline Arrays results(Arrays xs) { return xs; }
template <class... T>
Arrays results(std::tuple<T...> xs) {
  return std::apply([](auto&... each) { return Arrays{each...}; }, xs);
}
template <class A, class B>
Arrays results(std::pair<A, B> xs) {
  return {xs.first, xs.second};
}

// The entries of the table. In the expression, `x`, `axes` and so on are members of Call.
//
//   FUNCTION("jnp.sum", sum(x, axes, {.keepdims = keepdims}))
//   DIFFERS("jnp.mean", mean(x, axes), "...", [](const Case& c) { return ...; })
#define DIFFERS(name, expression, difference, cases)             \
  {                                                              \
    name, #expression, difference,                               \
        [](const Call& call) {                                   \
          struct At : Call {                                     \
            explicit At(const Call& c) : Call(c) {}              \
            Arrays run() const { return results(expression); }   \
          };                                                     \
          return At(call).run();                                 \
        },                                                       \
        cases                                                    \
  }
#define FUNCTION(name, ...) DIFFERS(name, (__VA_ARGS__), "", nullptr)

// Cases whose operands include one of this domain or type.
bool has_domain(const Case&, const char* domain);
bool has_type(const Case&, const char* type);

using Functions = std::vector<Function>;
Functions math_functions();
Functions reduce_functions();
Functions shape_functions();
Functions linear_functions();
Functions window_functions();
Functions random_functions();
Functions arrange_functions();

}  // namespace lockstep::conformance
