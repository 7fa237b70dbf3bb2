// constrain. Its attributes are the fields of an Annotation: `axes` has the axes of each dimension, separated by
// commas, with dimensions separated by semicolons, and * for an unconstrained dimension. The attribute batch_axis is
// optional: the axis that shards the dimension of a batch.
#include "ops/constrain.h"

#include <algorithm>

#include "ops/dims.h"
#include "ops/ops.h"
#include "ops/view_copy.h"
#include "sharding/lanes.h"
#include "sharding/mesh_text.h"

namespace lockstep {
namespace {

constexpr std::string_view kUnconstrained = "*";

std::string axes_text(const Annotation& stated) {
  std::string out;
  for (size_t d = 0; d < stated.axes.size(); ++d) {
    if (d > 0) out += ';';
    out += stated.axes[d] ? join_axes(*stated.axes[d]) : std::string(kUnconstrained);
  }
  return out;
}

Attrs to_attrs(const Annotation& stated) {
  return {{"mesh", stated.mesh}, {"axes", axes_text(stated)}, {"by", stated.by}, {"at", stated.at}};
}

Annotation constrain_annotation(const Type& result, const Attrs& attrs) {
  Annotation stated{attrs.get<std::string>("mesh"), {}, attrs.get<std::string>("by"), attrs.get<std::string>("at")};
  const std::string_view text = attrs.get<std::string>("axes");
  for (size_t begin = 0; result.rank() > 0 && begin <= text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size());
    const std::string_view entry = text.substr(begin, end - begin);
    if (entry == kUnconstrained)
      stated.axes.emplace_back(std::nullopt);
    else
      stated.axes.emplace_back(split_axes(entry));
    begin = end + 1;
  }
  return stated;
}

std::vector<Type> constrain_type(Types in, const Attrs& attrs) {
  expect_operands("constrain", in, 1);
  LOCKSTEP_CHECK(constrain_annotation(in[0], attrs).axes.size() == in[0].shape.size(),
                 "constrain: axes '{}' do not match the rank of {}", attrs.get<std::string>("axes"), to_string(in[0]));
  return {in[0]};
}

// The cotangent has the same sharding as the value.
Grads constrain_vjp(const Vjp& v) { return {v.ct().builder().emit(constrain_op, Values{v.ct()}, v.attrs)[0]}; }

// The batch dimension is unconstrained, unless it represents the devices along an axis of the same mesh, or the
// attribute batch_axis names one (vmap's spmd_axis_name): then that axis shards it.
Batched constrain_batch(const Batch& b) {
  Type one = b.in[0].type();
  one.shape.erase(one.shape.begin());
  Annotation stated = constrain_annotation(one, b.attrs);
  const std::string given = b.attrs.get_or<std::string>("batch_axis", ""), &axis = given.empty() ? b.axis : given;
  const bool used = std::any_of(stated.axes.begin(), stated.axes.end(), [&](const auto& axes) {
    return axes && std::find(axes->begin(), axes->end(), axis) != axes->end();
  });
  const Mesh mesh = mesh_from_text(stated.mesh);
  if (!given.empty()) {
    mesh.size(given);  // throws if there is no such axis
    if (used)
      throw_error(
          "vmap: spmd_axis_name \"{}\" shards the batch, but {} in the function names that axis, too; remove it there",
          given, to_string(spec_of(stated)));
  }
  std::optional<std::vector<std::string>> front;
  if (!axis.empty() && !used && mesh.find_axis(axis)) front = {axis};
  stated.axes.insert(stated.axes.begin(), std::move(front));
  return constrain(b.in[0], stated);
}

View same_view(const Type&, const Type& out, const Attrs&) { return {0, dense_strides(out.shape)}; }
bool shares_memory(Types, Types, const Attrs&, size_t, size_t) { return true; }

}  // namespace

constinit const Op constrain_op = {.name = "constrain",
                                   .linear = Linear::one,
                                   .rule = pointwise_rule,
                                   .type = constrain_type,
                                   .vjp = constrain_vjp,
                                   .batch = constrain_batch,
                                   .view = same_view,
                                   .alias = shares_memory,
                                   .takes_float8 = true,
                                   .annotation = constrain_annotation,
                                   .cpu = view_kernel<same_view>};

Annotation annotation_of(const NamedSharding& sharding, size_t rank) {
  Annotation stated{mesh_text(sharding.mesh()), {}, "", ""};
  for (const SpecEntry& entry : sharding.spec().entries) stated.axes.emplace_back(entry.axes);
  LOCKSTEP_CHECK(stated.axes.size() <= rank);
  stated.axes.resize(rank, std::vector<std::string>());
  return stated;
}

Value constrain(Value x, const Annotation& stated) {
  return x.builder().emit(constrain_op, Values{x}, to_attrs(stated))[0];
}

PartitionSpec spec_of(const Annotation& stated) {
  PartitionSpec spec;
  for (const auto& axes : stated.axes) spec.entries.emplace_back(axes.value_or(std::vector<std::string>()));
  return spec.trimmed();
}

}  // namespace lockstep
