#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/cuda/cuda_comm.h"

namespace lockstep {
namespace {

using Kind = Operation::Kind;

int64_t elements_of(std::span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// Bytes that an operation reads and writes on this rank.
struct Traffic {
  int64_t in = 0, out = 0;
};

Traffic traffic_of(const Operation& operation, int rank) {
  const int64_t size = size_of(operation.dtype);
  const auto own = [&] { return operation.counts[static_cast<size_t>(rank)] * size; };
  switch (operation.kind) {
    case Kind::all_reduce:
    case Kind::permute:
      return {operation.count * size, operation.count * size};
    case Kind::broadcast:
      return operation.root == rank ? Traffic{operation.count * size, 0} : Traffic{0, operation.count * size};
    case Kind::reduce_scatter:
      return {elements_of(operation.counts) * size, own()};
    case Kind::all_gather:
      return {own(), elements_of(operation.counts) * size};
    case Kind::all_to_all:
      return {elements_of(operation.counts) * size, elements_of(operation.receive_counts) * size};
    case Kind::barrier:
    case Kind::split:
      break;
  }
  return {};
}

class StagedComm final : public Comm {
 public:
  StagedComm(Comm& host, CudaLane& lane)
      : Comm(host.rank(), host.size(), host.name(), host.timeout()), host_(host), lane_(lane) {}
  StagedComm(std::unique_ptr<Comm> host, CudaLane& lane) : StagedComm(*host, lane) { owned_ = std::move(host); }

  ~StagedComm() override {
    try {
      lane_.wait();                    // for copies from memory that goes away
    } catch (const std::exception&) {  // told where somebody wants results
    }
  }

  void abort(const std::string& reason) override { host_.abort(reason); }

 private:
  // An operation under way: what it reads and writes in memory of the host.
  struct Item {
    Operation operation;
    Traffic bytes;
    BufferPtr in, out;
    Work work;
    bool copying = false;  // to the GPU: the lane has not been waited for since
    Item* next = nullptr;
  };

  void* start(const Operation& operation) override {
    time_.get();
    Item* const item = take();
    item->operation = operation;
    item->bytes = traffic_of(operation, rank());
    const bool one = in_place(operation);
    const int64_t in = one ? std::max(item->bytes.in, item->bytes.out) : item->bytes.in;
    const int64_t out = one ? 0 : item->bytes.out;
    try {
      const bool fits = holds(item->in, in) && holds(item->out, out);
      if (item->copying && (!fits || item->bytes.in == 0)) lane_.wait();
      item->copying = false;
      if (!holds(item->in, in)) item->in = lane_.allocate_pinned(in);
      if (!holds(item->out, out)) item->out = lane_.allocate_pinned(out);
      if (item->bytes.in > 0) {
        lane_.enqueue_copy_to_host(item->in->data(), operation.in, item->bytes.in);
        lane_.wait();
      }
      item->work = begin(operation, item->in->data(), one ? item->in->data() : item->out->data());
    } catch (...) {
      release(item);
      throw;
    }
    return item;
  }

  // In the host's memory.
  static bool in_place(const Operation& operation) {
    return operation.kind == Kind::all_reduce || operation.kind == Kind::broadcast;
  }
  static bool holds(const BufferPtr& buffer, int64_t bytes) { return buffer && buffer->size() >= bytes; }

  Work begin(const Operation& o, void* in, void* out) {
    switch (o.kind) {
      case Kind::all_reduce:
        return host_.start_all_reduce(in, out, o.count, o.dtype, o.reduction);
      case Kind::reduce_scatter:
        return host_.start_reduce_scatter(in, out, o.counts, o.dtype, o.reduction);
      case Kind::all_gather:
        return host_.start_all_gather(in, out, o.counts, o.dtype);
      case Kind::all_to_all:
        return host_.start_all_to_all(in, out, o.counts, o.receive_counts, o.dtype);
      case Kind::permute:
        return host_.start_permute(in, out, o.count, o.dtype, o.routes);
      case Kind::broadcast:
        return host_.start_broadcast(in, o.count, o.dtype, o.root);
      case Kind::barrier:
      case Kind::split:
        break;
    }
    return host_.start_barrier();
  }

  void finish(void* state) override {
    auto* const item = static_cast<Item*>(state);
    try {
      time_.get();
      item->work.wait();
      const BufferPtr& from = in_place(item->operation) ? item->in : item->out;
      item->copying = item->bytes.out > 0;
      lane_.enqueue_copy_to_device(item->operation.out, from->data(), item->bytes.out);
    } catch (...) {
      release(item);
      throw;
    }
    release(item);
  }

  void abandon(void* state) noexcept override {
    auto* const item = static_cast<Item*>(state);
    item->work = Work();
    release(item);
  }

  std::unique_ptr<Comm> make_group(const std::vector<int>& ranks, const std::string& name) override {
    time_.get();
    return detail::staged_comm(host_.split(ranks, name), lane_);
  }

  Item* take() {
    if (!free_) free_ = items_.emplace_back(std::make_unique<Item>()).get();
    return std::exchange(free_, free_->next);
  }
  void release(Item* item) {
    item->next = free_;
    free_ = item;
  }

  std::unique_ptr<Comm> owned_;
  Comm& host_;
  CudaLane& lane_;
  detail::SharedTimeout time_{*this, host_};
  std::vector<std::unique_ptr<Item>> items_;
  Item* free_ = nullptr;
};

}  // namespace

std::unique_ptr<Comm> staged_comm(Comm& host, CudaLane& lane) { return std::make_unique<StagedComm>(host, lane); }

std::unique_ptr<Comm> detail::staged_comm(std::unique_ptr<Comm> host, CudaLane& lane) {
  return std::make_unique<StagedComm>(std::move(host), lane);
}

}  // namespace lockstep
