// Builder::emit(): infers types and inserts the op `pvary`. The only part of Builder that names an op, so it is here
// and not in program/.
#include <algorithm>

#include "base/check.h"
#include "ops/ops.h"
#include "program/builder.h"

namespace lockstep {

Values Builder::emit(const Op& op, std::span<const Value> in, Attrs attrs) {
  std::vector<Type> types;
  types.reserve(in.size());
  bool varies = false;
  for (const Value& v : in) {
    types.push_back(v.type());
    varies |= !types.back().varying.empty();
  }
  if (!varies || op.own_varying) {
    const std::vector<Type> out = infer_types(op, types, attrs);
    return emit_typed(op, in, std::move(attrs), out);
  }
  std::vector<std::string> all;
  for (const Type& t : types) all = union_of(all, t.varying);
  Values alike(in.begin(), in.end());
  for (size_t i = 0; i < alike.size(); ++i) {
    for (const std::string& axis : all)
      if (!std::binary_search(types[i].varying.begin(), types[i].varying.end(), axis))
        alike[i] = emit(pvary_op, std::span<const Value>(&alike[i], 1), {{"axis", axis}})[0];
    types[i].varying = all;
  }
  const std::vector<Type> out = infer_types(op, types, attrs);
  return emit_typed(op, alike, std::move(attrs), out);
}

Value emit(const Op& op, std::initializer_list<Value> in, Attrs attrs) {
  return emit(op, std::span<const Value>(in.begin(), in.size()), std::move(attrs));
}

Value emit(const Op& op, std::span<const Value> in, Attrs attrs) {
  LOCKSTEP_CHECK(!in.empty());
  return in[0].builder().emit(op, in, std::move(attrs)).at(0);
}

}  // namespace lockstep
