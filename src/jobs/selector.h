// Label selectors with Kubernetes' grammar. Values; safe from any thread.
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
  // Parses "app=x,tier!=y,env in (a,b),env notin (c),ready,!done"; an empty text selects everything. Throws Error.
  static Selector parse(std::string_view text);

  bool matches(const Labels& labels) const;

 private:
  // The label exists and has one of the values (any value if `values` is empty). `negated` inverts this.
  struct Requirement {
    std::string key;
    std::vector<std::string> values;
    bool negated = false;
  };
  std::vector<Requirement> all_;
};

// The labels of a pod: those of the job's pod template, and those that the job's controller adds.
Labels pod_labels(const Job& job, int index);

}  // namespace lockstep
