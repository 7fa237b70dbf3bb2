#include "array/lane_pieces.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/check.h"
#include "comm/world.h"
#include "plan/lanes.h"

namespace lockstep::detail {
namespace {

// Calls copy(offset in the array, offset in the piece, bytes) for every contiguous run of the box.
template <class Copy>
void for_each_run(const Shape& shape, const IndexBox& box, int64_t size, Copy copy) {
  // The box covers dimensions from `inner` on completely, so one run spans them and the dimension before.
  size_t inner = shape.size();
  int64_t run = size;
  while (inner > 0 && box[inner - 1].size() == shape[inner - 1]) run *= shape[--inner];
  if (inner > 0) run *= box[inner - 1].size();
  const size_t outer = inner > 0 ? inner - 1 : 0;
  int64_t runs = 1;
  for (size_t d = 0; d < outer; ++d) runs *= box[d].size();
  if (run == 0 || runs == 0) return;
  std::vector<int64_t> strides(shape.size(), size);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  int64_t base = 0;
  for (size_t d = 0; d < shape.size(); ++d) base += box[d].begin * strides[d];
  std::vector<int64_t> at(outer, 0);
  for (int64_t i = 0; i < runs; ++i) {
    int64_t offset = base;
    for (size_t d = 0; d < outer; ++d) offset += at[d] * strides[d];
    copy(offset, i * run, run);
    for (size_t d = outer; d-- > 0 && ++at[d] == box[d].size();) at[d] = 0;
  }
}

}  // namespace

int64_t contiguous_offset(const Shape& shape, const IndexBox& box) {
  int64_t offset = 0, inner = 1;
  bool complete = true;  // the box covers all inner dimensions completely
  for (size_t d = shape.size(); d-- > 0;) {
    if (!complete && box[d].size() != 1) return -1;
    offset += box[d].begin * inner;
    complete = complete && box[d].size() == shape[d];
    inner *= shape[d];
  }
  return offset;
}

void extract_box(const std::byte* whole, const Shape& shape, const IndexBox& box, int64_t size, std::byte* piece) {
  for_each_run(shape, box, size, [&](int64_t from, int64_t to, int64_t bytes) {
    std::memcpy(piece + to, whole + from, static_cast<size_t>(bytes));
  });
}

void insert_box(const std::byte* piece, const Shape& shape, const IndexBox& box, int64_t size, std::byte* whole) {
  for_each_run(shape, box, size, [&](int64_t to, int64_t from, int64_t bytes) {
    std::memcpy(whole + to, piece + from, static_cast<size_t>(bytes));
  });
}

bool LanePieces::is_sharded() const {
  return std::any_of(lane_spec.begin(), lane_spec.end(), [](const auto& axes) { return !axes.empty(); });
}

bool LanePieces::complete() const {
  return !is_sharded() || std::all_of(buffers.begin(), buffers.end(), [](const BufferPtr& buffer) { return !!buffer; });
}

MeshLanes lanes_of(const Mesh& mesh) {
  if (!mesh.defined()) return {};
  const World& world = World::current();
  std::set<int> processes;
  for (const Device& device : mesh.devices()) processes.insert(device.process_index);
  if (world.is_single_process() || (processes.size() == 1 && *processes.begin() == world.process_index()))
    return {lane_grid(mesh, world.local_lanes()), false, 0, world.local_lanes()};
  if (static_cast<int>(processes.size()) != world.process_count())
    throw_error(
        "mesh: {} has devices of {} of {} processes, seen from process {}; use devices of all processes, or only of "
        "this one",
        to_string(mesh), processes.size(), world.process_count(), world.process_index());
  const auto devices = static_cast<int64_t>(mesh.devices().size());
  if (devices % world.process_count() != 0)
    throw_error("mesh: {} has {} devices for {} processes; use equally many of each", to_string(mesh), devices,
                world.process_count());
  const int64_t each = devices / world.process_count();
  for (int64_t i = 0; i < devices; ++i)
    if (mesh.devices()[static_cast<size_t>(i)].process_index != i / each)
      throw_error(
          "mesh: {} has a device of process {} at position {}, where one of process {} is required; use equally many "
          "devices of each process, in the order of devices()",
          to_string(mesh), mesh.devices()[static_cast<size_t>(i)].process_index, i, i / each);
  // If the devices do not divide evenly over all lanes, use fewer lanes of each process.
  for (int64_t here = world.local_lanes(); here > 0; --here)
    if (LaneGrid grid = lane_grid(mesh, here * world.process_count()); !grid.axes.empty())
      return {std::move(grid), true, here * world.process_index(), here};
  return {{}, true, world.process_index(), 1};
}

int64_t local_lane(const LanePieces& pieces, int64_t lane) {
  return pieces.across_processes ? lane % (pieces.grid.lanes() / World::current().process_count()) : lane;
}

BufferPtr piece_on_host(const LanePieces& pieces, int64_t lane) {
  const BufferPtr& buffer = pieces.buffers[static_cast<size_t>(lane)];
  if (buffer->space() != MemorySpace::device) return buffer;
  return Lanes::current().lane(local_lane(pieces, lane)).download(buffer);
}

BufferPtr assemble(const LanePieces& pieces, const Type& type) {
  const auto lanes = static_cast<int64_t>(pieces.buffers.size());
  if (!pieces.is_sharded()) {
    const auto first = std::find_if(pieces.buffers.begin(), pieces.buffers.end(), [](const auto& b) { return !!b; });
    return piece_on_host(pieces, first - pieces.buffers.begin());
  }
  BufferPtr whole = allocate(type.bytes());
  for (int64_t lane = 0; lane < lanes; ++lane)
    insert_box(piece_on_host(pieces, lane)->data(), type.shape,
               lane_box(pieces.grid, pieces.lane_spec, type.shape, lane), size_of(type.dtype), whole->data());
  return whole;
}

}  // namespace lockstep::detail
