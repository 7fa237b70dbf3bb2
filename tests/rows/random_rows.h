// Every row, with its samples, for random programs. For tests.
#pragma once

#include <map>

#include "passes/random_equation.h"
#include "rows/rows.h"

namespace lockstep {

// Rows that do not occur in random programs, and why.
inline const std::map<std::string_view, const char*> kNotGenerated = {
    {"fused", "fusion makes it, of each lane's program"},
    {"einsum_fused", "fusion makes it, of each lane's program"},
    {"conv2d_fused", "fusion makes it, of each lane's program"},
    {"max_pool_grad_fused", "fusion makes it, of each lane's program"},
    {"quantize", "a small difference of x may round to another 8-bit float"},
    {"scaled_product", "its operands are results of quantize"},
};

struct RandomRowOptions {
  bool smooth = false;  // differentiable samples only, in f64
  size_t examples = 1;
  // Not 0: the program of one of N devices along kAxis, each with its example. Includes collectives along it.
  int64_t devices = 0;
};

// Whether the row is a collective along kAxis.
inline bool is_device_collective(const Op& op) { return row_of(op).samples[0].devices > 0; }

// The program with inputs that all vary over kAxis, as do its outputs.
inline ProgramPtr varying_program(const Program& p) {
  Builder b;
  Values map(p.types.size()), out;
  for (ValueId id : p.inputs) map[id] = b.input({p.types[id].dtype, p.types[id].shape, {kAxis}});
  for (const Eqn& eqn : p.eqns) {
    Values in;
    for (ValueId id : eqn.in) in.push_back(map[id]);
    const Values results = b.emit(*eqn.op, in, eqn.attrs);
    for (size_t k = 0; k < results.size(); ++k) map[eqn.out[k]] = results[k];
  }
  for (ValueId id : p.outputs) {
    const bool constant = map[id].type().varying.empty();
    out.push_back(constant ? emit(pvary_op, {map[id]}, {{"axis", std::string(kAxis)}}) : map[id]);
  }
  return std::make_shared<const Program>(b.take(out));
}

inline Attrs varying_attrs(const Attrs& attrs) {
  Attrs out = attrs;
  for (const auto& [name, value] : attrs)
    if (const auto* body = std::get_if<ProgramPtr>(&value)) out.set(name, varying_program(**body));
  return out;
}

class RandomRows {
 public:
  struct Choice {
    const Op* op;
    std::vector<Sample> samples;
  };

  explicit RandomRows(RandomRowOptions options = {}) : options_(options) {
    for (const Op* op : all_ops()) {
      if (op->is_collective() || kNotGenerated.contains(op->name)) continue;
      const bool collective = is_device_collective(*op);
      if (collective && options_.devices == 0) continue;
      Choice choice{op, {}};
      for (Sample sample : row_of(*op).samples) {
        if (!is_usable(*op, sample)) continue;
        if (options_.smooth) sample = in_f64(sample);
        if (collective) sample.devices = options_.devices;
        choice.samples.push_back(std::move(sample));
      }
      (collective ? collectives_ : rows_).push_back(std::move(choice));
    }
  }

  // Those without samples are in the lists, but not in programs.
  const std::vector<Choice>& rows() const { return rows_; }
  const std::vector<Choice>& collectives() const { return collectives_; }

  RandomEquation operator()(std::mt19937& random) const {
    const std::vector<Choice>& from = !collectives_.empty() && random() % 3 == 0 ? collectives_ : rows_;
    while (true) {
      const Choice& choice = from[random() % from.size()];
      if (choice.samples.empty()) continue;
      return equation_of(*choice.op, choice.samples[random() % choice.samples.size()], random);
    }
  }

 private:
  // Small, without NaN and infinities, and for this number of devices.
  bool is_usable(const Op& op, const Sample& sample) const {
    int64_t elements = 0;
    for (const SampleOperand& operand : sample.in) {
      elements += count(operand.type.shape);
      if (operand.domain.kind == Domain::special) return false;
    }
    // Complex sign() has no derivative here, as in JAX, and is not constant.
    if (options_.smooth && op.loop && !op.vjp && is_complex(infer_types(op, sample.types(), sample.attrs)[0].dtype))
      return false;
    const bool any_number = !sample.attrs.find("size");
    return elements <= 600 && (sample.smooth || !options_.smooth) &&
           (sample.devices == 0 || any_number || sample.devices == options_.devices);
  }

  static bool varies(const Type& t) { return !t.varying.empty(); }

  RandomEquation equation_of(const Op& op, const Sample& sample, std::mt19937& random) const {
    RandomEquation out{&op, sample.attrs, sample.types()};
    if (options_.devices > 0 && sample.devices == 0) let_vary(out, sample, random);
    for (size_t i = 0; i < sample.in.size(); ++i) {
      const auto& [type, domain, differentiable] = sample.in[i];
      out.wanted.push_back(is_inexact(type.dtype) && differentiable && sample.smooth);
      out.free.push_back((out.wanted[i] || type.dtype == boolean) && domain.kind == Domain::real && domain.lo <= -2 &&
                         domain.hi >= 2);
      out.source.push_back(domain.kind == Domain::pooled ? 0 : i);
      out.ties |= domain.kind == Domain::ties;
    }
    out.in = operands(sample, out.types, random);
    return out;
  }

  // Lets some operands vary over the devices; for a row with nested programs all or none, because their types vary, too.
  static void let_vary(RandomEquation& made, const Sample& sample, std::mt19937& random) {
    const bool nested = made.op->own_varying, all = nested && random() % 2 == 0;
    if (all) made.attrs = varying_attrs(sample.attrs);
    for (size_t i = 0; i < made.types.size(); ++i) {
      const bool pooled = sample.in[i].domain.kind == Domain::pooled;
      if (nested ? all : pooled ? varies(made.types[0]) : random() % 3 != 0) made.types[i].varying = {kAxis};
    }
  }

  // The operands of each example.
  std::vector<HostArrays> operands(const Sample& sample, const std::vector<Type>& types, std::mt19937& random) const {
    std::vector<HostArrays> out;
    const HostArrays first = make_inputs(sample, static_cast<uint32_t>(random()));  // of all devices, for a collective
    for (size_t e = 0; e < options_.examples; ++e) {
      const bool again = sample.devices == 0 && e > 0;
      out.push_back(again ? make_inputs(sample, static_cast<uint32_t>(random())) : first);
      for (size_t i = 0; i < types.size(); ++i) {
        if (sample.devices > 0 && varies(types[i])) out[e][i] = first[i].row(static_cast<int64_t>(e));
        if (options_.devices > 0 && !varies(types[i])) out[e][i] = first[i];
      }
    }
    return out;
  }

  RandomRowOptions options_;
  std::vector<Choice> rows_, collectives_;
};

}  // namespace lockstep
