// The conformance suite of Comm: checks that every backend must pass. A check is a function that every rank runs with
// its Comm. Each rank compares its own results with closed forms, so ranks may be threads or processes.
//
//   INSTANTIATE_TEST_SUITE_P(InProcess, CommConformance, conformance::cases(Backend{...}), conformance::name_of);
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "comm/comm.h"

namespace lockstep::conformance {

// run() calls `body` once for each of n ranks, concurrently, each with its Comm of a new group called "world". It
// returns when all have returned, and only then destroys the Comms. It does not throw: an exception of a body is a
// failure of the test.
struct Backend {
  std::string name;
  std::function<void(int n, const std::function<void(Comm&)>& body)> run;
};

struct Check {
  const char* name;
  void (*run)(Comm&);
  int min_ranks = 1;
};

// The checks of results (values.cc, sequences.cc) and of failures (failures.cc). A failure check leaves the group
// unusable.
std::vector<Check> value_checks();
std::vector<Check> sequence_checks();
std::vector<Check> failure_checks();

struct Case {
  Backend backend;
  Check check;
  int ranks;
};
inline void PrintTo(const Case& one, std::ostream* out) {
  *out << one.backend.name << " " << one.check.name << " on " << one.ranks;
}

inline auto cases(const Backend& backend) {
  std::vector<Case> all;
  for (const auto& checks : {value_checks(), sequence_checks(), failure_checks()})
    for (const Check& check : checks)
      for (const int ranks : {1, 2, 3, 4, 7, 8})
        if (ranks >= check.min_ranks) all.push_back({backend, check, ranks});
  return testing::ValuesIn(all);
}

inline std::string name_of(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.check.name) + "On" + std::to_string(info.param.ranks);
}

}  // namespace lockstep::conformance

namespace lockstep {

class CommConformance : public testing::TestWithParam<conformance::Case> {};

}  // namespace lockstep
