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
  // Not 0: the program of one device of so many along kAxis, each with its example. Includes collectives along it.
  int64_t devices = 0;
};

// Whether the row is a collective along kAxis.
inline bool is_device_collective(const Op& op) { return row_of(op).samples[0].devices > 0; }

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
    for (const Operand& operand : sample.in) {
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

  // Operand i on each device.
  static HostArrays on_devices(const HostArray& all, const Type& t, size_t devices) {
    HostArrays out;
    for (size_t d = 0; d < devices; ++d) out.push_back(varies(t) ? all.row(static_cast<int64_t>(d)) : all);
    return out;
  }

  RandomEquation equation_of(const Op& op, const Sample& sample, std::mt19937& random) const {
    RandomEquation out{&op, sample.attrs, sample.types(), std::vector<HostArrays>(options_.examples)};
    const bool nested = op.own_varying;  // the types of the nested program are those of the sample
    for (size_t i = 0; i < sample.in.size(); ++i) {
      const Operand& operand = sample.in[i];
      const bool pooled = operand.domain.kind == Domain::pooled;
      if (options_.devices > 0 && !nested && (pooled ? varies(out.types[0]) : random() % 3 != 0))
        out.types[i].varying = {kAxis};
      out.wanted.push_back(is_inexact(operand.type.dtype) && operand.differentiable && sample.smooth);
      out.free.push_back((out.wanted[i] || operand.type.dtype == boolean) && operand.domain.kind == Domain::real &&
                         operand.domain.lo <= -2 && operand.domain.hi >= 2);
      out.source.push_back(pooled ? 0 : i);
    }
    if (sample.devices > 0) {
      const HostArrays all = make_inputs(sample, static_cast<uint32_t>(random()));
      for (size_t i = 0; i < all.size(); ++i) {
        const HostArrays each = on_devices(all[i], out.types[i], options_.examples);
        for (size_t d = 0; d < each.size(); ++d) out.in[d].push_back(each[d]);
      }
      return out;
    }
    for (HostArrays& in : out.in) in = make_inputs(sample, static_cast<uint32_t>(random()));
    for (size_t i = 0; i < out.types.size(); ++i)
      for (HostArrays& in : out.in)
        if (options_.devices > 0 && !varies(out.types[i])) in[i] = out.in[0][i];
    return out;
  }

  RandomRowOptions options_;
  std::vector<Choice> rows_, collectives_;
};

}  // namespace lockstep
