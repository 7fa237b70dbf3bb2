#include "export/symbolic.h"

#include <fmt/format.h>

#include <optional>
#include <variant>

#include "base/check.h"
#include "program/op.h"

namespace lockstep {
namespace {

// Sizes that differ by one, so that a coefficient is a difference. The other sizes check the formulas.
constexpr int64_t kBatch = 61, kOtherBatch = 87;

struct Traces {
  int64_t tokens;  // of the first trace
  // At (kBatch, tokens), one more example, one more token, both.
  std::vector<Program> at;

  Extent solve(int64_t v, int64_t more_batch, int64_t more_tokens, int64_t more_both) const {
    Extent out;
    out.both = more_both - more_batch - more_tokens + v;
    out.batch = more_batch - v - out.both * tokens;
    out.tokens = more_tokens - v - out.both * kBatch;
    out.constant = v - out.batch * kBatch - out.tokens * tokens - out.both * kBatch * tokens;
    return out;
  }
  // `of(program)` is a number of the program.
  template <class F>
  Extent extent(const F& of) const {
    return solve(of(at[0]), of(at[1]), of(at[2]), of(at[3]));
  }
};

[[noreturn]] void throw_dependent(const Eqn& eqn, const std::string& what) {
  throw_error(
      "export: {} of the op {} depends on the number of examples or tokens; make the function independent of it", what,
      eqn.op->name);
}

// Throws Error unless both programs have the same equations and values.
void check_same_structure(const Program& a, const Program& b) {
  bool same = a.types.size() == b.types.size() && a.inputs == b.inputs && a.outputs == b.outputs &&
              a.eqns.size() == b.eqns.size();
  for (size_t i = 0; same && i < a.eqns.size(); ++i)
    if (a.eqns[i].op != b.eqns[i].op || a.eqns[i].in != b.eqns[i].in || a.eqns[i].out != b.eqns[i].out)
      throw_dependent(a.eqns[i], "an equation");
  for (size_t i = 0; same && i < a.types.size(); ++i)
    same = a.types[i].dtype == b.types[i].dtype && a.types[i].rank() == b.types[i].rank();
  if (!same)
    throw_error(
        "export: the equations depend on the number of examples or tokens; make the function independent of it");
}

std::optional<std::vector<int64_t>> numbers_of(const Attr& attr) {
  if (const auto* one = std::get_if<int64_t>(&attr)) return std::vector<int64_t>{*one};
  if (const auto* all = std::get_if<std::vector<int64_t>>(&attr)) return *all;
  return {};
}

SymbolicEqn symbolic_eqn(const Traces& traces, size_t index) {
  SymbolicEqn out{.eqn = traces.at[0].eqns[index], .extents = {}};
  for (const auto& [name, attr] : out.eqn.attrs) {
    std::vector<std::vector<int64_t>> all;
    for (const Program& program : traces.at) {
      const Attr* other = program.eqns[index].attrs.find(name);
      if (!other) throw_dependent(out.eqn, fmt::format("the attribute {}", name));
      const auto numbers = numbers_of(*other);
      if (numbers && (all.empty() || numbers->size() == all[0].size())) {
        all.push_back(*numbers);
      } else if (numbers || !equal_attrs(*other, attr)) {
        throw_dependent(out.eqn, fmt::format("the attribute {}", name));
      }
    }
    if (all.empty()) continue;
    Extents& extents = out.extents[name];
    for (size_t k = 0; k < all[0].size(); ++k)
      extents.push_back(traces.solve(all[0][k], all[1][k], all[2][k], all[3][k]));
  }
  return out;
}

// Compares the formulas with a program that was not used for them.
void check_formulas(const SymbolicProgram& symbolic, const Program& other, int64_t n, int64_t t) {
  check_same_structure(symbolic.program, other);
  for (size_t v = 0; v < other.types.size(); ++v)
    for (size_t d = 0; d < symbolic.shapes[v].size(); ++d)
      if (symbolic.shapes[v][d].at(n, t) != other.types[v].shape[d])
        throw_error("export: an extent is {} for {} examples{}, and not {}; make the function linear in them",
                    other.types[v].shape[d], n, t == 0 ? "" : fmt::format(" of {} tokens", t),
                    to_string(symbolic.shapes[v][d]));
  for (size_t i = 0; i < other.eqns.size(); ++i)
    for (const auto& [name, extents] : symbolic.eqns[i].extents) {
      const Attr* attr = other.eqns[i].attrs.find(name);
      const auto numbers = attr ? numbers_of(*attr) : std::nullopt;
      for (size_t k = 0; k < extents.size(); ++k)
        if (!numbers || numbers->size() != extents.size() || extents[k].at(n, t) != (*numbers)[k])
          throw_dependent(other.eqns[i], fmt::format("the attribute {}", name));
    }
}

void add_term(std::string& out, int64_t factor, const char* variable) {
  if (factor == 0) return;
  if (!out.empty()) out += " + ";
  if (factor != 1) out += std::to_string(factor) + "*";
  out += variable;
}

}  // namespace

std::string to_string(const Extent& extent) {
  std::string out;
  add_term(out, extent.both, "batch*tokens");
  add_term(out, extent.batch, "batch");
  add_term(out, extent.tokens, "tokens");
  if (extent.constant != 0 || out.empty()) out += (out.empty() ? "" : " + ") + std::to_string(extent.constant);
  return out;
}

SymbolicProgram trace_symbolic(const TraceAt& trace, int64_t tokens) {
  constexpr int64_t kLeastTokens = 5;
  LOCKSTEP_CHECK(tokens == 0 || tokens >= kLeastTokens, "{} tokens", tokens);
  // Below the largest number, where a table of positions would be used without a slice of it.
  const int64_t t = tokens == 0 ? 0 : tokens - 2, more = tokens == 0 ? 0 : 1;
  Traces traces{.tokens = t, .at = {}};
  for (const auto& [n, k] : {std::pair{kBatch, t}, {kBatch + 1, t}, {kBatch, t + more}, {kBatch + 1, t + more}})
    traces.at.push_back(trace(n, k));
  for (const Program& each : traces.at) check_same_structure(traces.at[0], each);
  SymbolicProgram out{.program = traces.at[0], .shapes = {}, .eqns = {}};
  for (size_t v = 0; v < out.program.types.size(); ++v) {
    Extents shape;
    for (size_t d = 0; d < out.program.types[v].shape.size(); ++d)
      shape.push_back(traces.extent([&](const Program& p) { return p.types[v].shape[d]; }));
    out.shapes.push_back(std::move(shape));
  }
  for (size_t i = 0; i < out.program.eqns.size(); ++i) out.eqns.push_back(symbolic_eqn(traces, i));
  const int64_t other = tokens == 0 ? 0 : 3;
  check_formulas(out, trace(kOtherBatch, other), kOtherBatch, other);
  return out;
}

}  // namespace lockstep
