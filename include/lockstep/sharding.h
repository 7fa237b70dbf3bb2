// Sharding: how an array lies on devices.
//
//   Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});       // devices in a grid with named axes
//   NamedSharding sharding(mesh, P("data", {"model"}));       // rows cut 4 ways, columns cut 2 ways
//   sharding.shard_shape({128, 784});                         // [32, 392]
//
// Mesh and NamedSharding are handles to data that is never changed nor freed: equal ones share one address, so that
// copying and comparing cost nothing. All of this is plain values, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/devices.h"
#include "lockstep/shape.h"

namespace lockstep {

namespace detail {
struct MeshData;
struct ShardingData;
}  // namespace detail

// Devices in an n-d grid with named axes.
class Mesh {
 public:
  // No mesh at all; only assignment, comparison and defined() are allowed on it: the rest throws Error.
  Mesh() = default;
  // `devices` in row-major order. Throws Error unless they are as many as the shape says, all different, of one
  // platform, and each dimension has a name of its own.
  Mesh(std::vector<Device> devices, Shape shape, std::vector<std::string> axis_names);

  bool defined() const { return data_ != nullptr; }
  const std::vector<std::string>& axis_names() const;
  const Shape& shape() const;
  const std::vector<Device>& devices() const;
  // Those of this process, in mesh order.
  std::vector<Device> local_devices() const;

  // The number of devices.
  int64_t size() const;
  // The extent of an axis. Throws Error when there is no such axis.
  int64_t size(std::string_view axis) const;
  // The position of an axis among axis_names(), if there is one of that name.
  std::optional<size_t> find_axis(std::string_view axis) const;

  // The position in devices(), and along each axis. Throw Error when the device is not in the mesh.
  int64_t position(const Device&) const;
  std::vector<int64_t> coordinates(const Device&) const;
  // The coordinates of devices()[position].
  std::vector<int64_t> coordinates(int64_t position) const;

  bool operator==(const Mesh&) const = default;
  const detail::MeshData* address() const { return data_; }

 private:
  const detail::MeshData& data() const;
  const detail::MeshData* data_ = nullptr;
};

// "Mesh('data': 4, 'model': 2)".
std::string to_string(const Mesh&);

// An axis of a mesh to be; a size of -1 is what the devices leave.
struct MeshAxis {
  MeshAxis(const char* axis, int64_t extent = -1) : name(axis), size(extent) {}             // NOLINT: {"data", 4}
  MeshAxis(std::string axis, int64_t extent = -1) : name(std::move(axis)), size(extent) {}  // NOLINT

  std::string name;
  int64_t size;
};

// A mesh of the first devices, in order: make_mesh({{"data", 4}, {"model", -1}}), make_mesh({"data"}). Throws Error
// when it needs more devices than there are, when the devices do not divide by the sizes given, and when several sizes
// are left out.
Mesh make_mesh(const std::vector<MeshAxis>& axes);
Mesh make_mesh(const std::vector<MeshAxis>& axes, const std::vector<Device>& devices);

// What cuts one dimension: nothing, a mesh axis, or several, the first being outermost.
struct SpecEntry {
  SpecEntry() = default;
  SpecEntry(std::nullptr_t) {}                            // NOLINT: P(nullptr, "data")
  SpecEntry(std::nullopt_t) {}                            // NOLINT
  SpecEntry(const char* axis) : axes{axis} {}             // NOLINT
  SpecEntry(std::string axis) : axes{std::move(axis)} {}  // NOLINT
  SpecEntry(std::initializer_list<std::string_view> list) : axes(list.begin(), list.end()) {}  // NOLINT
  SpecEntry(std::vector<std::string> list) : axes(std::move(list)) {}                          // NOLINT

  bool operator==(const SpecEntry&) const = default;

  std::vector<std::string> axes;
};

// Which mesh axes cut which dimension. Dimensions without an entry are not cut, so that entries of nothing at the end
// make no difference. Written with P().
struct PartitionSpec {
  std::vector<SpecEntry> entries;
  // The axes over which a sum is still owed: each device along them holds a term.
  std::set<std::string> unreduced = {};

  PartitionSpec with_unreduced(std::set<std::string> axes) const { return {entries, std::move(axes)}; }
  // The same without entries of nothing at the end.
  PartitionSpec trimmed() const;
  bool operator==(const PartitionSpec&) const;
};

// P(), P("data"), P("data", {}), P({}, "model"), P({"x", "y"}, nullptr). For specs made at run time fill
// PartitionSpec::entries.
inline PartitionSpec P() { return {}; }
inline PartitionSpec P(SpecEntry a) { return {{std::move(a)}}; }
inline PartitionSpec P(SpecEntry a, SpecEntry b) { return {{std::move(a), std::move(b)}}; }
inline PartitionSpec P(SpecEntry a, SpecEntry b, SpecEntry c) { return {{std::move(a), std::move(b), std::move(c)}}; }
inline PartitionSpec P(SpecEntry a, SpecEntry b, SpecEntry c, SpecEntry d) {
  return {{std::move(a), std::move(b), std::move(c), std::move(d)}};
}
inline PartitionSpec P(SpecEntry a, SpecEntry b, SpecEntry c, SpecEntry d, SpecEntry e) {
  return {{std::move(a), std::move(b), std::move(c), std::move(d), std::move(e)}};
}
inline PartitionSpec P(SpecEntry a, SpecEntry b, SpecEntry c, SpecEntry d, SpecEntry e, SpecEntry f) {
  return {{std::move(a), std::move(b), std::move(c), std::move(d), std::move(e), std::move(f)}};
}

// "P('data', None, ('x', 'y'))"; "P('data', unreduced={'model'})".
std::string to_string(const PartitionSpec&);

// Half-open [begin, end).
struct Range {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// "0:43".
std::string to_string(const Range&);

// Piece `piece` of `extent` cut into `pieces`: equal where that divides, else the first ones are one larger
// (43 + 43 + 42 of 128); pieces beyond the extent are empty. REQUIRES: extent >= 0, 0 <= piece < pieces.
Range shard_range(int64_t extent, int64_t pieces, int64_t piece);

// A box of an array: one range per dimension.
using IndexBox = std::vector<Range>;

struct DeviceIndices {
  Device device;
  IndexBox box;
};

// A mesh and a spec over its axes.
class NamedSharding {
 public:
  // No sharding at all; only assignment, comparison and defined() are allowed on it: the rest throws Error.
  NamedSharding() = default;
  // Throws Error when the spec names an axis that the mesh has not, or one axis twice.
  NamedSharding(const Mesh& mesh, const PartitionSpec& spec);

  bool defined() const { return data_ != nullptr; }
  const Mesh& mesh() const;
  // Trimmed.
  const PartitionSpec& spec() const;

  // Into how many pieces a dimension is cut.
  int64_t num_shards(int64_t dimension) const;
  // Whether every device holds the whole, finished array.
  bool is_fully_replicated() const;

  // Which piece of a dimension the device at `position` of the mesh holds.
  int64_t piece(int64_t dimension, int64_t position) const;
  // What the device at `position` of the mesh holds of an array; pieces may be uneven. Throws Error when the spec has
  // more entries than the shape dimensions. So do those below.
  IndexBox index_box(const Shape&, int64_t position) const;
  // What each device holds, in mesh order; and the same for the devices of this process only.
  std::vector<DeviceIndices> devices_indices_map(const Shape&) const;
  std::vector<DeviceIndices> addressable_indices_map(const Shape&) const;

  // The shape of every piece. Throws Error when they are uneven; `op` is whom the message speaks for.
  Shape shard_shape(const Shape&, std::string_view op = "shard_shape") const;

  bool operator==(const NamedSharding&) const = default;
  const detail::ShardingData* address() const { return data_; }

 private:
  const detail::ShardingData& data() const;
  const detail::ShardingData* data_ = nullptr;
};

// "NamedSharding(Mesh('data': 4), P('data'))".
std::string to_string(const NamedSharding&);

}  // namespace lockstep

template <>
struct std::hash<lockstep::Mesh> {
  size_t operator()(const lockstep::Mesh& mesh) const noexcept { return std::hash<const void*>()(mesh.address()); }
};
template <>
struct std::hash<lockstep::NamedSharding> {
  size_t operator()(const lockstep::NamedSharding& sharding) const noexcept {
    return std::hash<const void*>()(sharding.address());
  }
};
template <>
struct std::hash<lockstep::PartitionSpec> {
  size_t operator()(const lockstep::PartitionSpec&) const noexcept;
};
