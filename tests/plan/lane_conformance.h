// The conformance suite of Lane: what every lane must do, as tests (lane_conformance.cc) of lanes that a factory makes.
//
//   INSTANTIATE_TEST_SUITE_P(Mine, LaneConformance, testing::Values(LaneFactory{"mine", 2, [](int64_t index) {
//     return std::make_unique<MyLane>(index);
//   }}));
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "lane/lane.h"
#include "rows/eager.h"

namespace lockstep {

struct LaneFactory {
  std::string name;
  int64_t lanes = 1;  // how many of them can be used at the same time
  // Makes the lane of an index below `lanes`. Null: there is none on this machine, and the test is skipped.
  std::function<std::unique_ptr<Lane>(int64_t index)> make;
};
inline void PrintTo(const LaneFactory& factory, std::ostream* out) { *out << factory.name; }

class LaneConformance : public testing::TestWithParam<LaneFactory> {
 protected:
  void SetUp() override;

  Lane& lane() { return *lane_; }

  // Memory of the lane with these values.
  BufferPtr on_lane(const HostArray& array);
  // The values of lane memory.
  HostArray from_lane(const Type& type, const void* data);

  // Compiles the lowered program.
  std::unique_ptr<LanePlan> compile(const Program& program, const std::vector<bool>& donated = {});
  // Runs a plan on copies of the inputs in new memory. Expects that inputs keep their values, except donated ones.
  HostArrays run(LanePlan& plan, const Program& program, const HostArrays& inputs,
                 const std::vector<bool>& donated = {});

 private:
  std::unique_ptr<Lane> lane_;
};

}  // namespace lockstep
