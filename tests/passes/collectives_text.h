// For tests of schedules: the collectives of a program as text, training steps to
// partition, and bitwise comparison of results.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <vector>

#include "ops/lane_ops.h"
#include "passes/on_lanes.h"
#include "passes/schedule.h"
#include "support/models.h"

namespace lockstep {

using Lines = std::vector<std::string>;

inline const LaneGrid kTwo{{{"data", 2, 1}}};
inline const LaneGroup kData{{"data"}, 0};

// The ops of a program in order; collectives with their axes and number of arrays.
inline Lines ops_of(const Program& p) {
  Lines out;
  for (const Eqn& eqn : p.eqns) {
    std::string line(eqn.op->name);
    if (eqn.op->is_collective() && eqn.attrs.find("axes"))
      line += " " + eqn.attrs.get<std::string>("axes") + " " + std::to_string(eqn.in.size());
    out.push_back(line);
  }
  return out;
}

inline Lines collectives_in(const Program& p) {
  Lines out;
  for (const std::string& line : ops_of(p))
    if (line.starts_with("lane_")) out.push_back(line);
  return out;
}

inline Program scheduled(const Program& p, int64_t bucket_bytes = int64_t{4} << 20) {
  return apply_schedule(p, schedule_collectives(p, {.bucket_bytes = bucket_bytes}));
}
inline Program prefetched(const Program& p, size_t prefetch) {
  return apply_schedule(p, schedule_collectives(p, {.prefetch = prefetch}));
}

inline Value sum_over_data(Value x, PendingReduction kind = PendingReduction::sum) {
  return lane_all_reduce({x}, kData, kind)[0];
}

// ---- training steps

struct StepResult {
  models::Result step;
  Array right;
};

inline StepResult training_step(const models::State& state, const models::Batch& batch, const std::string& optimizer) {
  const Array right = sum(astype(argmax(models::logits(state.params, batch.image), 1) == batch.label, i32));
  return {models::train_step(state, batch, optimizer, 0.1f), right};
}

struct TrainingStep {
  Program program;
  Placement placement;
};

// The batch sharded by "data", all other arrays replicated.
inline TrainingStep data_parallel_step(const std::string& model, const std::string& optimizer, const LaneGrid& grid) {
  const models::State state = models::create_state(models::init(model, 0));
  const models::Batch batch{zeros({128, 784}), zeros({128}, i32)};
  const auto call = detail::trace_call(
      "test", [&](const models::State& s, const models::Batch& b) { return training_step(s, b, optimizer); }, state,
      batch);
  TrainingStep out{simplify(inline_bodies(*call.traced.program, Inline::early)), {}};
  LaneConstraints in, results;
  for (ValueId id : out.program.inputs) {
    const Shape& shape = out.program.types[id].shape;
    in.emplace_back(shape.size());
    if (shape == Shape{128, 784} || shape == Shape{128}) in.back()->at(0) = {"data"};
  }
  for (ValueId id : out.program.outputs) results.emplace_back(out.program.types[id].shape.size());
  if (model == "mlp") {  // its biases have the same shape as the labels
    for (size_t i = 0; i < in.size(); ++i)
      if (out.program.types[out.program.inputs[i]] == Type{f32, {128}}) in[i]->at(0).clear();
  }
  out.placement = place(out.program, grid, in, results);
  return out;
}

// All parameters and their state sharded by "data" along their first dimension, like the batch.
inline TrainingStep fully_sharded_step(const std::string& model, const std::string& optimizer, const LaneGrid& grid) {
  TrainingStep out = data_parallel_step(model, optimizer, grid);
  const auto cut = [&](const std::vector<ValueId>& ids) {
    LaneConstraints constraints;
    for (ValueId id : ids) {
      constraints.emplace_back(out.program.types[id].shape.size());
      if (!constraints.back()->empty()) constraints.back()->at(0) = {"data"};
    }
    return constraints;
  };
  out.placement = place(out.program, grid, cut(out.program.inputs), cut(out.program.outputs));
  return out;
}

inline std::string difference(const std::vector<HostArrays>& got, const std::vector<HostArrays>& wanted) {
  for (size_t lane = 0; lane < wanted.size(); ++lane)
    for (size_t k = 0; k < wanted[lane].size(); ++k) {
      const HostArray &a = got[lane][k], &b = wanted[lane][k];
      if (a.type != b.type) return fmt::format("output {} on lane {} has a different type", k, lane);
      if (std::memcmp(a.buffer->data(), b.buffer->data(), static_cast<size_t>(b.type.bytes())) != 0)
        return fmt::format("output {} on lane {} differs", k, lane);
    }
  return "";
}

}  // namespace lockstep
