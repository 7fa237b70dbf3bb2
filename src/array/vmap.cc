// vmap: batches a traced function.
#include "lockstep/vmap.h"

#include "array/apply.h"
#include "array/flat_values.h"
#include "base/check.h"
#include "ops/dims.h"
#include "ops/shape_ops.h"
#include "passes/passes.h"

namespace lockstep::detail {

template class SharedOptions<VmapOptions>;

VmapProgram batch_program(const Traced& traced, std::vector<bool> batched, int64_t size, const std::vector<bool>& force,
                          const std::string& axis) {
  batched.resize(traced.program->inputs.size(), false);
  BatchedProgram b = batch(*traced.program, batched, size, force, axis);
  return {std::make_shared<const Program>(std::move(b.program)), std::move(b.batched)};
}

Type without_axis(const Type& type, int64_t axis) {
  Type out = type;
  out.shape.erase(out.shape.begin() + (axis < 0 ? axis + type.rank() : axis));
  return out;
}

Array axis_to_front(const Array& x, int64_t axis) {
  const int64_t at = axis < 0 ? axis + x.rank() : axis;
  if (at == 0) return x;
  return apply1("vmap", {x}, [&](Builder&, const Values& v) { return transpose(v[0], move_dim(v[0].rank(), at, 0)); });
}

Array front_to_axis(const Array& x, int64_t axis) {
  const int64_t at = axis < 0 ? axis + x.rank() : axis;
  if (at == 0) return x;
  if (at < 0 || at >= x.rank())
    throw_error("vmap: a batched result is {}, for which out_axes {} is out of range; use an axis within its rank",
                to_string(x.type()), axis);
  return apply1("vmap", {x}, [&](Builder&, const Values& v) { return transpose(v[0], move_dim(v[0].rank(), 0, at)); });
}

namespace {

// Sets `size` to the extent of the mapped axis. Throws Error when the axis does not exist or its extent differs from that
// of an earlier array. `size` starts at -1.
void update_batch_size(int64_t& size, const Array& array, std::optional<int64_t> axis, const std::string& path) {
  if (!axis) return;
  const int64_t rank = array.rank(), at = *axis < 0 ? *axis + rank : *axis;
  if (at < 0 || at >= rank)
    throw_error("vmap: {} is {} and has no axis {}; set its in_axes to std::nullopt to share it", path,
                to_string(array.type()), *axis);
  const int64_t n = array.shape()[static_cast<size_t>(at)];
  if (size >= 0 && n != size)
    throw_error("vmap: {} is {}, {} along axis {}, but an earlier argument has {}; mapped axes must have equal extents",
                path, to_string(array.type()), n, *axis, size);
  size = n;
}

// The type of one example. With a named axis everything varies over it, shared arguments included, so that gradients are
// each example's own.
Type example_type(const Type& type, std::optional<int64_t> axis, const std::string& axis_name) {
  Type out = axis ? without_axis(type, *axis) : type;
  if (!axis_name.empty()) out.varying = union_of(out.varying, {axis_name});
  return out;
}

void check_shared_results(const std::vector<bool>& batched, const std::vector<Axis>& axes) {
  for (size_t i = 0; i < batched.size(); ++i)
    if (batched[i] && !axes[i])
      throw_error(
          "vmap: result {} depends on the mapped arguments, but out_axes is std::nullopt; set an axis, or reduce the "
          "result over the batch (psum over the axis name)",
          i);
}

// The axis of each array of the arguments, and a check that all exist and have one extent, which is returned.
int64_t batch_size(const std::vector<Axis>& axes, const FlatTrees& args) {
  int64_t size = -1;
  for (size_t i = 0, at = 0; i < args.counts.size(); ++i)
    for (size_t k = 0; k < args.counts[i]; ++k, ++at)
      update_batch_size(size, args.arrays[at], axes[at],
                        fmt::format("argument {}{}{}", i, args.paths[at].empty() ? "" : ", ", args.paths[at]));
  if (size < 0) throw_error("vmap: no argument is mapped; at least one entry of in_axes must be an axis");
  return size;
}

void check_out_axes(size_t axes, size_t elements) {
  if (axes != elements)
    throw_error("vmap: out_axes has {} entries for a result of {} elements; give one for the whole result or one per element",
                axes, elements);
}

}  // namespace

Arrays vmap_arrays(const VmapOptions& options, const FlatTrees& args, const FlatFunction& f) {
  if (options.in_axes.size() > args.counts.size())
    throw_error("vmap: in_axes has {} entries for {} arguments; give at most one per argument", options.in_axes.size(),
                args.counts.size());
  const std::vector<Axis> axes = values_of_arguments(options.in_axes, args, "vmap: in_axes", Axis(0));
  const int64_t size = batch_size(axes, args);
  if (options.check) options.check(size, options.axis_name);
  std::vector<bool> batched;
  Arrays leaves;
  for (size_t i = 0; i < axes.size(); ++i) {
    batched.push_back(axes[i].has_value());
    leaves.push_back(axes[i] ? axis_to_front(args.arrays[i], *axes[i]) : args.arrays[i]);
  }
  std::optional<AxisScope> scope;
  if (!options.axis_name.empty()) scope.emplace(options.axis_name, size);
  Tracing tracing("vmap");
  Arrays inputs;
  for (size_t i = 0; i < axes.size(); ++i)
    inputs.push_back(tracing.input(example_type(args.arrays[i].type(), axes[i], options.axis_name), args.arrays[i]));
  const FlatTrees result = f(inputs.data());
  const std::vector<Axis> out_axes = values_of_result(options.out_axes, result, "vmap: out_axes", check_out_axes);
  std::vector<bool> force;
  for (const Axis& axis : out_axes) force.push_back(axis.has_value());
  const Traced traced = tracing.finish(result.arrays);
  const VmapProgram program = batch_along(traced, batched, size, force, options.axis_name, options.spmd_axis_name);
  Arrays results = call(program.program, with_captures(leaves, traced));
  check_shared_results(program.batched, out_axes);
  for (size_t i = 0; i < results.size(); ++i)
    if (out_axes[i]) results[i] = front_to_axis(results[i], *out_axes[i]);
  return results;
}

}  // namespace lockstep::detail
