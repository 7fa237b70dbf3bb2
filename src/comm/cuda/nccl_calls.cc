#include "comm/cuda/nccl_calls.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>

#include "base/check.h"

namespace lockstep {

#ifdef LOCKSTEP_WITH_NCCL
namespace {

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::boolean:  // max is "any" and min is "all"
    case DType::u8:
    case DType::f8_e4m3:  // only moved
    case DType::f8_e5m2:
    case DType::i16:
    case DType::u16:
    case DType::c64:
    case DType::c128:
      return ncclUint8;
    case DType::i8:
      return ncclInt8;
    case DType::u64:
      return ncclUint64;
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
  LOCKSTEP_CHECK(false, "unknown element type");
}

ncclRedOp_t nccl_reduction(Reduction reduction) {
  return reduction == Reduction::sum ? ncclSum : reduction == Reduction::max ? ncclMax : ncclMin;
}

// Calls f(rank, offset, count) for each piece that is not empty.
template <class F>
void for_each_piece(std::span<const int64_t> counts, F f) {
  int64_t before = 0;
  for (size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] > 0) f(static_cast<int>(r), before, counts[r]);
    before += counts[r];
  }
}

// The calls of one operation. Keeps the first error of a call.
class NcclCalls {
 public:
  NcclCalls(const Operation& operation, int rank, ncclComm_t comm, cudaStream_t stream)
      : o_(operation), rank_(rank), comm_(comm), stream_(stream) {}

  ncclResult_t error() const { return error_; }

  void enqueue() {
    switch (o_.kind) {
      case Operation::Kind::all_reduce:
        return all_reduce();
      case Operation::Kind::reduce_scatter:
        return reduce_scatter();
      case Operation::Kind::all_gather:
        return all_gather();
      case Operation::Kind::all_to_all:
        return all_to_all();
      case Operation::Kind::permute:
        return permute();
      case Operation::Kind::broadcast:
        return broadcast();
      case Operation::Kind::barrier:
      case Operation::Kind::split:
        break;
    }
    LOCKSTEP_CHECK(false, "{} cannot use NCCL", lockstep::name(o_.kind));
  }

 private:
  void all_reduce() {
    if (o_.count > 0) check(nccl_.ncclAllReduce(in_, out_, elements(o_.count), type_, reduction_, comm_, stream_));
  }

  void reduce_scatter() {
    if (has_equal_counts())
      return check(nccl_.ncclReduceScatter(in_, out_, elements(o_.counts[0]), type_, reduction_, comm_, stream_));
    for_each_piece(o_.counts, [&](int r, int64_t before, int64_t n) {
      check(nccl_.ncclReduce(in_ + bytes(before), out_, elements(n), type_, reduction_, r, comm_, stream_));
    });
  }

  void all_gather() {
    if (has_equal_counts())
      return check(nccl_.ncclAllGather(in_, out_, bytes(o_.counts[0]), ncclUint8, comm_, stream_));
    for_each_piece(o_.counts, [&](int r, int64_t before, int64_t n) {
      check(nccl_.ncclBroadcast(in_, out_ + bytes(before), bytes(n), ncclUint8, r, comm_, stream_));
    });
  }

  void all_to_all() {
    for_each_piece(o_.counts, [&](int r, int64_t before, int64_t n) { send(in_ + bytes(before), n, r); });
    for_each_piece(o_.receive_counts, [&](int r, int64_t before, int64_t n) { receive(out_ + bytes(before), n, r); });
  }

  void permute() {
    if (o_.count == 0) return;
    for (const Route& route : o_.routes) {
      if (route.source == rank_) send(in_, o_.count, route.destination);
      if (route.destination == rank_) receive(out_, o_.count, route.source);
    }
  }

  void broadcast() {
    if (o_.count > 0) check(nccl_.ncclBroadcast(in_, out_, bytes(o_.count), ncclUint8, o_.root, comm_, stream_));
  }

  void send(const std::byte* from, int64_t count, int rank) {
    check(nccl_.ncclSend(from, bytes(count), ncclUint8, rank, comm_, stream_));
  }
  void receive(std::byte* to, int64_t count, int rank) {
    check(nccl_.ncclRecv(to, bytes(count), ncclUint8, rank, comm_, stream_));
  }

  void check(ncclResult_t result) {
    if (result != ncclSuccess && result != ncclInProgress && error_ == ncclSuccess) error_ = result;
  }

  // Whether all ranks have pieces of the same size, not empty.
  bool has_equal_counts() const {
    return std::ranges::adjacent_find(o_.counts, std::not_equal_to<>()) == o_.counts.end() && o_.counts[0] > 0;
  }

  static size_t elements(int64_t count) { return static_cast<size_t>(count); }
  size_t bytes(int64_t count) const { return static_cast<size_t>(count * size_of(o_.dtype)); }

  const CudaNccl& nccl_ = *cuda_nccl();
  const Operation& o_;
  const int rank_;
  const ncclComm_t comm_;
  const cudaStream_t stream_;
  const std::byte* const in_ = static_cast<const std::byte*>(o_.in);
  std::byte* const out_ = static_cast<std::byte*>(o_.out);
  const ncclDataType_t type_ = nccl_type(o_.dtype);
  const ncclRedOp_t reduction_ = nccl_reduction(o_.reduction);
  ncclResult_t error_ = ncclSuccess;
};

}  // namespace

ncclResult_t detail::enqueue_nccl_calls(const Operation& operation, int rank, ncclComm_t comm, cudaStream_t stream) {
  const CudaNccl& nccl = *cuda_nccl();
  const ncclResult_t begun = nccl.ncclGroupStart();
  NcclCalls calls(operation, rank, comm, stream);
  calls.enqueue();
  const ncclResult_t ended = nccl.ncclGroupEnd();
  if (begun != ncclSuccess) return begun;
  return calls.error() != ncclSuccess ? calls.error() : ended;
}

#endif

}  // namespace lockstep
