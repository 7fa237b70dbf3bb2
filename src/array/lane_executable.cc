// Executables over several lanes: the program is partitioned, and every lane runs a local program with its
// own plan.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "array/constraints.h"
#include "array/executable.h"
#include "array/lane_memory.h"
#include "array/local_program.h"
#include "base/check.h"
#include "comm/world.h"
#include "passes/partition.h"
#include "passes/passes.h"
#include "passes/schedule.h"
#include "passes/traffic.h"
#include "plan/lane_comms.h"
#include "plan/lanes.h"
#include "sharding/mesh_text.h"

namespace lockstep::detail {
namespace {

PartitionSpec spec_of(const LaneSpec& lane_spec) {
  PartitionSpec spec;
  for (const auto& axes : lane_spec) spec.entries.emplace_back(axes);
  return spec.trimmed();
}
std::string lane_spec_text(const LaneSpec& lane_spec) { return to_string(spec_of(lane_spec)); }

class MultiLaneExecutable final : public Executable {
 public:
  // `global` is the program with its bodies inlined; it is what is partitioned. `merge`: see lower().
  MultiLaneExecutable(ProgramPtr program, const std::vector<bool>& donated, Arrays captures, Shardings out_shardings,
                      Program global, MeshLanes lanes, Placement placement, bool merge)
      : Executable(std::move(program), donated, std::move(captures), std::move(out_shardings)),
        global_(std::move(global)),
        where_(std::move(lanes)),
        placement_(std::move(placement)),
        merge_(merge) {
    if (where_.across_processes) World::current().agree("program", agreement());
    make_plans();
  }

  void run(const Array* const* args, Array* results) override {
    const std::lock_guard lock(Lanes::current().run_mutex());
    if (!comms_ || comms_->failed()) make_plans();  // a failed call leaves its communicators unusable
    std::vector<InputSource> sources;
    for (size_t i = 0; i < in_types_.size(); ++i) sources.push_back(source(argument(args, i), i));
    try {
      on_lanes([&](int64_t here) { run_on(here, sources); },
               [&](const std::string& message) { comms_->abort(message); });
    } catch (const std::exception& error) {
      comms_->abort(error.what());
      comms_.reset();
      for (const auto& local : lanes_) local->release_buffers();
      if (where_.across_processes) World::current().throw_cause(error);
      throw;
    }
    if (where_.across_processes) World::current().end_warmup();
    for (size_t i = 0; i < sources.size(); ++i)
      if (sources[i].copies) keep_copies(*argument(args, i).node(), std::move(sources[i].copies));
    mark_donated(args);
    for (size_t j = 0; j < out_types_.size(); ++j) results[j] = concrete(out_types_[j], result(j), out_shardings_[j]);
    for (const auto& local : lanes_) local->release_buffers();
  }

  bool is_across_processes() const override { return where_.across_processes; }
  std::string lowered_text() const override {
    const std::lock_guard lock(Lanes::current().run_mutex());
    std::string out;
    for (size_t lane = 0; lane < lanes_.size(); ++lane)
      out += fmt::format("lane {}:\n{}", lane, print(lanes_[lane]->lowered()));
    return out;
  }
  std::string plan_text() const override {
    return text_by_lane([](const LanePlan& plan) { return plan.describe(); });
  }
  std::string schedule_text() const override {
    return text_by_lane([](const LanePlan& plan) { return plan.schedule(); });
  }
  std::vector<int64_t> work_bytes() const override {
    std::vector<int64_t> out;
    for_each_plan([&](const LanePlan& plan) { out.push_back(plan.arena_bytes()); });
    return out;
  }
  void compile_kernels_in_background() const override {
    for_each_plan([](const LanePlan& plan) { plan.compile_in_background(); });
  }
  size_t instructions() const override {
    size_t out = 0;
    for_each_plan([&](const LanePlan& plan) { out += plan.instructions(); });
    return out;
  }
  double multiply_adds() const override {
    const std::lock_guard lock(Lanes::current().run_mutex());
    double out = 0;
    for (const auto& local : lanes_) out += count_multiply_adds(local->lowered());
    return out;
  }
  std::string explain() const override;

 private:
  // Where an input comes from: pieces with the required sharding, or the complete array in host memory. In
  // the latter case lanes that do not use host memory keep their uploaded pieces in `copies`, which the array caches
  // for the next call.
  struct InputSource {
    LanePiecesPtr pieces;
    BufferPtr whole;
    std::shared_ptr<LanePieces> copies = {};
  };

  void for_each_plan(FunctionRef<void(const LanePlan&)> f) const {
    const std::lock_guard lock(Lanes::current().run_mutex());
    for (const auto& local : lanes_) f(local->plan());
  }

  std::string text_by_lane(FunctionRef<std::string(const LanePlan&)> text) const {
    std::string out;
    size_t lane = 0;
    for_each_plan([&](const LanePlan& plan) { out += fmt::format("lane {}:\n{}", lane++, text(plan)); });
    return out;
  }

  // Like Lanes::run, on the lanes of this process that the mesh uses.
  void on_lanes(FunctionRef<void(int64_t)> f, FunctionRef<void(const std::string&)> failed = {}) const {
    Lanes::current().run(
        [&](int64_t here) {
          if (here < where_.local_count) f(here);
        },
        failed);
  }

  void make_plans() {
    comms_ = std::make_unique<LaneComms>(where_.grid, where_.across_processes);
    lanes_.clear();
    lanes_.resize(static_cast<size_t>(where_.local_count));
    const CollectiveSchedule schedule = schedule_collectives(partition(global_, where_.grid, placement_, 0));
    const auto make = [&](int64_t here) {
      const int64_t lane = where_.first_local + here;
      Lane& executor = lane_of(here);
      const auto comm = [this, lane, &executor](const std::string& axes) { return comms_->of(lane, axes, executor); };
      lanes_[static_cast<size_t>(here)] = std::make_unique<LocalProgram>(
          executor, lower(apply_schedule(partition(global_, where_.grid, placement_, lane), schedule), merge_),
          PlanOptions{donated_, comm});
    };
    // Lanes with their own memory create communicators together while they plan.
    const auto failed = [&](const std::string& message) {
      if (!on_host_) comms_->abort(message);
    };
    try {
      on_lanes(make, failed);
    } catch (const std::exception& error) {
      lanes_.clear();
      comms_.reset();
      if (dynamic_cast<const CommError*>(&error))
        World::current().throw_cause(error);  // communicators are created by all processes
      throw;
    }
  }

  // What all processes must agree on before they communicate: the program and how it is sharded.
  std::string agreement() const {
    std::string out = print(global_);
    out += fmt::format("computed on {}\n", lane_of(0).info().platform);
    for (const auto& [ids, what] : {std::pair(&global_.inputs, "input"), std::pair(&global_.outputs, "output")})
      for (size_t i = 0; i < ids->size(); ++i)
        out += fmt::format("{} {}: {}\n", what, i, lane_spec_text(placement_.lane_specs[(*ids)[i]]));
    return out;
  }

  InputSource source(const Array& array, size_t i) const {
    const Node& node = *array.node();
    if (node.kind == Node::Kind::literal) return {nullptr, literal_buffer(node, in_types_[i]->dtype)};
    const LaneSpec& lane_spec = placement_.lane_specs[global_.inputs[i]];
    const auto fit = [&](const LanePiecesPtr& pieces) {
      return pieces && pieces->across_processes == where_.across_processes && pieces->grid == where_.grid &&
             pieces->lane_spec == lane_spec;
    };
    if (node.kind == Node::Kind::concrete && fit(node.pieces.divided)) return {node.pieces.divided, nullptr};
    if (node.kind == Node::Kind::concrete && !donated_[i])
      if (LanePiecesPtr copies = kept_copies(node); fit(copies)) return {std::move(copies), nullptr};
    InputSource out{nullptr, buffer_of(array, "call")};
    if (!on_host_ && !donated_[i])
      out.copies = std::make_shared<LanePieces>(
          LanePieces{where_.grid, lane_spec, std::vector<BufferPtr>(static_cast<size_t>(where_.grid.lanes())),
                     where_.across_processes});
    return out;
  }

  void run_on(int64_t here, const std::vector<InputSource>& sources) {
    LocalProgram& local = *lanes_[static_cast<size_t>(here)];
    for (size_t i = 0; i < sources.size(); ++i) set_piece(local, where_.first_local + here, i, sources[i]);
    local.run();
  }

  // Result j of all lanes.
  LanePiecesPtr result(size_t j) {
    LanePieces out{where_.grid, placement_.lane_specs[global_.outputs[j]],
                   std::vector<BufferPtr>(static_cast<size_t>(where_.grid.lanes())), where_.across_processes};
    for (size_t here = 0; here < lanes_.size(); ++here)
      out.buffers[static_cast<size_t>(where_.first_local) + here] = lanes_[here]->take_result(j);
    return std::make_shared<LanePieces>(std::move(out));
  }

  // The lane of this process that runs local program `here`. A process with one of them uses all of its cores.
  Lane& lane_of(int64_t here) const {
    return where_.local_count == 1 ? Lanes::current().main() : Lanes::current().lane(here);
  }

  // Sets a lane's piece of an input. If donated, the lane may write to it; otherwise it may be part of the
  // complete array.
  void set_piece(LocalProgram& local, int64_t lane, size_t i, const InputSource& source) const {
    Lane& executor = local.lane();
    if (source.pieces) {
      const BufferPtr& buffer = source.pieces->buffers[static_cast<size_t>(lane)];
      // The buffer may be written only if the array is the sole owner of its pieces (besides this call) and
      // they of it.
      if (!executor.can_use(*buffer)) return local.set_input(i, executor.upload(buffer));
      if (!donated_[i] || (source.pieces.use_count() <= 2 && buffer->unique())) return local.set_input(i, buffer);
      return local.set_input(i, executor.copy_of(*buffer, 0, buffer->size()));
    }
    const Type& type = *in_types_[i];
    const int64_t size = size_of(type.dtype);
    const IndexBox box = lane_box(where_.grid, placement_.lane_specs[global_.inputs[i]], type.shape, lane);
    const int64_t begin = contiguous_offset(type.shape, box);
    if (!donated_[i] && begin >= 0 && executor.can_use(*source.whole))
      return local.set_input(i, source.whole, source.whole->data() + begin * size);
    int64_t bytes = size;
    for (const Range& range : box) bytes *= range.size();
    const BufferPtr piece = executor.allocate(bytes);
    if (begin >= 0) {
      executor.copy_from_host(piece->data(), source.whole->data() + begin * size, bytes);
    } else {
      const BufferPtr dense = on_host_ ? piece : allocate(bytes);
      extract_box(source.whole->data(), type.shape, box, size, dense->data());
      if (dense != piece) executor.copy_from_host(piece->data(), dense->data(), bytes);
    }
    if (source.copies) source.copies->buffers[static_cast<size_t>(lane)] = piece;
    local.set_input(i, piece);
  }

  const bool on_host_ = Lanes::current().main().info().space == MemorySpace::host;
  Program global_;
  MeshLanes where_;
  Placement placement_;
  const bool merge_;
  std::unique_ptr<LaneComms> comms_;
  std::vector<std::unique_ptr<LocalProgram>> lanes_;
};

std::string MultiLaneExecutable::explain() const {
  std::string out = fmt::format("{} lanes:", where_.grid.lanes());
  for (const LaneAxis& axis : where_.grid.axes)
    out += fmt::format(" {} {} lanes{}", axis.name, axis.size,
                       axis.inside > 1 ? fmt::format(" of {} devices", axis.inside) : "");
  out += "\n";
  // Values are numbered as in print(): inputs, then results in order.
  std::vector<size_t> number(global_.types.size());
  size_t next = 0;
  const auto line = [&](ValueId id, const std::string& what) {
    const std::string& reason = placement_.reasons[id];
    out += fmt::format("  %{:<4} {:<18} {:<24} {}{}\n", number[id], to_string(global_.types[id]),
                       lane_spec_text(placement_.lane_specs[id]), what, reason.empty() ? "" : ", from " + reason);
  };
  for (ValueId id : global_.inputs) {
    number[id] = next++;
    line(id, "input");
  }
  for (size_t i = 0; i < global_.eqns.size(); ++i)
    for (ValueId id : global_.eqns[i].out) {
      number[id] = next++;
      line(id, fmt::format("equation {} {}", i, global_.eqns[i].op->name));
    }
  return out + "communication between lanes, in order:\n" + traffic_text(lanes_[0]->lowered(), where_.grid);
}

LaneConstraints known_lane_specs(const Program& p, const std::vector<ValueId>& ids, const Shardings& shardings,
                                 const Mesh& mesh, const LaneGrid& grid) {
  LaneConstraints out(ids.size());
  for (size_t i = 0; i < ids.size() && i < shardings.size(); ++i)
    if (shardings[i].defined() && shardings[i].mesh() == mesh)
      out[i] = to_lane_spec(grid, shardings[i].spec(), p.types[ids[i]].shape.size());
  return out;
}

}  // namespace

std::shared_ptr<Executable> compile_on_lanes(const ProgramPtr& program, const std::vector<bool>& donated,
                                             const Arrays& captures, const Shardings& in, const Shardings& given_out,
                                             const Shardings& out_shardings) {
  if (World::current().lanes() == 1) return nullptr;
  Program global = inline_bodies(*program, Inline::early);
  Shardings given = in;
  given.insert(given.end(), given_out.begin(), given_out.end());
  const Mesh mesh = mesh_of(global, given);
  MeshLanes lanes = lanes_of(mesh);
  const LaneGrid& grid = lanes.grid;
  if (grid.axes.empty()) return nullptr;
  global = simplify(drop_annotations(global, mesh_text(mesh)));
  const bool recomputes = std::any_of(global.eqns.begin(), global.eqns.end(),
                                      [](const Eqn& eqn) { return eqn.op->inline_body == Inline::late; });
  global = constrain_outputs(drop_dead(inline_bodies(global, Inline::late)), in, given_out, mesh);
  Placement placement = place(global, grid, known_lane_specs(global, global.inputs, in, mesh, grid),
                              known_lane_specs(global, global.outputs, given_out, mesh, grid));
  // A result without a given sharding gets the one it was partitioned with.
  Shardings labels = out_shardings;
  for (size_t j = 0; j < labels.size(); ++j) {
    const LaneSpec& lane_spec = placement.lane_specs[global.outputs[j]];
    if (j < given_out.size() && given_out[j].defined()) continue;
    if (!labels[j].defined() || labels[j].mesh() != mesh ||
        to_lane_spec(grid, labels[j].spec(), lane_spec.size()) != lane_spec)
      labels[j] = NamedSharding(mesh, spec_of(lane_spec));
  }
  return std::make_shared<MultiLaneExecutable>(program, donated, captures, std::move(labels), std::move(global),
                                               std::move(lanes), std::move(placement), !recomputes);
}

}  // namespace lockstep::detail
