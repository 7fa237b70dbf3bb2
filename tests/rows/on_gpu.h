// Runs a program as an execution plan on the GPU, three times with the same memory, so that the graph captured in the
// second run is replayed. One thread.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "lane/cuda/cuda_stream.h"
#include "plan/cuda/cuda_plan.h"
#include "rows/eager.h"

namespace lockstep {

inline HostArrays run_on_gpu(Plan& plan, const Program& p, const HostArrays& inputs) {
  CudaStream& lane = CudaStream::local();
  std::vector<BufferPtr> in, out;
  std::vector<const void*> from;
  std::vector<void*> to;
  for (const HostArray& x : inputs) from.push_back(in.emplace_back(lane.allocate(x.type.bytes()))->data());
  HostArrays results;
  const std::vector<Type> types = p.output_types();
  for (size_t o = 0; o < types.size(); ++o) {
    results.emplace_back(types[o]);
    if (const int64_t of = plan.donated_input(o); of >= 0)
      to.push_back(in[static_cast<size_t>(of)]->data());
    else
      to.push_back(out.emplace_back(lane.allocate(types[o].bytes()))->data());
  }
  for (int time = 0; time < 3; ++time) {
    for (size_t o = 0; o < to.size(); ++o) lane.clear(to[o], types[o].bytes());
    for (size_t i = 0; i < inputs.size(); ++i)
      lane.to_device(in[i]->data(), inputs[i].buffer->data(), inputs[i].type.bytes());
    plan.run(from.data(), to.data());
  }
  for (size_t o = 0; o < to.size(); ++o) lane.to_host(results[o].buffer->data(), to[o], types[o].bytes());
  return results;
}

// `donated`: the inputs whose memory is donated.
inline HostArrays planned_on_gpu(const Program& p, const HostArrays& inputs, const std::vector<bool>& donated = {}) {
  ::setenv("LOCKSTEP_CUDA_MATH", "full", 0);  // references are f32
  return run_on_gpu(*compile(p, test_pool(), CudaStream::local(), {.donated = donated}), p, inputs);
}

// Expects that the GPU and the row-by-row evaluation agree on small integers, for which both are exact.
inline void expect_same_on_gpu(const Program& p, std::mt19937& random) {
  HostArrays in;
  for (const Type& type : p.input_types()) in.push_back(small_integers(type, random()));
  const HostArrays got = planned_on_gpu(p, in), wanted = eager(p, in);
  for (size_t o = 0; o < got.size(); ++o) EXPECT_EQ(got[o].values(), wanted[o].values()) << "result " << o;
}

}  // namespace lockstep
