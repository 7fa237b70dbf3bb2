// How a training run lies on a mesh, said by specs alone: which axis cuts the batch, which axes cut which parameters,
// and how much of the rest is cut along the batch's axis too (ZeRO). What moves between devices follows from that.
//
//   ShardingPlan plan = data_parallel();                                                    // everything on each
//   device ShardingPlan plan = fsdp();                                                             // nothing on each
//   device ShardingPlan plan = tensor_parallel({{"dense/0/*", P({}, "model")}, {"dense/1/w", P("model")}});
//   ShardingPlan plan{.rules = {parse_sharding_rule("dense*/w=,model")}, .zero = 3};        // both
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

// The spec of all parameters whose path the pattern matches, where * stands for any run of characters.
struct ShardingRule {
  std::string pattern;
  PartitionSpec spec;

  bool operator==(const ShardingRule&) const = default;
};

// "dense*/w=,model" -> {"dense*/w", P(None, "model")}: what cuts each dimension, separated by commas; nothing for one
// that is not cut, and several axes joined by +. Throws Error for another form.
ShardingRule parse_sharding_rule(std::string_view text);
// And back.
std::string to_string(const ShardingRule&);

struct ShardingPlan {
  std::string data_axis = "data";  // cuts the batch
  // Of the rules that match a parameter the last one counts, so that exceptions follow what is general. Parameters that
  // none matches are whole.
  std::vector<ShardingRule> rules = {};
  // What is cut along data_axis beside the batch. 1: the optimizer's state; 2: gradients too; 3: parameters too. The
  // axis goes to the largest dimension that the rule leaves uncut and that has an element for each device along it, of
  // equal ones to the first; a parameter without one stays as its rule says, and so does one whose rule has data_axis
  // itself.
  int zero = 0;

  bool operator==(const ShardingPlan&) const = default;
};

// Parameters whole on every device.
ShardingPlan data_parallel(std::string data_axis = "data");
// Fully sharded: parameters, gradients and optimizer state cut along the data axis.
ShardingPlan fsdp(std::string data_axis = "data");
// Parameters cut by rules, over axes other than the data axis.
ShardingPlan tensor_parallel(std::vector<ShardingRule> rules, std::string data_axis = "data");

// How one parameter lies, its gradient, and each array of its optimizer state.
struct ParameterSpecs {
  PartitionSpec param, grad, state;

  bool operator==(const ParameterSpecs&) const = default;
};

// For each parameter. Throws Error, naming the rule and the parameter, when the mesh has no such axis, a rule matches
// no parameter or only ones that later rules match too, a spec has more entries than its parameter dimensions, or an
// axis twice, or cuts a dimension into more pieces than it has elements.
std::vector<ParameterSpecs> specs_of(const ShardingPlan& plan, const Mesh& mesh, const std::vector<std::string>& paths,
                                     const std::vector<Type>& types);

}  // namespace lockstep
