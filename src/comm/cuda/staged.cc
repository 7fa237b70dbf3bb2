#include <algorithm>
#include <utility>
#include <vector>

#include "comm/cuda/cuda_comm.h"

namespace lockstep {
namespace {

using Kind = Operation::Kind;

// The bytes that an operation reads and writes on this rank.
struct IoBytes {
  int64_t in = 0, out = 0;
};

IoBytes io_bytes_of(const Operation& operation, int rank) {
  const int64_t size = size_of(operation.dtype);
  const auto own = [&] { return operation.counts[static_cast<size_t>(rank)] * size; };
  switch (operation.kind) {
    case Kind::all_reduce:
    case Kind::permute:
      return {operation.count * size, operation.count * size};
    case Kind::broadcast:
      return operation.root == rank ? IoBytes{operation.count * size, 0} : IoBytes{0, operation.count * size};
    case Kind::reduce_scatter:
      return {total_count(operation.counts) * size, own()};
    case Kind::all_gather:
      return {own(), total_count(operation.counts) * size};
    case Kind::all_to_all:
      return {total_count(operation.counts) * size, total_count(operation.receive_counts) * size};
    case Kind::barrier:
    case Kind::split:
      break;
  }
  return {};
}

// Copies through pinned host memory; the host Comm does the operation.
class StagedComm final : public Comm {
 public:
  StagedComm(Comm& host, CudaStream& lane)
      : Comm(host.rank(), host.size(), host.name(), host.timeout()), host_(host), lane_(lane) {}
  StagedComm(std::unique_ptr<Comm> host, CudaStream& lane) : StagedComm(*host, lane) { owned_ = std::move(host); }

  ~StagedComm() override {
    try {
      lane_.wait();                    // for copies from host memory that is about to be freed
    } catch (const std::exception&) {  // thrown again when results are read
    }
  }

  void abort(const std::string& reason) override { host_.abort(reason); }

 private:
  // An operation in flight, with its input and output in host memory.
  struct StagedOperation {
    Operation operation;
    IoBytes bytes;
    BufferPtr in, out;
    Work work;
    bool copying = false;  // a copy to the GPU was enqueued, and the lane has not been waited for since
    StagedOperation* next = nullptr;
  };

  void* start(const Operation& operation) override {
    shared_timeout_.get();
    StagedOperation* const staged = allocate();
    staged->operation = operation;
    staged->bytes = io_bytes_of(operation, rank());
    const bool shared = in_place(operation);
    const int64_t in = shared ? std::max(staged->bytes.in, staged->bytes.out) : staged->bytes.in;
    const int64_t out = shared ? 0 : staged->bytes.out;
    try {
      const bool fits = holds(staged->in, in) && holds(staged->out, out);
      if (staged->copying && (!fits || staged->bytes.in == 0)) lane_.wait();
      staged->copying = false;
      if (!holds(staged->in, in)) staged->in = lane_.allocate_pinned(in);
      if (!holds(staged->out, out)) staged->out = lane_.allocate_pinned(out);
      if (staged->bytes.in > 0) {
        lane_.enqueue_copy_to_host(staged->in->data(), operation.in, staged->bytes.in);
        lane_.wait();
      }
      staged->work = begin(operation, staged->in->data(), shared ? staged->in->data() : staged->out->data());
    } catch (...) {
      release(staged);
      throw;
    }
    return staged;
  }

  // Whether input and output use the same host memory.
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
    auto* const staged = static_cast<StagedOperation*>(state);
    try {
      shared_timeout_.get();
      staged->work.wait();
      const BufferPtr& from = in_place(staged->operation) ? staged->in : staged->out;
      staged->copying = staged->bytes.out > 0;
      lane_.enqueue_copy_to_device(staged->operation.out, from->data(), staged->bytes.out);
    } catch (...) {
      release(staged);
      throw;
    }
    release(staged);
  }

  void abandon(void* state) noexcept override {
    auto* const staged = static_cast<StagedOperation*>(state);
    staged->work = Work();
    release(staged);
  }

  std::unique_ptr<Comm> make_group(const std::vector<int>& ranks, const std::string& name) override {
    shared_timeout_.get();
    return detail::staged_comm(host_.split(ranks, name), lane_);
  }

  StagedOperation* allocate() {
    if (!free_) free_ = all_.emplace_back(std::make_unique<StagedOperation>()).get();
    return std::exchange(free_, free_->next);
  }
  void release(StagedOperation* staged) {
    staged->next = free_;
    free_ = staged;
  }

  std::unique_ptr<Comm> owned_;
  Comm& host_;
  CudaStream& lane_;
  detail::SharedTimeout shared_timeout_{*this, host_};
  std::vector<std::unique_ptr<StagedOperation>> all_;
  StagedOperation* free_ = nullptr;
};

}  // namespace

std::unique_ptr<Comm> staged_comm(Comm& host, CudaStream& lane) { return std::make_unique<StagedComm>(host, lane); }

std::unique_ptr<Comm> detail::staged_comm(std::unique_ptr<Comm> host, CudaStream& lane) {
  return std::make_unique<StagedComm>(std::move(host), lane);
}

}  // namespace lockstep
