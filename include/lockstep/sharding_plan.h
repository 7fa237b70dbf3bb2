// How a training run is distributed over a mesh. A ShardingPlan names the mesh axis that shards the batch, the axes
// that shard each parameter, and what is also sharded along the batch axis (ZeRO). Lockstep derives the
// communication.
//
//   ShardingPlan plan = data_parallel();  // every device holds all parameters and optimizer state
//   ShardingPlan plan = fsdp();           // parameters, gradients and optimizer state are sharded
//   ShardingPlan plan = tensor_parallel({{"dense/0/*", P({}, "model")}, {"dense/1/w", P("model")}});
//   ShardingPlan plan{.rules = {parse_sharding_rule("dense*/w=,model")}, .zero = 3};  // tensor parallel and FSDP
//
// Plain values and pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/dtype.h"
#include "lockstep/shape.h"
#include "lockstep/sharding.h"

namespace lockstep {

// The spec of every parameter whose path matches the pattern. * matches any sequence of characters.
struct ShardingRule {
  std::string pattern;
  PartitionSpec spec;

  bool operator==(const ShardingRule&) const = default;
};

// "dense*/w=,model" -> {"dense*/w", P(None, "model")}. After the = come the mesh axes of each dimension, separated by
// commas: nothing for an unsharded dimension, several axes joined by +. Throws Error on a syntax error.
ShardingRule parse_sharding_rule(std::string_view text);
// The inverse of parse_sharding_rule().
std::string to_string(const ShardingRule&);

struct ShardingPlan {
  std::string data_axis = "data";  // shards the batch
  // The last rule that matches a parameter applies, so put general rules first and exceptions after them. Parameters
  // that no rule matches are replicated.
  std::vector<ShardingRule> rules = {};
  // What is sharded along data_axis besides the batch. 1: the optimizer state; 2: gradients too; 3: parameters too.
  // data_axis is added to the largest dimension that the rule leaves unsharded and that has at least one element per
  // device along the axis (the first of equally large ones). A parameter without such a dimension keeps the sharding of
  // its rule. So does a parameter whose rule already uses data_axis.
  int zero = 0;

  bool operator==(const ShardingPlan&) const = default;
};

// Parameters replicated on every device.
ShardingPlan data_parallel(std::string data_axis = "data");
// Fully sharded data parallel: parameters, gradients and optimizer state sharded along the data axis.
ShardingPlan fsdp(std::string data_axis = "data");
// Parameters sharded by rules, over axes other than the data axis.
ShardingPlan tensor_parallel(std::vector<ShardingRule> rules, std::string data_axis = "data");

// The sharding of one parameter, of its gradient and of each array of its optimizer state.
struct ParameterSpecs {
  PartitionSpec param, grad, state;

  bool operator==(const ParameterSpecs&) const = default;
};

// The specs of each parameter, in the order of `paths`. Throws Error, naming the rule and the parameter, when
//   - the mesh does not have an axis that a rule uses
//   - a rule matches no parameter, or only parameters that later rules also match
//   - a spec has more entries than its parameter has dimensions
//   - a spec uses an axis twice, or splits a dimension into more shards than it has elements
std::vector<ParameterSpecs> specs_of(const ShardingPlan& plan, const Mesh& mesh, const std::vector<std::string>& paths,
                                     const std::vector<Type>& types);

}  // namespace lockstep
