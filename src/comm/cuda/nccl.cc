#include "hardware/cuda/nccl.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/cuda/cuda_comm.h"
#include "comm/cuda/nccl_calls.h"
#include "comm/failure_text.h"
#include "comm/recorder.h"
#include "lane/gpu_deadline.h"
#include "lockstep/error.h"

namespace lockstep {

#ifdef LOCKSTEP_WITH_NCCL
namespace {

using Kind = Operation::Kind;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kPoll(50);

// NCCL's error message, with details of the failed call where NCCL provides them.
std::string describe_error(ncclResult_t result, ncclComm_t comm) {
  const char* const more = cuda_nccl()->ncclGetLastError(comm);
  return fmt::format("NCCL: {}{}", cuda_nccl()->ncclGetErrorString(result),
                     more && *more ? fmt::format(" ({})", more) : "");
}

// Whether an operation must not use NCCL. A Comm promises that max and min of values with a NaN are NaN; NCCL does not,
// and it has no 16-bit integers.
bool needs_host(const Operation& operation) {
  const bool reduces = operation.kind == Kind::all_reduce || operation.kind == Kind::reduce_scatter;
  return operation.kind == Kind::barrier ||
         (reduces && (operation.dtype == DType::i16 || operation.dtype == DType::u16)) ||
         (reduces && is_floating(operation.dtype) && operation.reduction != Reduction::sum);
}

class NcclComm final : public Comm, private CudaStream::WatchedWork {
 public:
  // `comm` is fully initialized.
  NcclComm(Comm& host, std::unique_ptr<Comm> owned, CudaStream& lane, ncclComm_t comm)
      : Comm(host.rank(), host.size(), host.name(), host.timeout()),
        owned_(std::move(owned)),
        host_(host),
        lane_(lane),
        staged_(staged_comm(host, lane)),
        comm_(comm) {
    lane_.enter();
    check_cuda(cuda().cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
    begun_ = new_cuda_event();
    // Operations end after wait() has returned, so this class records them itself, in a group of its own.
    if (FlightGroup* const of_host = host.recorded())
      flight_ = &of_host->lane().add_group(host.name() + " (NCCL)", of_host->lanes());
    lane_.watch(this);
  }

  ~NcclComm() override {
    try {
      lane_.wait_for_all();
    } catch (const std::exception&) {  // thrown again when results are read
    }
    lane_.unwatch(this);
    abort_nccl("it has left the group");
    staged_.reset();
    lane_.enter();
    for (const auto& op : operations_) cuda().cudaEventDestroy(op->event);
    cuda().cudaEventDestroy(begun_);
    cuda().cudaStreamDestroy(stream_);
  }

  void abort(const std::string& reason) override {
    host_.abort(reason);
    abort_nccl(fmt::format("rank {}: {}", rank(), reason));
  }

 private:
  // An operation: enqueued on stream_, or started on another Comm (`fallback`).
  struct NcclOperation {
    cudaEvent_t event = nullptr;  // recorded after the operation
    Kind kind = Kind::barrier;
    int64_t number = 0;
    std::optional<uint64_t> ticket;  // of the flight recorder, until its end is recorded
    Clock::time_point enqueued;
    Work fallback;
    bool done = true, waited = true;  // free when both hold
  };

  void* start(const Operation& operation) override {
    shared_timeout_.get();
    std::unique_lock lock(mutex_);
    const int64_t number = ++started_;
    throw_if_aborted(operation.kind, number);
    NcclOperation* const op = allocate();
    op->kind = operation.kind;
    op->number = number;
    if (flight_) op->ticket = flight_->lane().begin(*flight_, operation, true);
    try {
      if (needs_host(operation)) {
        lock.unlock();
        op->fallback = fallback(operation);
        op->waited = false;
      } else {
        enqueue(operation, op, lock);
      }
    } catch (...) {
      record_end(*op, false);
      throw;
    }
    return op;
  }

  void enqueue(const Operation& operation, NcclOperation* op, std::unique_lock<std::mutex>& lock) {
    lane_.enter();
    {
      const auto enqueue_lock = lane_.enqueue_lock();
      check_cuda(cuda().cudaEventRecord(begun_, lane_.stream()), "mark the beginning of a collective");
      check_cuda(cuda().cudaStreamWaitEvent(stream_, begun_, 0), "wait for the operands of a collective");
    }
    issue(operation, op, lock);
    check_cuda(cuda().cudaEventRecord(op->event, stream_), "mark the end of a collective");
    op->enqueued = Clock::now();
    op->done = op->waited = false;
    in_flight_.push_back(op);
    collect_done();
  }

  void record_end(NcclOperation& op, bool done) noexcept {
    if (op.ticket) flight_->lane().end(*op.ticket, done);
    op.ticket.reset();
  }

  Work fallback(const Operation& o) {
    if (o.kind == Kind::barrier) return host_.start_barrier();
    if (o.kind == Kind::all_reduce) return staged_->start_all_reduce(o.in, o.out, o.count, o.dtype, o.reduction);
    return staged_->start_reduce_scatter(o.in, o.out, o.counts, o.dtype, o.reduction);
  }

  void finish(void* state) override {
    auto* const op = static_cast<NcclOperation*>(state);
    if (op->fallback) {
      op->waited = true;
      try {
        op->fallback.wait();
      } catch (...) {
        record_end(*op, false);
        throw;
      }
      return record_end(*op, true);
    }
    const std::lock_guard lock(mutex_);
    op->waited = true;
    lane_.enter();
    const auto enqueue_lock = lane_.enqueue_lock();
    check_cuda(cuda().cudaStreamWaitEvent(lane_.stream(), op->event, 0), "wait for a collective");
    throw_if_aborted(op->kind, op->number);
  }

  void abandon(void* state) noexcept override {
    auto* const op = static_cast<NcclOperation*>(state);
    if (op->fallback) record_end(*op, false);
    op->fallback = Work();
    const std::lock_guard lock(mutex_);
    op->waited = true;
    // Work that is enqueued on the lane from now on may use the memory of the operation again.
    if (op->done) return;
    const auto enqueue_lock = lane_.enqueue_lock();
    cuda().cudaStreamWaitEvent(lane_.stream(), op->event, 0);
  }

  std::unique_ptr<Comm> make_group(const std::vector<int>& ranks, const std::string& name) override;

  // Enqueues the operation on stream_. The communicator is non-blocking, so a peer that has ended does not block this
  // thread.
  void issue(const Operation& o, const NcclOperation* op, std::unique_lock<std::mutex>& lock) {
    const auto receives = [this](const Route& route) { return route.destination == rank(); };
    if (o.kind == Kind::permute && std::ranges::none_of(o.routes, receives))
      check_cuda(cuda().cudaMemsetAsync(o.out, 0, static_cast<size_t>(o.count * size_of(o.dtype)), stream_),
                 "clear memory");
    const CudaNccl& nccl = *cuda_nccl();
    ncclResult_t result = detail::enqueue_nccl_calls(o, rank(), comm_, stream_);
    const Clock::time_point began = Clock::now();
    while (result == ncclInProgress) {
      lock.unlock();
      std::this_thread::sleep_for(kPoll);
      lock.lock();
      throw_if_aborted(op->kind, op->number);
      const ncclResult_t status = nccl.ncclCommGetAsyncError(comm_, &result);
      if (status != ncclSuccess) result = status;
      if (result == ncclInProgress && Clock::now() - began > host_.timeout()) throw_timeout(*op, lock);
    }
    if (result != ncclSuccess) throw_failure(op->kind, op->number, describe_error(result, comm_));
  }

  // Called by the lane while it waits for its GPU. Throws when the group has failed or an operation has timed out.
  bool poll(Clock::time_point waiting_since) override {
    std::unique_lock lock(mutex_);
    collect_done();
    if (in_flight_.empty()) return false;
    const NcclOperation& first = *in_flight_.front();
    throw_if_aborted(first.kind, first.number);
    ncclResult_t state = ncclSuccess;
    const ncclResult_t status = cuda_nccl()->ncclCommGetAsyncError(comm_, &state);
    if (status != ncclSuccess) state = status;
    if (state != ncclSuccess && state != ncclInProgress)
      throw_failure(first.kind, first.number, describe_error(state, comm_));
    if (Clock::now() - std::max({waiting_since, progress_, first.enqueued}) > host_.timeout())
      throw_timeout(first, lock);
    return true;
  }

  // The methods below are called with the lock held.

  void collect_done() {
    while (!in_flight_.empty() && cuda().cudaEventQuery(in_flight_.front()->event) == cudaSuccess) {
      in_flight_.front()->done = true;
      record_end(*in_flight_.front(), true);
      in_flight_.pop_front();
      progress_ = Clock::now();
    }
  }

  NcclOperation* allocate() {
    for (size_t i = 0; i < operations_.size(); ++i) {
      next_ = (next_ + 1) % operations_.size();
      if (operations_[next_]->done && operations_[next_]->waited) return operations_[next_].get();
    }
    lane_.enter();
    operations_.push_back(std::make_unique<NcclOperation>());
    operations_.back()->event = new_cuda_event();
    return operations_.back().get();
  }

  void throw_if_aborted(Kind kind, int64_t number) const {
    if (!comm_)
      throw CommAborted(fmt::format("{} {} on \"{}\": rank {} of {} stops; first cause: {}", lockstep::name(kind),
                                    number, name(), rank(), size(), cause_));
  }

  [[noreturn]] void throw_failure(Kind kind, int64_t number, const std::string& cause) {
    abort_nccl_locked(cause);
    throw_if_aborted(kind, number);
    LOCKSTEP_CHECK(false, "an aborted group has no communicator");
  }

  [[noreturn]] void throw_timeout(const NcclOperation& op, std::unique_lock<std::mutex>& lock) {
    const std::string text = fmt::format(
        "{} {} on \"{}\": rank {} of {} waited {} s for other ranks; {}", lockstep::name(op.kind), op.number, name(),
        rank(), size(), std::chrono::duration<double>(host_.timeout()).count(), detail::kTimeoutRemedy);
    abort_nccl_locked(text);
    lock.unlock();
    host_.abort(text);
    throw CommTimeout(text);
  }

  void abort_nccl(const std::string& cause) {
    const std::lock_guard lock(mutex_);
    abort_nccl_locked(cause);
  }

  // Aborts NCCL's operations on the GPU.
  void abort_nccl_locked(const std::string& cause) {
    if (!comm_) return;
    cause_ = cause;
    for (NcclOperation* const op : in_flight_) record_end(*op, false);
    const ncclComm_t comm = std::exchange(comm_, nullptr);
    if (!GpuDeadline::any_expired()) cuda_nccl()->ncclCommAbort(comm);  // which waits for the GPU
  }

  std::unique_ptr<Comm> owned_;
  Comm& host_;
  CudaStream& lane_;
  std::unique_ptr<Comm> staged_;
  detail::SharedTimeout shared_timeout_{*this, host_};
  cudaStream_t stream_ = nullptr;
  FlightGroup* flight_ = nullptr;
  cudaEvent_t begun_ = nullptr;  // marks the work on the lane that an operation must wait for

  std::mutex mutex_;
  ncclComm_t comm_;  // null: aborted, because of cause_
  std::string cause_;
  int64_t started_ = 0;
  std::vector<std::unique_ptr<NcclOperation>> operations_;
  size_t next_ = 0;
  std::deque<NcclOperation*> in_flight_;  // enqueued operations, in order
  Clock::time_point progress_{};          // when an operation was last found to be done
};

// Creates an initialized communicator. Returns null, and sets `why_not`, when this fails on this rank.
ncclComm_t connect(Comm& host, const ncclUniqueId& id, std::string& why_not) {
  const CudaNccl& nccl = *cuda_nccl();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ncclResult_t result = nccl.ncclCommInitRankConfig(&comm, host.size(), id, host.rank(), &config);
  const Clock::time_point deadline =
      Clock::now() + std::min<std::chrono::nanoseconds>(host.timeout(), std::chrono::hours(24));
  while (result == ncclInProgress && Clock::now() < deadline) {
    std::this_thread::sleep_for(kPoll);
    const ncclResult_t status = nccl.ncclCommGetAsyncError(comm, &result);
    if (status != ncclSuccess) result = status;
  }
  if (result == ncclSuccess) return comm;
  why_not = result == ncclInProgress ? "it did not start in time" : describe_error(result, comm);
  if (comm) nccl.ncclCommAbort(comm);
  return nullptr;
}

std::unique_ptr<Comm> make_nccl(Comm& host, std::unique_ptr<Comm>& owned, CudaStream& lane, std::string& why_not) {
  lane.enter();
  ncclUniqueId id{};
  int32_t ok = 1;
  if (host.rank() == 0) {
    const ncclResult_t result = cuda_nccl()->ncclGetUniqueId(&id);
    if (result != ncclSuccess) {
      why_not = describe_error(result, nullptr);
      ok = 0;
    }
  }
  host.broadcast(&ok, 1, DType::i32, 0);
  host.broadcast(&id, sizeof id, DType::u8, 0);
  ncclComm_t comm = nullptr;
  if (ok) comm = connect(host, id, why_not);
  ok = comm ? 1 : 0;
  try {
    host.all_reduce(&ok, &ok, 1, DType::i32, Reduction::min);
  } catch (...) {
    if (comm) cuda_nccl()->ncclCommAbort(comm);
    throw;
  }
  if (ok) return std::make_unique<NcclComm>(host, std::move(owned), lane, comm);
  if (comm) cuda_nccl()->ncclCommAbort(comm);
  if (why_not.empty()) why_not = "another rank failed; see the logs of the other processes";
  return nullptr;
}

std::unique_ptr<Comm> NcclComm::make_group(const std::vector<int>& ranks, const std::string& name) {
  shared_timeout_.get();
  std::unique_ptr<Comm> group = host_.split(ranks, name);
  Comm& host = *group;
  std::string why_not;
  std::unique_ptr<Comm> made = make_nccl(host, group, lane_, why_not);
  return made ? std::move(made) : detail::staged_comm(std::move(group), lane_);
}

}  // namespace

std::unique_ptr<Comm> nccl_comm(Comm& host, CudaStream& lane, std::string& why_not) {
  std::unique_ptr<Comm> none;
  return make_nccl(host, none, lane, why_not);
}

int32_t detail::nccl_version() {
  int version = 0;
  if (!cuda_nccl() || cuda_nccl()->ncclGetVersion(&version) != ncclSuccess) return 0;
  constexpr int kMinVersion = 21800;  // see hardware/cuda/nccl.h
  return version < kMinVersion ? 0 : version;
}

#else

std::unique_ptr<Comm> nccl_comm(Comm&, CudaStream&, std::string& why_not) {
  why_not = "NCCL is not built in";
  return nullptr;
}

int32_t detail::nccl_version() { return 0; }

#endif

}  // namespace lockstep
