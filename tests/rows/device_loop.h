// Runs the program of one device on several devices, one after another: what shard_map has to equal. For tests.
#pragma once

#include "rows/random_rows.h"

namespace lockstep {

inline Attrs without_varying(const Attrs& attrs);

// The program without axes that values vary over, in its types and in nested programs.
inline Program without_varying(const Program& p) {
  Program out = p;
  std::vector<ValueId> same(p.types.size());
  for (size_t id = 0; id < same.size(); ++id) same[id] = static_cast<ValueId>(id);
  for (Type& t : out.types) t.varying.clear();
  std::erase_if(out.eqns, [&](const Eqn& eqn) {
    if (eqn.op == &pvary_op) same[eqn.out[0]] = same[eqn.in[0]];
    return eqn.op == &pvary_op;
  });
  for (Eqn& eqn : out.eqns) {
    for (ValueId& id : eqn.in) id = same[id];
    eqn.attrs = without_varying(eqn.attrs);
  }
  for (ValueId& id : out.outputs) id = same[id];
  return out;
}

inline Attrs without_varying(const Attrs& attrs) {
  Attrs out = attrs;
  for (const auto& [name, value] : attrs)
    if (const auto* body = std::get_if<ProgramPtr>(&value))
      out.set(name, std::make_shared<const Program>(without_varying(**body)));
  return out;
}

// The results of a collective on each device, by the reference of its row.
inline std::vector<HostArrays> collective_on_devices(const Program& p, const Eqn& eqn,
                                                     const std::vector<HostArrays>& in) {
  Sample sample{{}, eqn.attrs};
  sample.devices = static_cast<int64_t>(in.size());
  RefArrays operands;
  for (size_t i = 0; i < eqn.in.size(); ++i) {
    const Type& t = p.types[eqn.in[i]];
    sample.in.push_back({t});
    operands.push_back(to_reference(t.varying.empty() ? in[0][i] : stack(in, i)));
  }
  const RefArrays results = reference_of(*eqn.op, sample, operands);
  std::vector<HostArrays> out(in.size());
  for (size_t k = 0; k < results.size(); ++k) {
    const HostArray y = from_reference(results[k]);
    for (size_t d = 0; d < out.size(); ++d)
      out[d].push_back(p.types[eqn.out[k]].varying.empty() ? y : y.row(static_cast<int64_t>(d)));
  }
  return out;
}

// The outputs of each device. Collectives are not in nested programs.
inline std::vector<HostArrays> eager_on_devices(const Program& p, const std::vector<HostArrays>& inputs) {
  const size_t n = inputs.size();
  std::vector<HostArrays> values(n, HostArrays(p.types.size())), out(n);
  for (size_t d = 0; d < n; ++d)
    for (size_t i = 0; i < p.inputs.size(); ++i) values[d][p.inputs[i]] = inputs[d][i];
  for (const Eqn& eqn : p.eqns) {
    std::vector<HostArrays> in(n), results(n);
    for (size_t d = 0; d < n; ++d)
      for (ValueId id : eqn.in) in[d].push_back(values[d][id]);
    if (is_device_collective(*eqn.op)) {
      results = collective_on_devices(p, eqn, in);
    } else {
      const Attrs attrs = without_varying(eqn.attrs);
      for (size_t d = 0; d < n; ++d) results[d] = eager_op(*eqn.op, attrs, in[d]);
    }
    for (size_t d = 0; d < n; ++d)
      for (size_t k = 0; k < eqn.out.size(); ++k) values[d][eqn.out[k]] = results[d][k];
  }
  for (size_t d = 0; d < n; ++d)
    for (ValueId id : p.outputs) out[d].push_back(values[d][id]);
  return out;
}

}  // namespace lockstep
