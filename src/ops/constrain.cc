// constrain, whose attributes are the fields of an Annotation: `axes` has the axes of each dimension, separated by
// commas, dimensions separated by semicolons, and * where nothing is said.
#include "ops/constrain.h"

#include <algorithm>

#include "ops/dims.h"
#include "ops/ops.h"
#include "ops/view_copy.h"
#include "sharding/lanes.h"
#include "sharding/mesh_text.h"

namespace lockstep {
namespace {

constexpr std::string_view kOpen = "*";

std::string axes_text(const Annotation& said) {
  std::string out;
  for (size_t d = 0; d < said.axes.size(); ++d) {
    if (d > 0) out += ';';
    out += said.axes[d] ? join_axes(*said.axes[d]) : std::string(kOpen);
  }
  return out;
}

Attrs to_attrs(const Annotation& said) {
  return {{"mesh", said.mesh}, {"axes", axes_text(said)}, {"by", said.by}, {"at", said.at}};
}

Annotation constrain_annotation(const Type& result, const Attrs& attrs) {
  Annotation said{attrs.get<std::string>("mesh"), {}, attrs.get<std::string>("by"), attrs.get<std::string>("at")};
  const std::string_view text = attrs.get<std::string>("axes");
  for (size_t begin = 0; result.rank() > 0 && begin <= text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size());
    const std::string_view entry = text.substr(begin, end - begin);
    if (entry == kOpen)
      said.axes.emplace_back(std::nullopt);
    else
      said.axes.emplace_back(split_axes(entry));
    begin = end + 1;
  }
  return said;
}

std::vector<Type> constrain_type(Types in, const Attrs& attrs) {
  expect_operands("constrain", in, 1);
  LOCKSTEP_CHECK(constrain_annotation(in[0], attrs).axes.size() == in[0].shape.size(),
                 "constrain: '{}' says how {} lies", attrs.get<std::string>("axes"), to_string(in[0]));
  return {in[0]};
}

// The cotangent lies like the value.
Grads constrain_vjp(const Vjp& v) { return {v.ct().builder().emit(constrain_op, Values{v.ct()}, v.attrs)[0]}; }

// Of a batch nothing was said, unless it is the devices along an axis of the same mesh, which is then what cuts it.
Batched constrain_batch(const Batch& b) {
  Type one = b.in[0].type();
  one.shape.erase(one.shape.begin());
  Annotation said = constrain_annotation(one, b.attrs);
  const bool used = std::any_of(said.axes.begin(), said.axes.end(), [&](const auto& axes) {
    return axes && std::find(axes->begin(), axes->end(), b.axis) != axes->end();
  });
  std::optional<std::vector<std::string>> front;
  if (!b.axis.empty() && !used && mesh_from_text(said.mesh).find_axis(b.axis)) front = {b.axis};
  said.axes.insert(said.axes.begin(), std::move(front));
  return constrain(b.in[0], said);
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
                                   .annotation = constrain_annotation,
                                   .cpu = view_kernel<same_view>};

Annotation annotation_of(const NamedSharding& sharding, size_t rank) {
  Annotation said{mesh_text(sharding.mesh()), {}, "", ""};
  for (const SpecEntry& entry : sharding.spec().entries) said.axes.emplace_back(entry.axes);
  LOCKSTEP_CHECK(said.axes.size() <= rank);
  said.axes.resize(rank, std::vector<std::string>());
  return said;
}

Value constrain(Value x, const Annotation& said) {
  return x.builder().emit(constrain_op, Values{x}, to_attrs(said))[0];
}

PartitionSpec spec_of(const Annotation& said) {
  PartitionSpec spec;
  for (const auto& axes : said.axes) spec.entries.emplace_back(axes.value_or(std::vector<std::string>()));
  return spec.trimmed();
}

}  // namespace lockstep
