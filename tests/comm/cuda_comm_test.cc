// Comms of GPU lanes: the choice between NCCL and staging, which needs no GPU, and the conformance suite on a GPU, with
// data copied to the GPU and back.
#ifdef LOCKSTEP_WITH_CUDA

#include "comm/cuda/cuda_comm.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "base/throws.h"
#include "comm/conformance.h"
#include "comm/in_process.h"
#include "comm/recorder.h"
#include "lane/gpu_report.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

GpuFacts gpu_facts(uint8_t gpu, int32_t nccl = 22809) {
  GpuFacts facts{{}, nccl};
  facts.uuid[0] = gpu;
  return facts;
}

TEST(GpuTransport, IsNcclBetweenDifferentGpus) {
  EXPECT_EQ(why_no_nccl(std::vector{gpu_facts(1), gpu_facts(2), gpu_facts(3)}), "");
}

TEST(GpuTransport, IsStagedWhereNcclCannotBeUsed) {
  EXPECT_EQ(why_no_nccl(std::vector{gpu_facts(1)}), "there is only one lane");
  EXPECT_EQ(why_no_nccl(std::vector{gpu_facts(1), gpu_facts(2, 0)}), "lane 1 of 2 has no NCCL");
  EXPECT_EQ(why_no_nccl(std::vector{gpu_facts(1), gpu_facts(2), gpu_facts(1)}), "lanes 0 and 2 of 3 share a GPU");
  EXPECT_EQ(why_no_nccl(std::vector{gpu_facts(1), gpu_facts(2, 21805)}),
            "lane 0 of 2 has NCCL 22809 and lane 1 has 21805");
}

constexpr int kMaxLanes = 8;

// A lane of this program; null when there is no GPU.
CudaStream* gpu_lane(int lane) {
  ::setenv("LOCKSTEP_CUDA_LANES", std::to_string(kMaxLanes).c_str(), 0);
  return cuda_device_count() == 0 ? nullptr : &CudaStream::of(lane);
}

int64_t bytes_of(std::span<const int64_t> counts, DType dtype) {
  int64_t n = 0;
  for (const int64_t count : counts) n += count;
  return n * size_of(dtype);
}

// A Comm on host memory that runs every operation on a GPU, in place where the caller requests that.
class OnGpu final : public Comm {
 public:
  OnGpu(std::unique_ptr<Comm> inner, CudaStream& lane)
      : Comm(inner->rank(), inner->size(), inner->name(), inner->timeout()), inner_(std::move(inner)), lane_(lane) {}

  void abort(const std::string& reason) override { inner_->abort(reason); }

 private:
  struct GpuOperation {
    BufferPtr in, out;
    const void* from = nullptr;
    void* to = nullptr;
    std::byte* host = nullptr;
    int64_t bytes = 0;
    Work work;
  };

  void* start(const Operation& o) override {
    inner_->set_timeout(timeout());
    using Kind = Operation::Kind;
    const int64_t size = size_of(o.dtype), own = static_cast<int64_t>(rank());
    int64_t in = o.count * size, out = in;
    if (o.kind == Kind::reduce_scatter)
      in = bytes_of(o.counts, o.dtype), out = o.counts[static_cast<size_t>(own)] * size;
    if (o.kind == Kind::all_gather) in = o.counts[static_cast<size_t>(own)] * size, out = bytes_of(o.counts, o.dtype);
    if (o.kind == Kind::all_to_all) in = bytes_of(o.counts, o.dtype), out = bytes_of(o.receive_counts, o.dtype);
    auto op = std::make_unique<GpuOperation>();
    place(*op, static_cast<const std::byte*>(o.in), in, static_cast<std::byte*>(o.out), out);
    op->work = begin(o, op->from, op->to);
    return op.release();
  }

  void place(GpuOperation& op, const std::byte* in, int64_t in_bytes, std::byte* out, int64_t out_bytes) {
    op.host = out;
    op.bytes = out_bytes;
    op.in = lane_.allocate(in_bytes);
    op.from = op.in->data();
    const bool out_in_in = out >= in && out + out_bytes <= in + in_bytes,
               in_in_out = in >= out && in + in_bytes <= out + out_bytes;
    if (out_in_in) {
      op.to = op.in->data() + (out - in);
    } else {
      op.out = lane_.allocate(out_bytes);
      op.to = op.out->data();
      if (in_in_out) op.from = op.out->data() + (in - out);
    }
    lane_.to_device(const_cast<void*>(op.from), in, in_bytes);
  }

  Work begin(const Operation& o, const void* in, void* out) {
    switch (o.kind) {
      case Operation::Kind::all_reduce:
        return inner_->start_all_reduce(in, out, o.count, o.dtype, o.reduction);
      case Operation::Kind::reduce_scatter:
        return inner_->start_reduce_scatter(in, out, o.counts, o.dtype, o.reduction);
      case Operation::Kind::all_gather:
        return inner_->start_all_gather(in, out, o.counts, o.dtype);
      case Operation::Kind::all_to_all:
        return inner_->start_all_to_all(in, out, o.counts, o.receive_counts, o.dtype);
      case Operation::Kind::permute:
        return inner_->start_permute(in, out, o.count, o.dtype, o.routes);
      case Operation::Kind::broadcast:
        return inner_->start_broadcast(out, o.count, o.dtype, o.root);
      default:
        return inner_->start_barrier();
    }
  }

  void finish(void* state) override {
    const std::unique_ptr<GpuOperation> op(static_cast<GpuOperation*>(state));
    inner_->set_timeout(timeout());
    op->work.wait();
    lane_.to_host(op->host, op->to, op->bytes);
  }
  void abandon(void* state) noexcept override { delete static_cast<GpuOperation*>(state); }

  std::unique_ptr<Comm> make_group(const std::vector<int>& ranks, const std::string& name) override {
    inner_->set_timeout(timeout());
    return std::make_unique<OnGpu>(inner_->split(ranks, name), lane_);
  }

  std::unique_ptr<Comm> inner_;
  CudaStream& lane_;
};

using MakeComm = std::function<std::unique_ptr<Comm>(Comm& host, CudaStream& lane)>;

// Runs every rank on its own thread and lane. Uses every `step`-th lane, to spread the ranks over the GPUs.
void on_gpu_lanes(int n, const std::function<void(Comm&)>& body, const MakeComm& make, int step = 1) {
  if (!gpu_lane(0)) GTEST_SKIP() << cuda_why_not();
  const auto hosts = in_process_comms(n);
  std::vector<std::unique_ptr<Comm>> comms(hosts.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < hosts.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        CudaStream& lane = *gpu_lane(static_cast<int>(rank) * step);
        comms[rank] = std::make_unique<OnGpu>(make(*hosts[rank], lane), lane);
        body(*comms[rank]);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        hosts[rank]->abort(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
}

void run_staged(int n, const std::function<void(Comm&)>& body) {
  on_gpu_lanes(n, body, [](Comm& host, CudaStream& lane) { return staged_comm(host, lane); });
}

// At most one rank per GPU: NCCL does not allow more.
void run_nccl(int n, const std::function<void(Comm&)>& body) {
  if (detail::nccl_version() == 0) GTEST_SKIP() << "NCCL is not available";
  if (!gpu_lane(0)) GTEST_SKIP() << cuda_why_not();
  if (n > cuda_device_count()) GTEST_SKIP() << "there are fewer than " << n << " GPUs";
  on_gpu_lanes(
      n, body,
      [](Comm& host, CudaStream& lane) {
        std::string why_not;
        auto made = nccl_comm(host, lane, why_not);
        if (!made) throw Error(why_not);
        return made;
      },
      kMaxLanes / n);
}

std::vector<conformance::Case> gpu_cases(const conformance::Backend& backend, const std::vector<int>& sizes,
                                         bool failures) {
  std::vector<conformance::Case> all;
  for (const int ranks : sizes) {
    for (const auto& checks : {conformance::value_checks(), conformance::sequence_checks()})
      for (const conformance::Check& check : checks)
        if (ranks >= check.min_ranks) all.push_back({backend, check, ranks});
    for (const conformance::Check& check : conformance::failure_checks())
      if (ranks >= check.min_ranks && (failures || ranks == 1)) all.push_back({backend, check, ranks});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(StagedOnGpu, CommConformance,
                         testing::ValuesIn(gpu_cases({"staged", run_staged}, {1, 2, 3, 4, 8}, true)),
                         conformance::name_of);
// NCCL does not detect ranks that disagree: they time out.
INSTANTIATE_TEST_SUITE_P(NcclOnGpu, CommConformance,
                         testing::ValuesIn(gpu_cases({"nccl", run_nccl}, {1, 2, 4, 8}, false)), conformance::name_of);

// The operation on the GPU never completes, but the wait for it ends. Needs two GPUs.
TEST(NcclComm, MissingRankEndsTheWaitForTheGpu) {
  run_nccl(2, [](Comm& comm) {
    if (comm.rank() == 1) return;
    comm.set_timeout(std::chrono::milliseconds(100));
    float value = 1;
    EXPECT_THROWS(
        comm.all_reduce(&value, &value, 1, f32, Reduction::sum), CommTimeout,
        "all_reduce 1 on \"world\": rank 0 of 2 waited 0.1 s for other ranks; check whether they hang or have "
        "exited, or raise the timeout if they are only slow");
    EXPECT_THROWS(comm.all_reduce(&value, &value, 1, f32, Reduction::sum), CommAborted,
                  "all_reduce 2 on \"world\": rank 0 of 2 stops; first cause: all_reduce 1 on ");
  });
}

TEST(NcclComm, AbortEndsTheWaitForTheGpu) {
  run_nccl(2, [](Comm& comm) {
    if (comm.rank() == 1) return;
    float value = 1;
    Work work = comm.start_all_reduce(&value, &value, 1, f32, Reduction::sum);
    comm.abort("enough");
    EXPECT_THROWS(work.wait(), CommAborted, "rank 0 of 2 stops; first cause: rank 0: enough");
  });
}

TEST(NcclComm, RecordsItsOperations) {
  FlightRecorder recorder(0, 1);
  FlightLane& flight = *recorder.lanes()[0];
  if (detail::nccl_version() == 0 || !gpu_lane(0)) GTEST_SKIP() << "NCCL or a GPU is not available";
  on_gpu_lanes(
      1,
      [](Comm& comm) {
        float value = 2;
        comm.all_reduce(&value, &value, 1, f32, Reduction::sum);
        comm.all_reduce(&value, &value, 1, f32, Reduction::max);  // on the host
        { const Work left = comm.start_broadcast(&value, 1, f32, 0); }
        comm.barrier();
      },
      [&](Comm& host, CudaStream& lane) {
        host.record_to(flight);
        std::string why_not;
        auto made = nccl_comm(host, lane, why_not);
        if (!made) throw Error(why_not);
        return made;
      });
  using Kind = Operation::Kind;
  const std::vector<Kind> kinds = {Kind::all_reduce, Kind::all_reduce, Kind::broadcast, Kind::barrier};
  size_t seen = 0;
  for (const FlightRecord& record : flight.records()) {
    if (flight.groups()[static_cast<size_t>(record.group)]->name() != "world (NCCL)") continue;
    ASSERT_LT(seen, kinds.size());
    EXPECT_EQ(record.kind, kinds[seen]);
    EXPECT_EQ(record.sequence, static_cast<int64_t>(++seen));
    EXPECT_EQ(record.outcome, FlightRecord::Outcome::done) << "operation " << seen;
    EXPECT_GE(record.ended, record.began);
  }
  EXPECT_EQ(seen, kinds.size());
}

TEST(CudaComm, LanesThatShareAGpuUseStaging) {
  on_gpu_lanes(
      2,
      [](Comm& comm) {
        float value = static_cast<float>(comm.rank() + 1);
        comm.all_reduce(&value, &value, 1, f32, Reduction::sum);
        EXPECT_EQ(value, 3.0f);
      },
      [](Comm& host, CudaStream& lane) { return cuda_comm(host, lane); });
}

TEST(CudaComm, LanesOfOneGpuHaveDifferentStreams) {
  if (!gpu_lane(0)) GTEST_SKIP() << cuda_why_not();
  EXPECT_NE(gpu_lane(0), gpu_lane(1));
  EXPECT_NE(gpu_lane(0)->stream(), gpu_lane(1)->stream());
}

// Work that a lane watches is checked while the lane waits, and can end the wait.
TEST(CudaComm, WaitEndsWhenWatchedWorkThrows) {
  if (!gpu_lane(0)) GTEST_SKIP() << cuda_why_not();
  struct FailedWork : CudaStream::WatchedWork {
    bool poll(std::chrono::steady_clock::time_point) override { throw CommAborted("a peer is gone"); }
  } failed_work;
  CudaStream& lane = *gpu_lane(0);
  const BufferPtr memory = lane.allocate(4);
  lane.clear(memory->data(), 4);
  int32_t value = 1;
  lane.watch(&failed_work);
  EXPECT_THROWS(lane.to_host(&value, memory->data(), 4), CommAborted, "a peer is gone");
  EXPECT_EQ(value, 1);
  lane.unwatch(&failed_work);
  lane.to_host(&value, memory->data(), 4);
  EXPECT_EQ(value, 0);
}

}  // namespace
}  // namespace lockstep

#endif
