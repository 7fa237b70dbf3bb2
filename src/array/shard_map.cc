#include "lockstep/shard_map.h"

#include <algorithm>

#include "array/apply.h"
#include "array/flat_values.h"
#include "base/check.h"
#include "ops/constrain.h"
#include "ops/dims.h"
#include "ops/shape_ops.h"
#include "passes/passes.h"

namespace lockstep::detail {

template class SharedOptions<ShardMapOptions>;
namespace {

// The mesh axes in scope for the function, in mesh order.
std::vector<std::string> manual_axes(const ShardMapOptions& options) {
  if (!options.mesh.defined()) throw_error("shard_map: no mesh is given; pass {{.mesh = make_mesh(...)}}");
  if (options.axes.empty()) return options.mesh.axis_names();
  std::vector<std::string> out;
  for (const std::string& axis : options.axes) options.mesh.size(axis);  // throws when unknown
  for (const std::string& axis : options.mesh.axis_names())
    if (std::find(options.axes.begin(), options.axes.end(), axis) != options.axes.end()) out.push_back(axis);
  return out;
}

bool names(const PartitionSpec& spec, const std::string& axis) {
  for (const SpecEntry& entry : spec.entries)
    if (std::find(entry.axes.begin(), entry.axes.end(), axis) != entry.axes.end()) return true;
  return false;
}

// Converts between a global array and its shards stacked along leading axes, one per mesh axis of the spec.
// Example: [8, 6] with P("i") on 4 devices:
//
//   [8, 6] --reshape--> split [4, 2, 6] --transpose axes_first--> [4, 2, 6]  (device, shard)
struct ShardStack {
  Shape split;      // the global shape with every sharded dimension as [axes..., rest]
  Dims axes_first;  // permutation of `split`: axes in mesh order, then the rest
  Shape global;

  ShardStack(const Shape& global_shape, const PartitionSpec& spec, const Mesh& mesh,
             const std::vector<std::string>& axes)
      : global(global_shape) {
    std::vector<int64_t> axis_dim(axes.size(), -1);  // the dimension of `split` for each axis
    Dims rest;
    for (size_t d = 0; d < global.size(); ++d) {
      int64_t extent = global[d];
      if (d < spec.entries.size()) {
        for (const std::string& axis : spec.entries[d].axes) {
          const auto at = std::find(axes.begin(), axes.end(), axis);
          if (at == axes.end()) continue;
          axis_dim[static_cast<size_t>(at - axes.begin())] = static_cast<int64_t>(split.size());
          split.push_back(mesh.size(axis));
          extent /= mesh.size(axis);
        }
      }
      rest.push_back(static_cast<int64_t>(split.size()));
      split.push_back(extent);
    }
    for (int64_t d : axis_dim)
      if (d >= 0) axes_first.push_back(d);
    axes_first.insert(axes_first.end(), rest.begin(), rest.end());
  }

  Value stack_shards(Value x) const { return transpose(reshape(x, split), axes_first); }
  Value unstack_shards(Value x) const { return reshape(transpose(x, inverse(axes_first)), global); }
};

// The shape of the array whose shards have shape `shard`.
Shape global_shape(const Shape& shard, const PartitionSpec& spec, const Mesh& mesh,
                   const std::vector<std::string>& axes) {
  Shape out = shard;
  for (size_t d = 0; d < spec.entries.size(); ++d)
    for (const std::string& axis : spec.entries[d].axes)
      if (std::find(axes.begin(), axes.end(), axis) != axes.end()) out[d] *= mesh.size(axis);
  return out;
}

// Constrains a value to its spec. Axes outside the function's scope may shard it further.
Value constrain_to_spec(Value x, const PartitionSpec& spec, const Mesh& mesh, const std::vector<std::string>& axes) {
  Annotation annotation = annotation_of(NamedSharding(mesh, spec), x.shape().size());
  annotation.by = "shard_map";
  if (axes.size() < mesh.axis_names().size())
    for (auto& dimension : annotation.axes)
      if (dimension->empty()) dimension.reset();
  return constrain(x, annotation);
}

}  // namespace

namespace {

// Brings the options' mesh axes into scope for collectives of the calling thread, until destroyed.
class MeshScope {
 public:
  explicit MeshScope(const ShardMapOptions& options) {
    for (const std::string& axis : manual_axes(options))
      scopes_.push_back(std::make_unique<AxisScope>(axis, options.mesh.size(axis)));
  }
  ~MeshScope() {
    while (!scopes_.empty()) scopes_.pop_back();  // the last first
  }
  MeshScope(const MeshScope&) = delete;
  MeshScope& operator=(const MeshScope&) = delete;

 private:
  std::vector<std::unique_ptr<AxisScope>> scopes_;
};

void check_out_specs(size_t specs, size_t elements) {
  if (specs != elements)
    throw_error(
        "shard_map: {} out_specs for a result of {} elements; give one spec for the whole result or one per element",
        specs, elements);
}

// The type of one device's shard of an array. Throws Error when shards would be uneven.
Type device_type(const Array& array, const ShardMapOptions& options, const PartitionSpec& spec,
                 const std::string& path) {
  const std::vector<std::string> axes = manual_axes(options);
  NamedSharding(options.mesh, spec);  // throws for unknown and repeated axes
  Type type = array.type();
  if (spec.entries.size() > type.shape.size())
    throw_error("shard_map: {} is {}, of rank {}, but its spec {} has {} entries; give at most one per dimension", path,
                to_string(type), type.rank(), to_string(spec), spec.entries.size());
  for (size_t d = 0; d < spec.entries.size(); ++d) {
    int64_t pieces = 1;
    std::string by;
    for (const std::string& axis : spec.entries[d].axes) {
      if (std::find(axes.begin(), axes.end(), axis) == axes.end()) continue;
      pieces *= options.mesh.size(axis);
      by += (by.empty() ? "\"" : ", \"") + axis + "\"";
      type.varying = union_of(type.varying, {axis});
    }
    if (type.shape[d] % pieces != 0)
      throw_error(
          "shard_map: {}: dimension {} of {} is sharded {} ways by {}; per-device code needs equal shards, but {} is "
          "not a multiple of {}; pad the batch, or use jit, which allows uneven shards",
          path, d, to_string(type.shape), pieces, by, type.shape[d], pieces);
    type.shape[d] /= pieces;
  }
  return type;
}

}  // namespace

Arrays shard_map_arrays(const ShardMapOptions& options, const FlatTrees& args, const FlatFunction& f) {
  if (options.in_specs.size() != args.counts.size())
    throw_error("shard_map: {} in_specs for {} arguments; give one spec per argument, P() for a replicated one",
                options.in_specs.size(), args.counts.size());
  const MeshScope scope(options);
  const std::vector<PartitionSpec> in = values_of_arguments(options.in_specs, args, "shard_map: in_specs");
  Tracing tracing("shard_map");
  Arrays inputs;
  for (size_t i = 0, at = 0; i < args.counts.size(); ++i)
    for (size_t k = 0; k < args.counts[i]; ++k, ++at) {
      const std::string& path = args.paths[at];
      const std::string name = fmt::format("argument {}{}{}", i, path.empty() ? "" : ", ", path);
      inputs.push_back(tracing.input(device_type(args.arrays[at], options, in[at], name), args.arrays[at]));
    }
  const FlatTrees result = f(inputs.data());
  const std::vector<PartitionSpec> out =
      values_of_result(options.out_specs, result, "shard_map: out_specs", check_out_specs);
  return run_per_device(tracing.finish(result.arrays), args.arrays, in, out, options);
}

Arrays run_per_device(const Traced& traced, std::span<const Array> args, const std::vector<PartitionSpec>& in,
                      const std::vector<PartitionSpec>& out, const ShardMapOptions& options) {
  const std::vector<std::string> axes = manual_axes(options);
  Program program = *traced.program;
  std::vector<Shape> shapes;  // of the results
  for (size_t i = 0; i < out.size(); ++i) {
    const Type& t = program.types[program.outputs[i]];
    NamedSharding(options.mesh, out[i]);
    if (out[i].entries.size() > t.shape.size())
      throw_error(
          "shard_map: result {} is {}, of rank {}, but its spec {} has {} entries; give at most one per dimension", i,
          to_string(t), t.rank(), to_string(out[i]), out[i].entries.size());
    shapes.push_back(global_shape(t.shape, out[i], options.mesh, axes));
  }
  // The innermost axis first, so that leading dimensions end up in mesh order.
  for (size_t k = axes.size(); k-- > 0;) {
    std::vector<bool> batched, force;
    for (size_t i = 0; i < program.inputs.size(); ++i) batched.push_back(i < in.size() && names(in[i], axes[k]));
    for (const PartitionSpec& spec : out) force.push_back(names(spec, axes[k]));
    BatchedProgram all = batch(program, batched, options.mesh.size(axes[k]), force, axes[k]);
    // Checked on the values, not their types: the type of all_gather's result varies although its value is
    // the same everywhere.
    for (size_t i = 0; i < out.size(); ++i)
      if (all.batched[i] && !force[i])
        throw_error(
            "shard_map: result {} is {}, which varies over \"{}\", but its spec {} declares it replicated over that "
            "axis; psum or pmean it over \"{}\", or name the axis in out_specs",
            i, to_string(traced.program->types[traced.program->outputs[i]]), axes[k], to_string(out[i]), axes[k]);
    program = std::move(all.program);
  }
  Arrays made = apply("shard_map", with_captures(args, traced), {}, [&](Builder& b, const Values& v) {
    Values shards = v;
    for (size_t i = 0; i < in.size(); ++i)
      shards[i] = ShardStack(v[i].shape(), in[i], options.mesh, axes)
                      .stack_shards(constrain_to_spec(v[i], in[i], options.mesh, axes));
    Values results = b.inline_program(program, shards);
    for (size_t i = 0; i < results.size(); ++i)
      results[i] = constrain_to_spec(ShardStack(shapes[i], out[i], options.mesh, axes).unstack_shards(results[i]),
                                     out[i], options.mesh, axes);
    return results;
  });
  for (size_t i = 0; i < made.size(); ++i) made[i] = with_sharding(made[i], NamedSharding(options.mesh, out[i]));
  return made;
}

}  // namespace lockstep::detail
