// A data-parallel step (sgd, batch 128) over the lanes of this process: its time, its compile time, and, on several
// lanes, how much of the communication is hidden behind computation. The number of lanes is fixed when the process
// starts, so compare runs:
//
//   for n in 1 2; do LOCKSTEP_CPU_LANES=$n build/benchmarks/lanes cnn; done
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <memory>

#include "passes/partition.h"
#include "passes/passes.h"
#include "passes/schedule.h"
#include "plan/lane_comms.h"
#include "plan/lanes.h"
#include "plan/plan.h"
#include "support/models.h"
#include "timing.h"

namespace lockstep {
namespace {

double ms_since(Clock::time_point start) { return seconds_since(start) * 1e3; }
// CPU time of all threads of the process, which other load disturbs least.
double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}
double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

models::Result train_step(const models::State& state, const models::Batch& batch) {
  return models::train_step(state, batch, "sgd", 1e-3f);
}

models::Batch make_batch() {
  return {random::uniform(random::key(1), {128, 784}), random::randint(random::key(2), {128}, 0, 10)};
}

void time_steps(const std::string& model) {
  const Mesh mesh = make_mesh({"data"});
  const NamedSharding sharded(mesh, P("data")), replicated(mesh, P());
  const auto step = jit(train_step, {.donate = {0}, .in_shardings = {replicated, sharded}});
  models::State state = device_put(models::create_state(models::init(model, 0)), replicated);
  const models::Batch batch = device_put(make_batch(), sharded);
  const auto begin = Clock::now();
  const double cpu_before = cpu_ms();
  step.work_bytes(state, batch);
  const double compile = ms_since(begin), cpu = cpu_ms() - cpu_before;
  std::vector<double> times;
  for (int i = 0; i < (model == "cnn" ? 13 : 61); ++i) {
    const auto start = Clock::now();
    state = step(state, batch).state;
    times.push_back(ms_since(start));
  }
  const double first = times.front(), time = median({times.begin() + 1, times.end()});
  fmt::print(
      "{} on {} lanes: compiled in {:.1f} ms ({:.1f} ms of processor time), first call {:.1f} ms, step {:.3f} ms, "
      "{:.0f} "
      "examples/s\n",
      model, Lanes::current().count(), compile, cpu, first, time, 128e3 / time);
}

// Wraps a group and measures its waits.
class TimedComm final : public Comm {
 public:
  explicit TimedComm(Comm& inner) : Comm(inner.rank(), inner.size(), inner.name(), inner.timeout()), inner_(inner) {}

  void abort(const std::string& reason) override { inner_.abort(reason); }

  double waited = 0;                  // ms
  std::vector<Operation> operations;  // those of the last run
  Work begin(const Operation& op) {
    switch (op.kind) {
      case Operation::Kind::all_reduce:
        return inner_.start_all_reduce(op.in, op.out, op.count, op.dtype, op.reduction);
      case Operation::Kind::reduce_scatter:
        return inner_.start_reduce_scatter(op.in, op.out, op.counts, op.dtype, op.reduction);
      case Operation::Kind::all_gather:
        return inner_.start_all_gather(op.in, op.out, op.counts, op.dtype);
      case Operation::Kind::all_to_all:
        return inner_.start_all_to_all(op.in, op.out, op.counts, op.receive_counts, op.dtype);
      default:
        return inner_.start_barrier();
    }
  }

 protected:
  void* start(const Operation& op) override {
    operations.push_back(op);
    return new Work(begin(op));
  }
  void finish(void* state) override {
    const std::unique_ptr<Work> work(static_cast<Work*>(state));
    const auto start = Clock::now();
    work->wait();
    waited += ms_since(start);
  }
  void abandon(void* state) noexcept override { delete static_cast<Work*>(state); }
  std::unique_ptr<Comm> make_group(const std::vector<int>& ranks, const std::string& name) override {
    return inner_.split(ranks, name);
  }

 private:
  Comm& inner_;
};

struct TimedLane {
  std::unique_ptr<TimedComm> comm;
  std::unique_ptr<LanePlan> plan;
  std::vector<BufferPtr> in, out;

  void run() {
    std::vector<const void*> from;
    std::vector<void*> to;
    for (const BufferPtr& each : in) from.push_back(each->data());
    for (const BufferPtr& each : out) to.push_back(each->data());
    comm->operations.clear();
    plan->run(from.data(), to.data());
  }
};

// The step over lanes along "data", with parameters replicated or, if `sharded`, sharded like the batch.
void time_communication(const std::string& model, bool sharded, const CollectiveScheduleOptions& options,
                        const char* what) {
  const LaneGrid grid{{{"data", Lanes::current().count(), 1}}};
  const auto call =
      detail::trace_call("benchmark", train_step, models::create_state(models::init(model, 0)), make_batch());
  const Program global = simplify(inline_bodies(*call.traced.program, Inline::early));
  const auto constraints = [&](const std::vector<ValueId>& ids, size_t batch) {
    LaneConstraints out;
    for (size_t i = 0; i < ids.size(); ++i) {
      out.emplace_back(global.types[ids[i]].shape.size());
      if (!out.back()->empty() && (sharded || i >= batch)) out.back()->at(0) = {"data"};
    }
    return out;
  };
  const Placement placement = place(global, grid, constraints(global.inputs, global.inputs.size() - 2),
                                    constraints(global.outputs, global.outputs.size()));
  const CollectiveSchedule schedule = schedule_collectives(partition(global, grid, placement, 0), options);
  LaneComms comms(grid, false);
  std::vector<TimedLane> lanes(static_cast<size_t>(grid.lanes()));
  Lanes::current().run([&](int64_t at) {
    TimedLane& lane = lanes[static_cast<size_t>(at)];
    lane.comm = std::make_unique<TimedComm>(*comms.of(at, "data"));
    const Program p = lower(apply_schedule(partition(global, grid, placement, at), schedule));
    lane.plan = Lanes::current().lane(at).compile(p, {{}, [&lane](const std::string&) { return lane.comm.get(); }});
    for (const Type& type : p.input_types()) {
      lane.in.push_back(allocate(type.bytes()));
      std::fill_n(lane.in.back()->as<uint8_t>(), type.bytes(), uint8_t{0});
      if (type.dtype == f32) std::fill_n(lane.in.back()->as<float>(), count(type.shape), 0.01f);
    }
    for (const Type& type : p.output_types()) lane.out.push_back(allocate(type.bytes()));
  });
  std::vector<double> steps, waited, alone;
  for (int round = 0; round < (model == "cnn" ? 10 : 40); ++round) {
    for (TimedLane& lane : lanes) lane.comm->waited = 0;
    const auto start = Clock::now();
    Lanes::current().run([&](int64_t at) { lanes[static_cast<size_t>(at)].run(); });
    steps.push_back(ms_since(start));
    double sum = 0;
    for (const TimedLane& lane : lanes) sum += lane.comm->waited;
    waited.push_back(sum / static_cast<double>(lanes.size()));
    // The same operations without concurrent computation.
    std::vector<double> each(lanes.size());
    Lanes::current().run([&](int64_t at) {
      TimedComm& comm = *lanes[static_cast<size_t>(at)].comm;
      comm.begin({}).wait();
      const auto first = Clock::now();
      for (const Operation& op : comm.operations) comm.begin(op).wait();
      each[static_cast<size_t>(at)] = ms_since(first);
    });
    alone.push_back(*std::max_element(each.begin(), each.end()));
  }
  fmt::print("  {}: step {:.3f} ms, waited {:.3f} ms for operations that take {:.3f} ms alone: {:.0f} % hidden\n", what,
             median(steps), median(waited), median(alone), std::max(0.0, 100 * (1 - median(waited) / median(alone))));
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  const std::string model = argc > 1 ? argv[1] : "mlp1024";
  set_cpu_devices(8);
  time_steps(model);
  if (Lanes::current().count() == 1) return 0;
  time_communication(model, false, {.bucket_bytes = int64_t{1} << 40, .prefetch = 0}, "data parallel, one bucket");
  time_communication(model, false, {}, "data parallel");
  time_communication(model, true, {.prefetch = 0}, "fully sharded, no prefetch");
  time_communication(model, true, {}, "fully sharded");
}
