// A program cut over the lanes of the process: a local program and a plan for each, run at once.
#include <fmt/format.h>

#include <cstring>

#include "array/executable.h"
#include "lane/lane.h"
#include "lane/lanes.h"
#include "passes/partition.h"
#include "passes/passes.h"
#include "passes/schedule.h"
#include "passes/traffic.h"
#include "plan/lane_comms.h"
#include "plan/plan.h"

namespace lockstep::detail {
namespace {

class ManyLanes final : public Executable {
 public:
  // `global` is the program with its bodies inlined, which is what is cut.
  ManyLanes(ProgramPtr program, const std::vector<bool>& donated, Arrays captures, Shardings out_shardings,
            Program global, LaneGrid grid, Placement placement)
      : Executable(std::move(program), donated, std::move(captures), std::move(out_shardings)),
        global_(std::move(global)),
        grid_(std::move(grid)),
        placement_(std::move(placement)) {
    make_plans();
  }

  void run(const Array* const* args, Array* results) override {
    const std::lock_guard lock(CpuLane::local().running());
    if (!comms_) make_plans();  // a failure before broke the meeting of the lanes
    std::vector<Source> sources;
    for (size_t i = 0; i < in_types_.size(); ++i) sources.push_back(source(argument(args, i), i));
    std::vector<std::shared_ptr<LanePieces>> made;
    for (ValueId id : global_.outputs)
      made.push_back(std::make_shared<LanePieces>(
          LanePieces{grid_, placement_.cuts[id], std::vector<BufferPtr>(static_cast<size_t>(grid_.lanes()))}));
    try {
      Lanes::local().run([&](int64_t lane) { run_on(lane, sources, made); },
                         [&](const std::string& message) { comms_->abort(message); });
    } catch (...) {
      comms_.reset();
      throw;
    }
    mark_donated(args);
    for (size_t j = 0; j < made.size(); ++j)
      results[j] = concrete(out_types_[j], std::move(made[j]), out_shardings_[j]);
  }

  std::string lowered_text() const override {
    std::string out;
    for (size_t lane = 0; lane < lanes_.size(); ++lane)
      out += fmt::format("lane {}:\n{}", lane, print(lanes_[lane].lowered));
    return out;
  }
  std::string plan_text() const override {
    std::string out;
    for (size_t lane = 0; lane < lanes_.size(); ++lane)
      out += fmt::format("lane {}:\n{}", lane, lanes_[lane].plan->describe());
    return out;
  }
  std::string explain() const override;

 private:
  struct Lane {
    Program lowered;
    std::unique_ptr<Plan> plan;
  };
  // Where an input comes from: pieces that lie as they are needed, or a whole array.
  struct Source {
    LanePiecesPtr pieces;
    BufferPtr whole;
  };

  void make_plans() {
    comms_ = std::make_unique<LaneComms>(grid_);
    lanes_.clear();
    lanes_.resize(static_cast<size_t>(grid_.lanes()));
    const Schedule schedule = decide(partition(global_, grid_, placement_, 0));
    Lanes::local().run([&](int64_t lane) {
      Lane& own = lanes_[static_cast<size_t>(lane)];
      own.lowered = lower(apply(partition(global_, grid_, placement_, lane), schedule));
      own.plan =
          std::make_unique<Plan>(own.lowered, Lanes::local().pool(lane),
                                 PlanOptions{donated_, &Lanes::local().arena(lane),
                                             [this, lane](const std::string& axes) { return comms_->of(lane, axes); }});
    });
  }

  Source source(const Array& array, size_t i) const {
    const Node& node = *array.node();
    if (node.kind == Node::Kind::literal) return {nullptr, literal_buffer(node, in_types_[i]->dtype)};
    if (node.kind == Node::Kind::concrete && node.pieces && node.pieces->grid == grid_ &&
        node.pieces->cuts == placement_.cuts[global_.inputs[i]])
      return {node.pieces, nullptr};
    return {nullptr, buffer_of(array, "call")};
  }

  void run_on(int64_t lane, const std::vector<Source>& sources, const std::vector<std::shared_ptr<LanePieces>>& made) {
    const auto at = static_cast<size_t>(lane);
    Plan& plan = *lanes_[at].plan;
    const Program& local = lanes_[at].lowered;
    std::vector<BufferPtr> held(sources.size());  // memory of this lane's own
    std::vector<const void*> in;
    for (size_t i = 0; i < sources.size(); ++i) in.push_back(piece(lane, i, sources[i], held[i]));
    std::vector<void*> out;
    for (size_t j = 0; j < made.size(); ++j) {
      const int from = plan.donated_input(j);
      BufferPtr& result = made[j]->buffers[at];
      result = from >= 0 ? held[static_cast<size_t>(from)] : allocate(local.types[local.outputs[j]].bytes());
      out.push_back(result->data());
    }
    plan.run(in.data(), out.data());
  }

  // A lane's piece of an input. Donated ones are the lane's own to write; others may be a part of a whole array.
  const void* piece(int64_t lane, size_t i, const Source& source, BufferPtr& held) const {
    const Type& type = *in_types_[i];
    const int64_t size = size_of(type.dtype);
    if (source.pieces) {
      const BufferPtr& buffer = source.pieces->buffers[static_cast<size_t>(lane)];
      // Only the array holds the pieces (and this call), and only the pieces hold the buffer.
      if (!donated_[i] || (source.pieces.use_count() <= 2 && buffer->unique())) {
        held = buffer;
      } else {
        held = allocate(buffer->size());
        std::memcpy(held->data(), buffer->data(), static_cast<size_t>(buffer->size()));
      }
      return held->data();
    }
    const IndexBox box = lane_box(grid_, placement_.cuts[global_.inputs[i]], type.shape, lane);
    const int64_t begin = stretch(type.shape, box);
    if (!donated_[i] && begin >= 0) return source.whole->data() + begin * size;
    int64_t elements = 1;
    for (const Range& range : box) elements *= range.size();
    held = allocate(elements * size);
    copy_out(source.whole->data(), type.shape, box, size, held->data());
    return held->data();
  }

  Program global_;
  LaneGrid grid_;
  Placement placement_;
  std::unique_ptr<LaneComms> comms_;
  std::vector<Lane> lanes_;
};

std::string cuts_text(const LaneCuts& cuts) {
  std::vector<SpecEntry> entries;
  for (const auto& axes : cuts) {
    SpecEntry entry;
    entry.axes = axes;
    entries.push_back(entry);
  }
  return to_string(PartitionSpec{entries}.trimmed());
}

std::string ManyLanes::explain() const {
  std::string out = fmt::format("{} lanes:", grid_.lanes());
  for (const LaneAxis& axis : grid_.axes)
    out += fmt::format(" {} {} lanes{}", axis.name, axis.size,
                       axis.inside > 1 ? fmt::format(" of {} devices", axis.inside) : "");
  out += "\n";
  // Values are numbered as print() numbers them: inputs, then results in order.
  std::vector<size_t> number(global_.types.size());
  size_t next = 0;
  const auto line = [&](ValueId id, const std::string& what) {
    const std::string& reason = placement_.reasons[id];
    out += fmt::format("  %{:<4} {:<18} {:<24} {}{}\n", number[id], to_string(global_.types[id]),
                       cuts_text(placement_.cuts[id]), what, reason.empty() ? "" : ", from " + reason);
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
  return out + "between lanes, in order:\n" + traffic_text(lanes_[0].lowered, grid_);
}

// The first mesh that anything was said of.
Mesh mesh_of(const Shardings& in, const Shardings& out) {
  for (const Shardings* list : {&in, &out})
    for (const NamedSharding& sharding : *list)
      if (sharding.defined()) return sharding.mesh();
  return {};
}

Said said_of(const Program& p, const std::vector<ValueId>& ids, const Shardings& shardings, const Mesh& mesh,
             const LaneGrid& grid) {
  Said out(ids.size());
  for (size_t i = 0; i < ids.size() && i < shardings.size(); ++i)
    if (shardings[i].defined() && shardings[i].mesh() == mesh)
      out[i] = lane_cuts(grid, shardings[i].spec(), p.types[ids[i]].shape.size());
  return out;
}

}  // namespace

std::shared_ptr<Executable> compile_on_lanes(const ProgramPtr& program, const std::vector<bool>& donated,
                                             const Arrays& captures, const Shardings& in, const Shardings& said_out,
                                             const Shardings& out_shardings) {
  if (Lanes::local().count() == 1) return nullptr;
  const Mesh mesh = mesh_of(in, said_out);
  LaneGrid grid = lane_grid(mesh, Lanes::local().count());
  if (grid.axes.empty()) return nullptr;
  Program global = simplify(inline_bodies(*program, Inline::early));
  global = drop_dead(inline_bodies(global, Inline::late));
  Placement placement = place(global, grid, said_of(global, global.inputs, in, mesh, grid),
                              said_of(global, global.outputs, said_out, mesh, grid));
  return std::make_shared<ManyLanes>(program, donated, captures, out_shardings, std::move(global), std::move(grid),
                                     std::move(placement));
}

}  // namespace lockstep::detail
