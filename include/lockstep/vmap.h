// vmap: turns a function of one example into a function of a batch.
//
//   auto batched = vmap(f);                                              // axis 0 of every argument
//   auto rows = vmap(f, {.in_axes = {0, std::nullopt}, .out_axes = 1});  // second argument shared; batch at axis 1
//
// Nests with jit, grad and itself. Numbers and strings in arguments are shared. Safe to call from any thread.
#pragma once

#include <optional>

#include "lockstep/collectives.h"
#include "lockstep/grad.h"

namespace lockstep {

struct VmapOptions {
  // Per argument: the axis of its arrays to map over, negative from the back; nullopt: shared by all
  // examples. Missing entries are 0.
  std::vector<std::optional<int64_t>> in_axes = {};
  // The axis of the results that holds the batch. nullopt: results must not depend on the batch and are
  // returned without it.
  std::optional<int64_t> out_axes = 0;
  // A name for the mapped axis, for collectives (collectives.h) in the function. Empty: none.
  std::string axis_name = "";
  // A mesh axis that shards the batch wherever the function constrains a sharding: with_sharding_constraint(x,
  // P("model")) in it constrains the batched x to P(spmd_axis_name, "model"). Empty: none.
  std::string spmd_axis_name = "";
  // Internal: called with the extent and name of the mapped axis; may throw.
  void (*check)(int64_t size, const std::string& axis_name) = nullptr;
};

namespace detail {

// Sets `size` to the extent of the mapped axis. Throws Error when the axis does not exist or its extent
// differs from that of an earlier array. `size` starts at -1.
void update_batch_size(int64_t& size, const Array& array, std::optional<int64_t> axis, const std::string& path);
void check_batch_size(int64_t size);
void check_in_axes(size_t axes, size_t arguments);
Type without_axis(const Type&, int64_t axis);
// The type of one example. With a named axis everything varies over it, shared arguments included, so that
// gradients are each example's own.
Type example_type(const Type&, std::optional<int64_t> axis, const std::string& axis_name);
void check_shared_results(const std::vector<bool>& batched);
// batch_program() in which constraints shard the batch by `spmd_axis`, unless that is empty.
VmapProgram batch_along(const Traced&, std::vector<bool> batched_args, int64_t size, const std::vector<bool>& force,
                        const std::string& axis, const std::string& spmd_axis);

}  // namespace detail

// Returns a function that applies f to each element of the mapped axes and stacks the results. Calls throw
// Error when mapped axes differ in extent or an axis does not exist.
template <class F>
auto vmap(F f, VmapOptions options = {}) {
  return detail::with_parameters_of<F>([f = std::move(f), options = std::move(options)](const auto&... passed) {
    return detail::with_parameters<F>(
        [&](const auto&... args) {
          detail::check_in_axes(options.in_axes.size(), sizeof...(args));
          auto axis_of = [&](size_t argument) {
            return argument < options.in_axes.size() ? options.in_axes[argument] : std::optional<int64_t>(0);
          };
          int64_t size = -1;
          std::vector<bool> batched;
          detail::Arrays leaves;
          size_t argument = 0;
          auto gather = [&](const auto& tree) {
            const auto axis = axis_of(argument);
            detail::for_each_path(tree, [&](const std::string& path, const Array& a) {
              detail::update_batch_size(size, a, axis,
                                        "argument " + std::to_string(argument) + (path.empty() ? "" : ", " + path));
              batched.push_back(axis.has_value());
              leaves.push_back(axis ? detail::axis_to_front(a, *axis) : a);
            });
            ++argument;
          };
          (gather(args), ...);
          detail::check_batch_size(size);
          if (options.check) options.check(size, options.axis_name);

          std::optional<detail::AxisScope> scope;
          if (!options.axis_name.empty()) scope.emplace(options.axis_name, size);
          detail::Tracing tracing("vmap");
          argument = 0;
          auto example = [&](auto tree) {
            const auto axis = axis_of(argument++);
            detail::for_each_array(
                tree, [&](Array& a) { a = tracing.input(detail::example_type(a.type(), axis, options.axis_name), a); });
            return tree;
          };
          const std::tuple<std::decay_t<decltype(args)>...> inputs{example(args)...};
          auto result = std::decay_t<decltype(std::apply(f, inputs))>(std::apply(f, inputs));
          const detail::Arrays outputs = tree_leaves(result);
          const detail::Traced traced = tracing.finish(outputs);
          const detail::VmapProgram program = detail::batch_along(
              traced, batched, size, std::vector<bool>(outputs.size(), options.out_axes.has_value()), options.axis_name,
              options.spmd_axis_name);
          const detail::Arrays results = detail::call(program.program, detail::with_captures(leaves, traced));
          if (!options.out_axes) detail::check_shared_results(program.batched);
          size_t i = 0;
          detail::for_each_array(result, [&](Array& a) {
            a = options.out_axes ? detail::front_to_axis(results[i], *options.out_axes) : results[i];
            ++i;
          });
          return result;
        },
        passed...);
  });
}

}  // namespace lockstep
