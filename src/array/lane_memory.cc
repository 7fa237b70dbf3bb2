#include "array/lane_memory.h"

#include <algorithm>
#include <mutex>

#include "plan/lanes.h"

namespace lockstep::detail {
namespace {

// Guards Node::copies of arrays that programs read. Programs of several runtimes may read an array at the same time.
std::mutex& copies_mutex() {
  static std::mutex mutex;
  return mutex;
}

// The buffer of the first lane of this process if every lane holds the complete array, and `lane` can use it.
BufferPtr replica_for(const Lane& lane, const LanePiecesPtr& pieces) {
  if (!pieces || pieces->is_sharded()) return nullptr;
  for (const BufferPtr& buffer : pieces->buffers)
    if (buffer) return lane.can_use(*buffer) ? buffer : nullptr;
  return nullptr;
}

}  // namespace

BufferPtr main_lane_buffer(Lane& lane, const Array& array, const Type& type, const char* wanted_by) {
  if (!array.defined()) return buffer_of(array, wanted_by);  // throws
  Node& node = *array.node();
  if (node.kind == Node::Kind::literal) return lane.upload(literal_buffer(node, type.dtype));
  if (node.kind == Node::Kind::concrete && node.pieces.one && lane.can_use(*node.pieces.one)) return node.pieces.one;
  if (node.kind != Node::Kind::concrete || lane.info().space == MemorySpace::host) return buffer_of(array, wanted_by);
  const std::lock_guard lock(copies_mutex());
  if (!node.copies.one) node.copies.one = replica_for(lane, node.pieces.divided);
  if (!node.copies.one) node.copies.one = lane.upload(buffer_of(array, wanted_by));
  return node.copies.one;
}

LanePiecesPtr kept_copies(const Node& node) {
  const std::lock_guard lock(copies_mutex());
  return node.copies.divided;
}

void keep_copies(Node& node, LanePiecesPtr copies) {
  const std::lock_guard lock(copies_mutex());
  node.copies.divided.swap(copies);  // the former ones are released without the lock
}

void upload_in_one_copy(std::span<const Array> arrays) {
  Lanes& lanes = Lanes::current();
  Lane& lane = lanes.main();
  if (lane.info().space == MemorySpace::host) return;
  const std::lock_guard lock(lanes.run_mutex());
  constexpr int64_t kApart = 256;  // alignment of separate device memory
  std::vector<BufferPtr> buffers;
  std::vector<int64_t> begins;
  int64_t size = 0;
  for (const Array& array : arrays) {
    buffers.push_back(buffer_of(array, "upload"));
    begins.push_back(size);
    size += (buffers.back()->size() + kApart - 1) / kApart * kApart;
  }
  const BufferPtr packed = allocate(size);
  for (size_t i = 0; i < arrays.size(); ++i)
    std::copy_n(buffers[i]->data(), buffers[i]->size(), packed->data() + begins[i]);
  const BufferPtr uploaded = lane.upload(packed);
  const std::lock_guard copies_lock(copies_mutex());
  for (size_t i = 0; i < arrays.size(); ++i)
    arrays[i].node()->copies.one = Allocator::host().part_of(uploaded, begins[i], buffers[i]->size());
}

bool computes_ahead() {
  Lanes& lanes = Lanes::current();
  return lanes.count() == 1 && lanes.main().info().asynchronous;
}

ArrayReadback::ArrayReadback(const Array& array) : type_(&array.type()) {
  check_readable(array, "readback");
  Lanes& lanes = Lanes::current();
  if (lanes.count() > 1) {
    done_ = buffer_of(array, "readback");
    return;
  }
  const std::lock_guard lock(lanes.run_mutex());
  readback_ = lanes.main().read_back(main_lane_buffer(lanes.main(), array, *type_, "readback"));
}

std::vector<double> ArrayReadback::wait() {
  if (readback_) done_ = std::exchange(readback_, nullptr)->wait();
  return concrete(type_, std::exchange(done_, nullptr)).to_vector<double>();
}

}  // namespace lockstep::detail
