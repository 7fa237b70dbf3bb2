// Labels and the expressions that choose by them, with Kubernetes' grammar. Values; safe from any thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/model/job.h"

namespace lockstep {

using Labels = std::map<std::string, std::string>;

class Selector {
 public:
  // "app=x,tier!=y,env in (a,b),env notin (c),ready,!done"; empty: everything. Throws Error for what is none.
  static Selector parse(std::string_view text);

  bool matches(const Labels& labels) const;

 private:
  // The label is there with one of the values (none: with any), or `negated`: it is not.
  struct Requirement {
    std::string key;
    std::vector<std::string> values;
    bool negated = false;
  };
  std::vector<Requirement> all_;
};

// Those of the job's template, and those that its controller gives to each pod.
Labels pod_labels(const Job& job, int index);

}  // namespace lockstep
