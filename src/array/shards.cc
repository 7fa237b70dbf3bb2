// The shards of an array: of each device as views, and of all devices of a process as one array.
#include <algorithm>
#include <cstring>

#include "array/node.h"
#include "base/check.h"
#include "comm/world.h"
#include "lockstep/device_put.h"
#include "lockstep/rearrange.h"

namespace lockstep {
namespace {

using detail::LanePieces;
using detail::MeshLanes;

IndexBox whole_box(const Shape& shape) {
  IndexBox box;
  for (const int64_t extent : shape) box.push_back({0, extent});
  return box;
}

Shape shape_of(const IndexBox& box) {
  Shape shape;
  for (const Range& range : box) shape.push_back(range.size());
  return shape;
}

std::string box_text(const IndexBox& box) {
  std::string out = "[";
  for (const Range& range : box) out += (out.size() > 1 ? ", " : "") + to_string(range);
  return out + "]";
}

bool holds_box(const IndexBox& outer, const IndexBox& inner) {
  for (size_t d = 0; d < outer.size(); ++d)
    if (inner[d].size() > 0 && (inner[d].begin < outer[d].begin || inner[d].end > outer[d].end)) return false;
  return true;
}

// The part `box` of an array, from a buffer that holds its part `held`. Shares memory if contiguous, else
// copies.
Array view(const BufferPtr& buffer, DType dtype, const IndexBox& held, const IndexBox& box) {
  const Type source{dtype, shape_of(held)};
  const Type type{dtype, shape_of(box)};
  IndexBox inside;
  for (size_t d = 0; d < box.size(); ++d) inside.push_back({box[d].begin - held[d].begin, box[d].end - held[d].begin});
  const int64_t begin = detail::contiguous_offset(source.shape, inside);
  if (begin < 0 || type.bytes() == 0) {
    BufferPtr copy = allocate(type.bytes());
    if (type.bytes() > 0) detail::extract_box(buffer->data(), source.shape, inside, size_of(dtype), copy->data());
    return detail::concrete(detail::intern(type), std::move(copy));
  }
  auto* owner = new BufferPtr(buffer);
  return detail::adopt_bytes(buffer->data() + begin * size_of(dtype), type, owner,
                             [](void* buffer_ptr) { delete static_cast<BufferPtr*>(buffer_ptr); });
}

// The smallest box that contains what the lanes of this process hold.
IndexBox process_box(const MeshLanes& lanes, const LaneSpec& lane_spec, const Shape& shape) {
  IndexBox around;
  for (int64_t lane = lanes.first_local; lane < lanes.first_local + lanes.local_count; ++lane) {
    const IndexBox box = lane_box(lanes.grid, lane_spec, shape, lane);
    if (around.empty()) around = box;
    for (size_t d = 0; d < box.size(); ++d) {
      if (box[d].size() == 0) continue;
      if (around[d].size() == 0) around[d] = box[d];
      around[d] = {std::min(around[d].begin, box[d].begin), std::max(around[d].end, box[d].end)};
    }
  }
  return around;
}

}  // namespace

std::vector<Shard> addressable_shards(const Operand& x) {
  std::vector<Shard> out;
  const NamedSharding sharding = x.sharding();
  const detail::LanePiecesPtr pieces =
      x.node()->kind == detail::Node::Kind::concrete ? x.node()->pieces.divided : nullptr;
  if (!pieces || pieces->complete()) {
    const BufferPtr& buffer = detail::buffer_of(x, "addressable_shards");
    for (const DeviceIndices& piece : sharding.addressable_indices_map(x.shape()))
      out.push_back({piece.device, piece.box, view(buffer, x.dtype(), whole_box(x.shape()), piece.box)});
    return out;
  }
  const int64_t devices_per_lane = sharding.mesh().size() / pieces->grid.lanes();
  for (const DeviceIndices& piece : sharding.addressable_indices_map(x.shape())) {
    const int64_t lane = sharding.mesh().position(piece.device) / devices_per_lane;
    const IndexBox held = lane_box(pieces->grid, pieces->lane_spec, x.shape(), lane);
    LOCKSTEP_CHECK(holds_box(held, piece.box), "{} is not inside {}", box_text(piece.box), box_text(held));
    out.push_back({piece.device, piece.box, view(piece_on_host(*pieces, lane), x.dtype(), held, piece.box)});
  }
  return out;
}

Range process_range(const NamedSharding& sharding, int64_t extent, SourceLine at) {
  const detail::CallerLine line(at);
  const MeshLanes lanes = detail::lanes_of(sharding.mesh());
  if (!lanes.across_processes || lanes.grid.axes.empty()) return {0, extent};
  return process_box(lanes, to_lane_spec(lanes.grid, sharding.spec(), 1), {extent})[0];
}

Array make_array_from_process_local_data(const NamedSharding& sharding, const Operand& local,
                                         const Shape& global_shape) {
  if (!sharding.defined())
    throw_error("make_array_from_process_local_data: the sharding is empty; create it with NamedSharding(mesh, spec)");
  sharding.index_box(global_shape, 0);  // throws when the spec is longer than the rank
  const MeshLanes lanes = detail::lanes_of(sharding.mesh());
  const bool distributed = lanes.across_processes && !lanes.grid.axes.empty();
  const LaneSpec lane_spec = to_lane_spec(lanes.grid, sharding.spec(), global_shape.size());
  const IndexBox own = distributed ? process_box(lanes, lane_spec, global_shape) : whole_box(global_shape);
  if (local.shape() != shape_of(own))
    throw_error(
        "make_array_from_process_local_data: the data is {}, but process {} holds {} of {} under {}; pass that part",
        to_string(local.type()), process_index(), box_text(own), to_string(global_shape), to_string(sharding.spec()));
  if (!distributed) return detail::with_sharding(local, sharding);
  const BufferPtr& whole = detail::buffer_of(local, "make_array_from_process_local_data");
  const int64_t size = size_of(local.dtype());
  auto pieces = std::make_shared<LanePieces>(
      LanePieces{lanes.grid, lane_spec, std::vector<BufferPtr>(static_cast<size_t>(lanes.grid.lanes())), true});
  for (int64_t lane = lanes.first_local; lane < lanes.first_local + lanes.local_count; ++lane) {
    BufferPtr& buffer = pieces->buffers[static_cast<size_t>(lane)];
    if (lanes.local_count == 1) {
      buffer = whole;
      break;
    }
    IndexBox box = lane_box(lanes.grid, lane_spec, global_shape, lane);
    for (size_t d = 0; d < box.size(); ++d) box[d] = {box[d].begin - own[d].begin, box[d].end - own[d].begin};
    buffer = allocate(count(shape_of(box)) * size);
    if (buffer->size() > 0) detail::extract_box(whole->data(), local.shape(), box, size, buffer->data());
  }
  return detail::concrete(detail::intern({local.dtype(), global_shape}), std::move(pieces), sharding);
}

Array process_local_data(const Operand& x) {
  const detail::LanePiecesPtr pieces =
      x.node()->kind == detail::Node::Kind::concrete ? x.node()->pieces.divided : nullptr;
  if (!pieces || pieces->complete()) return x;
  const MeshLanes lanes = detail::lanes_of(x.sharding().mesh());
  const IndexBox own = process_box(lanes, pieces->lane_spec, x.shape());
  const Type local{x.dtype(), shape_of(own)};
  if (lanes.local_count == 1) return detail::concrete(detail::intern(local), piece_on_host(*pieces, lanes.first_local));
  BufferPtr whole = allocate(local.bytes());
  for (int64_t lane = lanes.first_local; lane < lanes.first_local + lanes.local_count; ++lane) {
    IndexBox box = lane_box(lanes.grid, pieces->lane_spec, x.shape(), lane);
    for (size_t d = 0; d < box.size(); ++d) box[d] = {box[d].begin - own[d].begin, box[d].end - own[d].begin};
    const BufferPtr piece = piece_on_host(*pieces, lane);
    if (piece->size() > 0) detail::insert_box(piece->data(), local.shape, box, size_of(x.dtype()), whole->data());
  }
  return detail::concrete(detail::intern(local), std::move(whole));
}

}  // namespace lockstep
