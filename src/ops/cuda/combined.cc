#include "ops/cuda/combined.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

const CombinedKernel& kernel_of_row(const Attrs& attrs) {
  const auto& name = attrs.get<std::string>("kernel");
  for (const CombinedKernel* each : combined_kernels())
    if (each->name == name) return *each;
  std::string all;
  for (const CombinedKernel* each : combined_kernels()) all += fmt::format("{}{}", all.empty() ? "" : ", ", each->name);
  throw_error("combined: no kernel is named \"{}\"; choose one of {}", name, all);
}

std::vector<Type> combined_type(Types in, const Attrs& attrs) {
  kernel_of_row(attrs);  // it exists
  const Program& body = attrs.program("body");
  const std::vector<Type> wanted = body.input_types();
  if (in.size() != wanted.size())
    throw_error("combined: got {} operands for the {} inputs of the body", in.size(), wanted.size());
  for (size_t i = 0; i < in.size(); ++i)
    if (in[i] != wanted[i])
      throw_error("combined: operand {} is {} and the body's input is {}", i, to_string(in[i]), to_string(wanted[i]));
  return body.output_types();
}

bool combined_alias(Types, Types, const Attrs& attrs, size_t in, size_t out) {
  return kernel_of_row(attrs).alias(attrs.program("body"), in, out);
}

Kernel combined_cpu(const KernelSpec& spec) { return spec.compile(spec.attrs.program("body")); }

Kernel combined_cuda(const KernelSpec& spec) {
  if (Kernel kernel = kernel_of_row(spec.attrs).cuda(spec)) return kernel;
  return spec.compile(spec.attrs.program("body"));
}

size_t place_in(const std::vector<ValueId>& list, ValueId id) {
  return static_cast<size_t>(std::find(list.begin(), list.end(), id) - list.begin());
}

}  // namespace

constinit const Op combined_op = {
    .name = "combined",
    .type = combined_type,
    .alias = combined_alias,
    .cpu = combined_cpu,
    .cuda = combined_cuda,
};

Values combined(Builder& builder, std::string_view kernel, const Values& operands, Program body) {
  Attrs attrs{{"kernel", std::string(kernel)}};
  attrs.set("body", std::make_shared<const Program>(std::move(body)));
  return builder.emit(combined_op, operands, std::move(attrs));
}

std::span<const CombinedKernel* const> combined_kernels() {
  static constexpr const CombinedKernel* kAll[] = {&combined_cross_entropy, &combined_norm_grad, &combined_column_sums,
                                                   &combined_packed_attention};
  return kAll;
}

std::span<const Op* const> gpu_ops() {
  static const std::vector<const Op*> all = [] {
    std::vector<const Op*> out(all_ops().begin(), all_ops().end());
    out.push_back(&combined_op);
    return out;
  }();
  return all;
}

ValueUses::ValueUses(const Program& program)
    : program_(program),
      defined_by_(program.types.size(), -1),
      users_(program.types.size()),
      is_output_(program.types.size()) {
  for (size_t i = 0; i < program.eqns.size(); ++i) {
    for (const ValueId id : program.eqns[i].in) users_[id].push_back(i);
    for (const ValueId id : program.eqns[i].out) defined_by_[id] = static_cast<int>(i);
  }
  for (const ValueId id : program.outputs) is_output_[id] = true;
}

std::optional<size_t> ValueUses::only_user(ValueId id) const {
  return users_[id].size() == 1 && !is_output_[id] ? std::optional(users_[id][0]) : std::nullopt;
}

const Eqn* CombinedBody::find(const Op& op) const {
  for (const Eqn& eqn : body_.eqns)
    if (eqn.op == &op) return &eqn;
  return nullptr;
}

size_t CombinedBody::operand(ValueId id) const {
  const size_t at = place_in(body_.inputs, id);
  LOCKSTEP_CHECK(at < body_.inputs.size());
  return at;
}

std::optional<size_t> CombinedBody::result(ValueId id) const {
  const size_t at = place_in(body_.outputs, id);
  return at < body_.outputs.size() ? std::optional(at) : std::nullopt;
}

}  // namespace lockstep
