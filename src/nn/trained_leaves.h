// The leaves of a model that optimizers update: all but nn::State. Safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "lockstep/detail/tree_visitor.h"

namespace lockstep::detail {

struct TrainedLeaves {
  std::vector<std::string> paths;
  std::vector<Array> arrays;
};
TrainedLeaves trained_leaves(TreeRef tree);

// Replaces these leaves. REQUIRES: the tree is not const, and there is one array for each of its trained leaves.
void assign_trained(TreeRef tree, const std::vector<Array>& arrays);

}  // namespace lockstep::detail
