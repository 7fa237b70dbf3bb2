// Properties of random programs, and the loop over seeds that checks them. A property describes what is wrong, and
// returns an empty text if nothing is. A failure prints the seed and the smallest program found. For tests.
#pragma once

#include <fmt/format.h>

#include <csignal>
#include <cstdio>

#include "ops/ops.h"
#include "passes/random_program.h"

namespace lockstep {

// Describes the first difference; empty if there is none.
inline std::string difference(const HostArrays& got, const HostArrays& wanted, const std::vector<double>& error) {
  if (got.size() != wanted.size()) return fmt::format("{} outputs, wanted {}", got.size(), wanted.size());
  for (size_t k = 0; k < got.size(); ++k) {
    if (got[k].type != wanted[k].type)
      return fmt::format("output {} is {}, wanted {}", k, to_string(got[k].type), to_string(wanted[k].type));
    if (same_bits(got[k], wanted[k])) continue;
    for (int64_t i = 0; i < got[k].size(); ++i) {
      const double a = got[k].get(i), b = wanted[k].get(i);
      const bool same = (a == b && std::signbit(a) == std::signbit(b)) || (std::isnan(a) && std::isnan(b));
      if (same || std::abs(a - b) <= 4 * error[k]) continue;
      return fmt::format("element {} of output {} is {}, wanted {}, within {}", i, k, a, b, 4 * error[k]);
    }
  }
  return "";
}

// Equal within rounding of f64, relative to the largest element.
inline std::string far_apart(const HostArrays& got, const HostArrays& wanted) {
  std::vector<double> error;
  for (const HostArray& x : wanted) {
    double scale = is_inexact(x.type.dtype) ? 1 : 0;
    for (int64_t i = 0; i < x.size() && scale > 0; ++i)
      if (std::isfinite(x.get(i))) scale = std::max(scale, std::abs(x.get(i)));
    error.push_back(1e-8 * scale);
  }
  return difference(got, wanted, error);
}

using Property = std::function<std::string(const RandomProgram&, uint32_t seed)>;

// What an exception says is wrong, too.
inline std::string guarded(const Property& property, const RandomProgram& r, uint32_t seed) {
  try {
    return property(r, seed);
  } catch (const std::exception& e) {
    return e.what();
  }
}

// The program with one of its outputs.
inline RandomProgram with_output(const RandomProgram& r, size_t k) {
  RandomProgram out = r;
  out.program.outputs = {r.program.outputs[k]};
  out.program = drop_dead(out.program);
  out.error = {r.error[k]};
  return out;
}

// Prints the seed if a check of the library aborts the process.
class SeedOnAbort {
 public:
  SeedOnAbort() : before_(std::signal(SIGABRT, print)) {}
  ~SeedOnAbort() { std::signal(SIGABRT, before_); }
  SeedOnAbort(const SeedOnAbort&) = delete;
  SeedOnAbort& operator=(const SeedOnAbort&) = delete;
  void set(uint32_t seed) { seed_ = seed; }

 private:
  static void print(int) { std::fprintf(stderr, "seed %u\n", seed_); }

  static inline volatile uint32_t seed_ = 0;
  void (*before_)(int);
};

// Checks the property of the program of each seed.
inline void expect_always(const Property& property, uint32_t programs,
                          const std::function<RandomProgram(uint32_t seed)>& make) {
  SeedOnAbort on_abort;
  for (uint32_t seed = 0; seed < programs; ++seed) {
    on_abort.set(seed);
    const RandomProgram r = make(seed);
    const std::string wrong = guarded(property, r, seed);
    if (wrong.empty()) continue;
    RandomProgram least = r;
    for (size_t k = 0; k < r.program.outputs.size(); ++k)
      if (const RandomProgram one = with_output(r, k);
          !guarded(property, one, seed).empty() && one.program.eqns.size() < least.program.eqns.size())
        least = one;
    FAIL() << "seed " << seed << ": " << wrong << "\n" << print(least.program) << guarded(property, least, seed);
  }
}

inline std::string simplified_differs(const RandomProgram& r, uint32_t) {
  return difference(eager(simplify(r.program), r.inputs), eager(r.program, r.inputs), r.error);
}

inline std::string plan_differs(const RandomProgram& r, uint32_t) {
  return difference(planned(r.program, r.inputs), eager(r.program, r.inputs), r.error);
}

inline std::string donation_differs(const RandomProgram& r, uint32_t seed) {
  const HostArrays wanted = eager(r.program, r.inputs);
  std::mt19937 random(seed);
  std::vector<bool> donated;
  HostArrays inputs;
  for (const HostArray& x : r.inputs) {
    donated.push_back(random() % 3 != 0);
    inputs.push_back(copy_of(x));
  }
  const std::string wrong = difference(planned(r.program, inputs, donated), wanted, r.error);
  if (!wrong.empty()) return wrong;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!donated[i] && !same_bits(inputs[i], r.inputs[i]))
      return fmt::format("input {} was written to and not donated", i);
  return "";
}

inline std::string text_round_trip(const Program& p) {
  check(p);
  const std::string text = print(p);
  const Program again = parse(text, all_ops());
  if (print(again) != text) return "printed otherwise when parsed:\n" + text;
  return hash(again) == hash(p) ? "" : "hashed otherwise when parsed:\n" + text;
}

// What passes make of a program, except for lowering.
inline std::vector<Program> transformed(const RandomProgram& r) {
  const Program& p = r.program;
  const Program both = joint(p, r.wanted);
  const Split parts = split(both, p.inputs.size(), p.outputs.size());
  const auto batched = [](const Program& q, int64_t n) {
    return batch(q, std::vector<bool>(q.inputs.size(), true), n, {}).program;
  };
  std::vector<Program> all = {p,           simplify(p), drop_dead(p),  recognize(p),    both,
                              parts.known, parts.rest,  batched(p, 3), batched(both, 2)};
  if (has_tangents(p)) all.push_back(jvp(p, r.wanted));
  return all;
}

// All programs are valid, and their text can be parsed again.
inline std::string some_invalid(const std::vector<Program>& all) {
  for (const Program& p : all)
    if (std::string wrong = text_round_trip(p); !wrong.empty()) return wrong;
  return "";
}

inline std::string pass_is_invalid(const RandomProgram& r, uint32_t) {
  std::vector<Program> all = transformed(r), lowered;
  for (const Program& p : all) lowered.push_back(lower(p));
  const std::string wrong = some_invalid(all);
  return wrong.empty() ? some_invalid(lowered) : wrong;
}

// The program with only its outputs from `n` on.
inline Program without_first(Program p, size_t n) {
  p.outputs.erase(p.outputs.begin(), p.outputs.begin() + static_cast<std::ptrdiff_t>(n));
  return p;
}

// Numbers for the inputs of p from `first` on, such as cotangents.
inline HostArrays numbers_for(const Program& p, size_t first, uint32_t seed) {
  HostArrays out;
  for (size_t i = first; i < p.inputs.size(); ++i) out.push_back(normal_numbers(p.types[p.inputs[i]], ++seed));
  return out;
}

inline HostArrays joined(HostArrays a, const HostArrays& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The inputs of all examples.
inline HostArrays stacked(const std::vector<HostArrays>& examples) {
  HostArrays out;
  for (size_t i = 0; i < examples[0].size(); ++i) out.push_back(stack(examples, i));
  return out;
}

// Derivatives of a batch are a batch of derivatives.
inline std::string derivative_of_batch_differs(const RandomProgram& r, uint32_t seed) {
  const Program& p = r.program;
  const auto n = static_cast<int64_t>(r.examples.size());
  const auto batched = [n](const Program& q) {
    return batch(q, std::vector<bool>(q.inputs.size(), true), n, std::vector<bool>(q.outputs.size(), true)).program;
  };
  const auto compare = [&](const Program& of_batch, const Program& of_one) {
    const Program all = batched(of_one);
    const HostArrays inputs = joined(stacked(r.examples), numbers_for(all, p.inputs.size(), seed));
    return far_apart(planned(of_batch, inputs), planned(all, inputs));
  };
  std::string wrong = compare(joint(batched(p), r.wanted), joint(p, r.wanted));
  if (wrong.empty() && has_tangents(p)) wrong = compare(jvp(batched(p), r.wanted), jvp(p, r.wanted));
  return wrong;
}

// Tangents are the gradient of gradients with respect to their cotangents.
inline std::string tangents_differ(const RandomProgram& r, uint32_t seed) {
  const Program& p = r.program;
  if (!has_tangents(p)) return "";
  const Program gradients = without_first(joint(p, r.wanted), p.outputs.size());
  std::vector<bool> cotangents(gradients.inputs.size(), false);
  std::fill(cotangents.begin() + static_cast<std::ptrdiff_t>(p.inputs.size()), cotangents.end(), true);
  const Program transposed = without_first(joint(gradients, cotangents), gradients.outputs.size());
  const HostArrays all = joined(r.inputs, numbers_for(transposed, p.inputs.size(), seed));
  HostArrays inputs = r.inputs;
  inputs.insert(inputs.end(), all.begin() + static_cast<std::ptrdiff_t>(gradients.inputs.size()), all.end());
  return far_apart(planned(without_first(jvp(p, r.wanted), p.outputs.size()), inputs), planned(transposed, all));
}

// The tangents of gradients along a direction are the gradient of the tangents along it: a Hessian is symmetric.
inline std::string second_derivatives_differ(const RandomProgram& r, uint32_t seed) {
  const Program& p = r.program;
  if (!has_tangents(p)) return "";
  const size_t n = p.inputs.size(), outputs = p.outputs.size();
  const Program gradients = without_first(joint(p, r.wanted), outputs),
                tangents = without_first(jvp(p, r.wanted), outputs);
  const auto wanted = [&](const Program& q) {
    std::vector<bool> out = r.wanted;
    out.resize(q.inputs.size(), false);
    return out;
  };
  const HostArrays cts = numbers_for(gradients, n, seed), directions = numbers_for(tangents, n, ~seed);
  const Program forward = without_first(jvp(gradients, wanted(gradients)), gradients.outputs.size());
  const Program reverse = without_first(joint(tangents, wanted(tangents)), tangents.outputs.size());
  return far_apart(planned(forward, joined(r.inputs, joined(cts, directions))),
                   planned(reverse, joined(r.inputs, joined(directions, cts))));
}

// The two parts of a split program compute the same as the program.
inline std::string split_differs(const RandomProgram& r, uint32_t seed) {
  const Program& p = r.program;
  const Program both = joint(p, r.wanted);
  const Split parts = split(both, p.inputs.size(), p.outputs.size());
  const HostArrays cotangents = numbers_for(both, p.inputs.size(), seed);
  HostArrays got = planned(parts.known, r.inputs);
  const auto cut = got.begin() + static_cast<std::ptrdiff_t>(parts.outputs);
  const HostArrays rest_in = joined({cut, got.end()}, cotangents);
  got.erase(cut, got.end());
  return far_apart(joined(got, planned(parts.rest, rest_in)), planned(both, joined(r.inputs, cotangents)));
}

}  // namespace lockstep
