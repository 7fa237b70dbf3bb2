#include "array/pieces.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "array/gpu_memory.h"
#include "base/check.h"
#include "comm/world.h"
#include "lane/lanes.h"

namespace lockstep::detail {
namespace {

// copy(offset in the whole, offset in the piece, bytes) for every stretch of the box.
template <class Copy>
void for_each_stretch(const Shape& shape, const IndexBox& box, int64_t size, Copy copy) {
  // Dimensions from `inner` on are taken whole, so that one stretch spans them and the one before.
  size_t inner = shape.size();
  int64_t run = size;
  while (inner > 0 && box[inner - 1].size() == shape[inner - 1]) run *= shape[--inner];
  if (inner > 0) run *= box[inner - 1].size();
  const size_t outer = inner > 0 ? inner - 1 : 0;
  int64_t stretches = 1;
  for (size_t d = 0; d < outer; ++d) stretches *= box[d].size();
  if (run == 0 || stretches == 0) return;
  std::vector<int64_t> strides(shape.size(), size);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  int64_t base = 0;
  for (size_t d = 0; d < shape.size(); ++d) base += box[d].begin * strides[d];
  std::vector<int64_t> at(outer, 0);
  for (int64_t i = 0; i < stretches; ++i) {
    int64_t offset = base;
    for (size_t d = 0; d < outer; ++d) offset += at[d] * strides[d];
    copy(offset, i * run, run);
    for (size_t d = outer; d-- > 0 && ++at[d] == box[d].size();) at[d] = 0;
  }
}

}  // namespace

int64_t stretch(const Shape& shape, const IndexBox& box) {
  int64_t offset = 0, inner = 1;
  bool whole = true;  // all dimensions behind this one are
  for (size_t d = shape.size(); d-- > 0;) {
    if (!whole && box[d].size() != 1) return -1;
    offset += box[d].begin * inner;
    whole = whole && box[d].size() == shape[d];
    inner *= shape[d];
  }
  return offset;
}

void copy_out(const std::byte* whole, const Shape& shape, const IndexBox& box, int64_t size, std::byte* piece) {
  for_each_stretch(shape, box, size, [&](int64_t from, int64_t to, int64_t bytes) {
    std::memcpy(piece + to, whole + from, static_cast<size_t>(bytes));
  });
}

void copy_in(const std::byte* piece, const Shape& shape, const IndexBox& box, int64_t size, std::byte* whole) {
  for_each_stretch(shape, box, size, [&](int64_t to, int64_t from, int64_t bytes) {
    std::memcpy(whole + to, piece + from, static_cast<size_t>(bytes));
  });
}

bool LanePieces::cut() const {
  return std::any_of(cuts.begin(), cuts.end(), [](const auto& axes) { return !axes.empty(); });
}

bool LanePieces::complete() const {
  return !cut() || std::all_of(buffers.begin(), buffers.end(), [](const BufferPtr& buffer) { return !!buffer; });
}

MeshLanes lanes_of(const Mesh& mesh) {
  if (!mesh.defined()) return {};
  const World& world = World::instance();
  std::set<int> processes;
  for (const Device& device : mesh.devices()) processes.insert(device.process_index);
  if (world.alone() || (processes.size() == 1 && *processes.begin() == world.process_index()))
    return {lane_grid(mesh, world.lanes_here()), false, 0, world.lanes_here()};
  if (static_cast<int>(processes.size()) != world.process_count())
    throw_error(
        "mesh: {} has devices of {} of {} processes, and this is process {}; a mesh over processes takes devices of "
        "all of them, or of this one only",
        to_string(mesh), processes.size(), world.process_count(), world.process_index());
  const auto devices = static_cast<int64_t>(mesh.devices().size());
  if (devices % world.process_count() != 0)
    throw_error("mesh: {} has {} devices of {} processes; take as many of each", to_string(mesh), devices,
                world.process_count());
  const int64_t each = devices / world.process_count();
  for (int64_t i = 0; i < devices; ++i)
    if (mesh.devices()[static_cast<size_t>(i)].process_index != i / each)
      throw_error(
          "mesh: {} lists a device of process {} at place {}, which process {} should have; take as many devices of "
          "each process, in the order of devices()",
          to_string(mesh), mesh.devices()[static_cast<size_t>(i)].process_index, i, i / each);
  // Where all lanes cannot carry it in equal rows, fewer of each process do.
  for (int64_t here = world.lanes_here(); here > 0; --here)
    if (LaneGrid grid = lane_grid(mesh, here * world.process_count()); !grid.axes.empty())
      return {std::move(grid), true, here * world.process_index(), here};
  return {{}, true, world.process_index(), 1};
}

int64_t lane_here(const LanePieces& pieces, int64_t lane) {
  return pieces.spread ? lane % (pieces.grid.lanes() / World::instance().process_count()) : lane;
}

BufferPtr piece_of(const LanePieces& pieces, int64_t lane) {
  const BufferPtr& buffer = pieces.buffers[static_cast<size_t>(lane)];
  return pieces.gpu ? from_gpu(*buffer, lane_here(pieces, lane)) : buffer;
}

BufferPtr put_together(const LanePieces& pieces, const Type& type) {
  const auto lanes = static_cast<int64_t>(pieces.buffers.size());
  if (!pieces.cut()) {
    const auto first = std::find_if(pieces.buffers.begin(), pieces.buffers.end(), [](const auto& b) { return !!b; });
    return piece_of(pieces, first - pieces.buffers.begin());
  }
  BufferPtr whole = allocate(type.bytes());
  for (int64_t lane = 0; lane < lanes; ++lane)
    copy_in(piece_of(pieces, lane)->data(), type.shape, lane_box(pieces.grid, pieces.cuts, type.shape, lane),
            size_of(type.dtype), whole->data());
  return whole;
}

}  // namespace lockstep::detail
