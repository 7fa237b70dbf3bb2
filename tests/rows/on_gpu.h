// The program lowered, planned and run on the GPU, twice with the same memory: the second time as a recording.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "lane/cuda/cuda_lane.h"
#include "rows/eager.h"

namespace lockstep {

inline HostArrays planned_on_gpu(const Program& p, const HostArrays& inputs) {
  ::setenv("LOCKSTEP_CUDA_MATH", "full", 0);  // references are f32
  CudaLane& lane = CudaLane::local();
  const std::shared_ptr<Plan> plan = compile(p, test_pool(), {.cuda = &lane});
  std::vector<BufferPtr> held;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const HostArray& x : inputs) {
    held.push_back(lane.allocate(x.type.bytes()));
    lane.to_device(held.back()->data(), x.buffer->data(), x.type.bytes());
    in.push_back(held.back()->data());
  }
  HostArrays results;
  for (const Type& type : p.output_types()) {
    held.push_back(lane.allocate(type.bytes()));
    out.push_back(held.back()->data());
    results.emplace_back(type);
  }
  for (int time = 0; time < 3; ++time) {
    for (size_t k = 0; k < results.size(); ++k) lane.clear(out[k], results[k].type.bytes());
    plan->run(in.data(), out.data());
  }
  for (size_t k = 0; k < results.size(); ++k) lane.to_host(results[k].buffer->data(), out[k], results[k].type.bytes());
  return results;
}

// What the GPU computes of whole numbers, small enough for that to be exact, is what a plain evaluation does.
inline void expect_same_on_gpu(const Program& p, std::mt19937& random) {
  HostArrays in;
  for (const Type& type : p.input_types()) in.push_back(whole_numbers(type, random()));
  const HostArrays got = planned_on_gpu(p, in), wanted = eager(p, in);
  for (size_t o = 0; o < got.size(); ++o) EXPECT_EQ(got[o].values(), wanted[o].values()) << "result " << o;
}

}  // namespace lockstep
