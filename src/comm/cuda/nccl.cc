#include "lane/cuda/nccl.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/cuda/cuda_comm.h"
#include "comm/recorder.h"
#include "lane/gpu_deadline.h"
#include "lockstep/error.h"

namespace lockstep {

#ifdef LOCKSTEP_WITH_NCCL
namespace {

using Kind = Operation::Kind;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kPoll(50);

// NCCL's own words, with the call that failed where it is known.
std::string words_of(ncclResult_t result, ncclComm_t comm) {
  const char* const more = cuda_nccl()->ncclGetLastError(comm);
  return fmt::format("NCCL: {}{}", cuda_nccl()->ncclGetErrorString(result),
                     more && *more ? fmt::format(" ({})", more) : "");
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::boolean:  // max is "any" and min is "all"
    case DType::u8:
      return ncclUint8;
    case DType::i32:
      return ncclInt32;
    case DType::i64:
      return ncclInt64;
    case DType::u32:
      return ncclUint32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
  }
  LOCKSTEP_CHECK(false, "an element type");
}

ncclRedOp_t reduction_of(Reduction reduction) {
  return reduction == Reduction::sum ? ncclSum : reduction == Reduction::max ? ncclMax : ncclMin;
}

// NCCL's greatest of numbers and a NaN is one or the other; a Comm's is the NaN.
bool needs_host(const Operation& operation) {
  const bool reduces = operation.kind == Kind::all_reduce || operation.kind == Kind::reduce_scatter;
  return operation.kind == Kind::barrier ||
         (reduces && is_floating(operation.dtype) && operation.reduction != Reduction::sum);
}

class NcclComm final : public Comm, private CudaLane::WatchedWork {
 public:
  // `comm` is ready.
  NcclComm(Comm& host, std::unique_ptr<Comm> owned, CudaLane& lane, ncclComm_t comm)
      : Comm(host.rank(), host.size(), host.name(), host.timeout()),
        owned_(std::move(owned)),
        host_(host),
        lane_(lane),
        staged_(staged_comm(host, lane)),
        comm_(comm) {
    lane_.enter();
    check_cuda(cuda().cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
    begun_ = new_cuda_event();
    // Its operations end after wait() has returned, so that it records them by itself.
    if (FlightGroup* const of_host = host.recorded())
      flight_ = &of_host->lane().add_group(host.name() + " (NCCL)", of_host->lanes());
    lane_.watch(this);
  }

  ~NcclComm() override {
    try {
      lane_.wait_for_all();
    } catch (const std::exception&) {  // told where somebody wants results
    }
    lane_.unwatch(this);
    give_up("it has left the group");
    staged_.reset();
    lane_.enter();
    for (const auto& item : items_) cuda().cudaEventDestroy(item->event);
    cuda().cudaEventDestroy(begun_);
    cuda().cudaStreamDestroy(stream_);
  }

  void abort(const std::string& reason) override {
    host_.abort(reason);
    give_up(fmt::format("rank {}: {}", rank(), reason));
  }

 private:
  // An operation: queued here, or given to another Comm.
  struct Item {
    cudaEvent_t event = nullptr;  // it is done
    Kind kind = Kind::barrier;
    int64_t number = 0;
    std::optional<uint64_t> ticket;  // while the recorder does not know how it ended
    Clock::time_point queued;
    Work elsewhere;
    bool done = true, waited = true;  // free when both
  };

  void* start(const Operation& operation) override {
    time_.get();
    std::unique_lock lock(mutex_);
    const int64_t number = ++started_;
    check_well(operation.kind, number);
    Item* const item = take();
    item->kind = operation.kind;
    item->number = number;
    if (flight_) item->ticket = flight_->lane().begin(*flight_, operation, true);
    try {
      if (needs_host(operation)) {
        lock.unlock();
        item->elsewhere = elsewhere(operation);
        item->waited = false;
      } else {
        queue(operation, item, lock);
      }
    } catch (...) {
      record_end(*item, false);
      throw;
    }
    return item;
  }

  void queue(const Operation& operation, Item* item, std::unique_lock<std::mutex>& lock) {
    lane_.enter();
    {
      const auto enqueue_lock = lane_.enqueue_lock();
      check_cuda(cuda().cudaEventRecord(begun_, lane_.stream()), "mark the beginning of a collective");
      check_cuda(cuda().cudaStreamWaitEvent(stream_, begun_, 0), "wait for the operands of a collective");
    }
    issue(operation, item, lock);
    check_cuda(cuda().cudaEventRecord(item->event, stream_), "mark the end of a collective");
    item->queued = Clock::now();
    item->done = item->waited = false;
    under_way_.push_back(item);
    reap();
  }

  void record_end(Item& item, bool done) noexcept {
    if (item.ticket) flight_->lane().end(*item.ticket, done);
    item.ticket.reset();
  }

  Work elsewhere(const Operation& o) {
    if (o.kind == Kind::barrier) return host_.start_barrier();
    if (o.kind == Kind::all_reduce) return staged_->start_all_reduce(o.in, o.out, o.count, o.dtype, o.reduction);
    return staged_->start_reduce_scatter(o.in, o.out, o.counts, o.dtype, o.reduction);
  }

  void finish(void* state) override {
    auto* const item = static_cast<Item*>(state);
    if (item->elsewhere) {
      item->waited = true;
      try {
        item->elsewhere.wait();
      } catch (...) {
        record_end(*item, false);
        throw;
      }
      return record_end(*item, true);
    }
    const std::lock_guard lock(mutex_);
    item->waited = true;
    lane_.enter();
    const auto enqueue_lock = lane_.enqueue_lock();
    check_cuda(cuda().cudaStreamWaitEvent(lane_.stream(), item->event, 0), "wait for a collective");
    check_well(item->kind, item->number);
  }

  void abandon(void* state) noexcept override {
    auto* const item = static_cast<Item*>(state);
    if (item->elsewhere) record_end(*item, false);
    item->elsewhere = Work();
    const std::lock_guard lock(mutex_);
    item->waited = true;
    // What is queued on the lane from now on may use the memory again.
    if (item->done) return;
    const auto enqueue_lock = lane_.enqueue_lock();
    cuda().cudaStreamWaitEvent(lane_.stream(), item->event, 0);
  }

  std::unique_ptr<Comm> make_group(const std::vector<int>& ranks, const std::string& name) override;

  // Queues the operation on stream_. Calls return before they are done, so that a peer that is gone holds nobody.
  void issue(const Operation& o, const Item* item, std::unique_lock<std::mutex>& lock) {
    const auto receives = [this](const Route& route) { return route.destination == rank(); };
    if (o.kind == Kind::permute && std::ranges::none_of(o.routes, receives))
      check_cuda(cuda().cudaMemsetAsync(o.out, 0, static_cast<size_t>(o.count * size_of(o.dtype)), stream_),
                 "clear memory");
    const CudaNccl& nccl = *cuda_nccl();
    ncclResult_t result = nccl.ncclGroupStart();
    const auto call = [&](ncclResult_t each) {
      if (each != ncclSuccess && each != ncclInProgress && result == ncclSuccess) result = each;
    };
    issue_calls(o, call);
    const ncclResult_t ended = nccl.ncclGroupEnd();
    if (result == ncclSuccess) result = ended;
    const Clock::time_point began = Clock::now();
    while (result == ncclInProgress) {
      lock.unlock();
      std::this_thread::sleep_for(kPoll);
      lock.lock();
      check_well(item->kind, item->number);
      const ncclResult_t asked = nccl.ncclCommGetAsyncError(comm_, &result);
      if (asked != ncclSuccess) result = asked;
      if (result == ncclInProgress && Clock::now() - began > host_.timeout()) throw_timeout(*item, lock);
    }
    if (result != ncclSuccess) throw_failure(item->kind, item->number, words_of(result, comm_));
  }

  template <class Call>
  void issue_calls(const Operation& o, const Call& call) {
    const CudaNccl& nccl = *cuda_nccl();
    const auto size = static_cast<size_t>(size_of(o.dtype));
    const auto* const in = static_cast<const std::byte*>(o.in);
    auto* const out = static_cast<std::byte*>(o.out);
    const auto elements = [](int64_t n) { return static_cast<size_t>(n); };
    const auto bytes = [&](int64_t n) { return static_cast<size_t>(n) * size; };
    // f(rank, the elements of ranks before it, its own) for each rank that has any.
    const auto each_piece = [](std::span<const int64_t> counts, auto f) {
      int64_t before = 0;
      for (size_t r = 0; r < counts.size(); ++r) {
        if (counts[r] > 0) f(static_cast<int>(r), before, counts[r]);
        before += counts[r];
      }
    };
    const bool equal = std::adjacent_find(o.counts.begin(), o.counts.end(), std::not_equal_to<>()) == o.counts.end();
    switch (o.kind) {
      case Kind::all_reduce:
        if (o.count > 0)
          call(nccl.ncclAllReduce(in, out, elements(o.count), type_of(o.dtype), reduction_of(o.reduction), comm_,
                                  stream_));
        return;
      case Kind::reduce_scatter:
        if (equal && o.counts[0] > 0)
          return call(nccl.ncclReduceScatter(in, out, elements(o.counts[0]), type_of(o.dtype),
                                             reduction_of(o.reduction), comm_, stream_));
        return each_piece(o.counts, [&](int r, int64_t before, int64_t n) {
          call(nccl.ncclReduce(in + bytes(before), out, elements(n), type_of(o.dtype), reduction_of(o.reduction), r,
                               comm_, stream_));
        });
      case Kind::all_gather:
        if (equal && o.counts[0] > 0)
          return call(nccl.ncclAllGather(in, out, bytes(o.counts[0]), ncclUint8, comm_, stream_));
        return each_piece(o.counts, [&](int r, int64_t before, int64_t n) {
          call(nccl.ncclBroadcast(in, out + bytes(before), bytes(n), ncclUint8, r, comm_, stream_));
        });
      case Kind::all_to_all:
        each_piece(o.counts, [&](int r, int64_t before, int64_t n) {
          call(nccl.ncclSend(in + bytes(before), bytes(n), ncclUint8, r, comm_, stream_));
        });
        return each_piece(o.receive_counts, [&](int r, int64_t before, int64_t n) {
          call(nccl.ncclRecv(out + bytes(before), bytes(n), ncclUint8, r, comm_, stream_));
        });
      case Kind::permute:
        for (const Route& route : o.routes) {
          if (o.count == 0) continue;
          if (route.source == rank())
            call(nccl.ncclSend(in, bytes(o.count), ncclUint8, route.destination, comm_, stream_));
          if (route.destination == rank())
            call(nccl.ncclRecv(out, bytes(o.count), ncclUint8, route.source, comm_, stream_));
        }
        return;
      case Kind::broadcast:
        if (o.count > 0) call(nccl.ncclBroadcast(in, out, bytes(o.count), ncclUint8, o.root, comm_, stream_));
        return;
      case Kind::barrier:
      case Kind::split:
        break;
    }
    LOCKSTEP_CHECK(false, "{} is not NCCL's", lockstep::name(o.kind));
  }

  // What the lane asks while it waits for its GPU.
  bool poll(Clock::time_point waiting_since) override {
    std::unique_lock lock(mutex_);
    reap();
    if (under_way_.empty()) return false;
    const Item& first = *under_way_.front();
    check_well(first.kind, first.number);
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = cuda_nccl()->ncclCommGetAsyncError(comm_, &state);
    if (asked != ncclSuccess) state = asked;
    if (state != ncclSuccess && state != ncclInProgress)
      throw_failure(first.kind, first.number, words_of(state, comm_));
    if (Clock::now() - std::max({waiting_since, progress_, first.queued}) > host_.timeout()) throw_timeout(first, lock);
    return true;
  }

  // The rest is done with the lock held.

  void reap() {
    while (!under_way_.empty() && cuda().cudaEventQuery(under_way_.front()->event) == cudaSuccess) {
      under_way_.front()->done = true;
      record_end(*under_way_.front(), true);
      under_way_.pop_front();
      progress_ = Clock::now();
    }
  }

  Item* take() {
    for (size_t i = 0; i < items_.size(); ++i) {
      next_ = (next_ + 1) % items_.size();
      if (items_[next_]->done && items_[next_]->waited) return items_[next_].get();
    }
    lane_.enter();
    items_.push_back(std::make_unique<Item>());
    items_.back()->event = new_cuda_event();
    return items_.back().get();
  }

  void check_well(Kind kind, int64_t number) const {
    if (!comm_)
      throw CommAborted(fmt::format("{} {} on \"{}\": rank {} of {} stops; first cause: {}", lockstep::name(kind),
                                    number, name(), rank(), size(), cause_));
  }

  [[noreturn]] void throw_failure(Kind kind, int64_t number, const std::string& cause) {
    give_up_locked(cause);
    check_well(kind, number);
    LOCKSTEP_CHECK(false, "a group that was given up is well");
  }

  [[noreturn]] void throw_timeout(const Item& item, std::unique_lock<std::mutex>& lock) {
    const std::string text = fmt::format(
        "{} {} on \"{}\": rank {} of {} waited {} s for other ranks; see there what they do or how they ended, or "
        "raise "
        "the timeout if they are only slow",
        lockstep::name(item.kind), item.number, name(), rank(), size(),
        std::chrono::duration<double>(host_.timeout()).count());
    give_up_locked(text);
    lock.unlock();
    host_.abort(text);
    throw CommTimeout(text);
  }

  void give_up(const std::string& cause) {
    const std::lock_guard lock(mutex_);
    give_up_locked(cause);
  }

  // Ends what NCCL has under way on the GPU.
  void give_up_locked(const std::string& cause) {
    if (!comm_) return;
    cause_ = cause;
    for (Item* const item : under_way_) record_end(*item, false);
    const ncclComm_t comm = std::exchange(comm_, nullptr);
    if (!GpuDeadline::any_expired()) cuda_nccl()->ncclCommAbort(comm);  // which waits for the GPU
  }

  std::unique_ptr<Comm> owned_;
  Comm& host_;
  CudaLane& lane_;
  std::unique_ptr<Comm> staged_;
  detail::SharedTimeout time_{*this, host_};
  cudaStream_t stream_ = nullptr;
  FlightGroup* flight_ = nullptr;
  cudaEvent_t begun_ = nullptr;  // what was queued on the lane before the operation that is started is done

  std::mutex mutex_;
  ncclComm_t comm_;  // null: given up, because of cause_
  std::string cause_;
  int64_t started_ = 0;
  std::vector<std::unique_ptr<Item>> items_;
  size_t next_ = 0;
  std::deque<Item*> under_way_;   // on the GPU, in order
  Clock::time_point progress_{};  // when one was last seen to be done
};

// A communicator that is ready; null, and why, where it could not be made on this rank.
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
    const ncclResult_t asked = nccl.ncclCommGetAsyncError(comm, &result);
    if (asked != ncclSuccess) result = asked;
  }
  if (result == ncclSuccess) return comm;
  why_not = result == ncclInProgress ? "it has not begun in time" : words_of(result, comm);
  if (comm) nccl.ncclCommAbort(comm);
  return nullptr;
}

std::unique_ptr<Comm> make_nccl(Comm& host, std::unique_ptr<Comm>& owned, CudaLane& lane, std::string& why_not) {
  lane.enter();
  ncclUniqueId id{};
  int32_t well = 1;
  if (host.rank() == 0) {
    const ncclResult_t result = cuda_nccl()->ncclGetUniqueId(&id);
    if (result != ncclSuccess) {
      why_not = words_of(result, nullptr);
      well = 0;
    }
  }
  host.broadcast(&well, 1, DType::i32, 0);
  host.broadcast(&id, sizeof id, DType::u8, 0);
  ncclComm_t comm = nullptr;
  if (well) comm = connect(host, id, why_not);
  well = comm ? 1 : 0;
  try {
    host.all_reduce(&well, &well, 1, DType::i32, Reduction::min);
  } catch (...) {
    if (comm) cuda_nccl()->ncclCommAbort(comm);
    throw;
  }
  if (well) return std::make_unique<NcclComm>(host, std::move(owned), lane, comm);
  if (comm) cuda_nccl()->ncclCommAbort(comm);
  if (why_not.empty()) why_not = "see what the other processes say";
  return nullptr;
}

std::unique_ptr<Comm> NcclComm::make_group(const std::vector<int>& ranks, const std::string& name) {
  time_.get();
  std::unique_ptr<Comm> group = host_.split(ranks, name);
  Comm& host = *group;
  std::string why_not;
  std::unique_ptr<Comm> made = make_nccl(host, group, lane_, why_not);
  return made ? std::move(made) : detail::staged_comm(std::move(group), lane_);
}

}  // namespace

std::unique_ptr<Comm> nccl_comm(Comm& host, CudaLane& lane, std::string& why_not) {
  std::unique_ptr<Comm> none;
  return make_nccl(host, none, lane, why_not);
}

int32_t detail::nccl_version() {
  int version = 0;
  if (!cuda_nccl() || cuda_nccl()->ncclGetVersion(&version) != ncclSuccess) return 0;
  constexpr int kLeast = 21800;  // as lane/cuda/nccl.h says
  return version < kLeast ? 0 : version;
}

#else

std::unique_ptr<Comm> nccl_comm(Comm&, CudaLane&, std::string& why_not) {
  why_not = "NCCL is not built in";
  return nullptr;
}

int32_t detail::nccl_version() { return 0; }

#endif

}  // namespace lockstep
