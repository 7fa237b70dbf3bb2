// Runs a partitioned program on lanes: a thread for each, with real collectives. For tests.
#pragma once

#include <exception>
#include <functional>
#include <thread>

#include "passes/partition.h"
#include "passes/passes.h"
#include "plan/lane_comms.h"
#include "plan/plan.h"
#include "rows/eager.h"

namespace lockstep {

// Copies a box out of an array, and back into it.
inline HostArray slice_box(const HostArray& full, const IndexBox& box) {
  Type type = full.type;
  for (size_t d = 0; d < box.size(); ++d) type.shape[d] = box[d].size();
  HostArray out(type);
  for_each_index(type.shape, [&](const Dims& at, int64_t i) {
    Dims from = at;
    for (size_t d = 0; d < box.size(); ++d) from[d] += box[d].begin;
    copy_element(full, position(full.type.shape, from), out, i);
  });
  return out;
}
inline void write_box(const HostArray& part, const IndexBox& box, HostArray& full) {
  for_each_index(part.type.shape, [&](const Dims& at, int64_t i) {
    Dims to = at;
    for (size_t d = 0; d < box.size(); ++d) to[d] += box[d].begin;
    copy_element(part, i, full, position(full.type.shape, to));
  });
}

// Returns the results of each lane. `change`, if given, rewrites each lane's program before it is lowered.
inline std::vector<HostArrays> run_on_lanes(const Program& p, const LaneGrid& grid, const Placement& placement,
                                            const HostArrays& inputs,
                                            const std::function<Program(const Program&)>& change = {}) {
  const int64_t lanes = grid.lanes();
  LaneComms comms(grid, false);
  std::vector<HostArrays> results(static_cast<size_t>(lanes));
  std::vector<std::exception_ptr> failures(static_cast<size_t>(lanes));
  const auto run = [&](int64_t lane) {
    const Program partitioned = partition(p, grid, placement, lane);
    const Program local = lower(change ? change(partitioned) : partitioned);
    HostArrays& out = results[static_cast<size_t>(lane)];
    HostArrays in;
    for (size_t i = 0; i < inputs.size(); ++i)
      in.push_back(slice_box(inputs[i], lane_box(grid, placement.lane_specs[p.inputs[i]], inputs[i].type.shape, lane)));
    for (const Type& t : local.output_types()) out.emplace_back(t);
    Pool pool({.threads = 1});
    Plan plan(local, pool, {.comm = [&](const std::string& axes) { return comms.of(lane, axes); }});
    std::vector<const void*> from;
    std::vector<void*> to;
    for (HostArray& x : in) from.push_back(x.buffer->data());
    for (HostArray& x : out) to.push_back(x.buffer->data());
    plan.run(from.data(), to.data());
  };
  std::vector<std::thread> threads;
  for (int64_t lane = 0; lane < lanes; ++lane)
    threads.emplace_back([&, lane] {
      try {
        run(lane);
      } catch (const std::exception& error) {
        failures[static_cast<size_t>(lane)] = std::current_exception();
        comms.abort(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return results;
}

}  // namespace lockstep
