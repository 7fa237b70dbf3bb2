// Sharding: how an array is distributed over devices.
//
//   Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});       // a grid of devices with named axes
//   NamedSharding sharding(mesh, P("data", "model"));         // rows sharded 4 ways, columns 2 ways
//   sharding.shard_shape({128, 784});                         // [32, 392]
//
// Mesh and NamedSharding are handles to immutable data that is never freed. Equal values share one address,
// so copying and comparing are cheap. All types here are plain values, safe to use from any thread.
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
#include "lockstep/source_line.h"

namespace lockstep {

namespace detail {
struct MeshData;
struct ShardingData;
}  // namespace detail

// A grid of devices with named axes.
class Mesh {
 public:
  // An empty handle. Only assignment, comparison and defined() are allowed; the rest throws Error.
  Mesh() = default;
  // Arranges `devices` in row-major order. Throws Error unless their number matches the shape, they are
  // distinct and of one platform, and every axis has a unique name.
  Mesh(std::vector<Device> devices, Shape shape, std::vector<std::string> axis_names,
       SourceLine at = SourceLine::here());

  bool defined() const { return data_ != nullptr; }
  const std::vector<std::string>& axis_names() const;
  const Shape& shape() const;
  const std::vector<Device>& devices() const;
  // The devices of this process, in mesh order.
  std::vector<Device> local_devices() const;

  // The number of devices.
  int64_t size() const;
  // The extent of an axis. Throws Error for an unknown axis.
  int64_t size(std::string_view axis, SourceLine at = SourceLine::here()) const;
  // The index of an axis in axis_names(); nullopt for an unknown axis.
  std::optional<size_t> find_axis(std::string_view axis) const;

  // The index of a device in devices(), and its coordinate along each axis. Throw Error when the device is
  // not in the mesh.
  int64_t position(const Device&) const;
  std::vector<int64_t> coordinates(const Device&) const;
  // The coordinates of devices()[position]. REQUIRES: 0 <= position < size().
  std::vector<int64_t> coordinates(int64_t position) const;

  bool operator==(const Mesh&) const = default;
  const detail::MeshData* address() const { return data_; }

 private:
  const detail::MeshData& data() const;
  const detail::MeshData* data_ = nullptr;
};

// "Mesh('data': 4, 'model': 2)".
std::string to_string(const Mesh&);

// An axis for make_mesh(). A size of -1 is inferred from the number of devices.
struct MeshAxis {
  MeshAxis(const char* axis, int64_t extent = -1);  // NOLINT: {"data", 4}
  MeshAxis(std::string axis, int64_t extent = -1);  // NOLINT
  // Not inline, to keep users' compile times short.
  MeshAxis(const MeshAxis&);
  MeshAxis(MeshAxis&&) noexcept;
  MeshAxis& operator=(const MeshAxis&);
  MeshAxis& operator=(MeshAxis&&) noexcept;
  ~MeshAxis();

  std::string name;
  int64_t size;
};

// Makes a mesh of the first devices, in order: make_mesh({{"data", 4}, {"model", -1}}), make_mesh({"data"}).
// Throws Error when there are not enough devices, when their number is not divisible by the given sizes, and
// when more than one size is -1.
Mesh make_mesh(const std::vector<MeshAxis>& axes, SourceLine at = SourceLine::here());
Mesh make_mesh(const std::vector<MeshAxis>& axes, const std::vector<Device>& devices,
               SourceLine at = SourceLine::here());

// The mesh axes over which one dimension is sharded: none, one, or several, of which the first is outermost.
struct SpecEntry {
  SpecEntry();
  SpecEntry(std::nullptr_t);                                // NOLINT: P(nullptr, "data")
  SpecEntry(std::nullopt_t);                                // NOLINT
  SpecEntry(const char* axis);                              // NOLINT
  SpecEntry(std::string axis);                              // NOLINT
  SpecEntry(std::initializer_list<std::string_view> list);  // NOLINT
  SpecEntry(std::vector<std::string> list);                 // NOLINT
  // Not inline, as with MeshAxis.
  SpecEntry(const SpecEntry&);
  SpecEntry(SpecEntry&&) noexcept;
  SpecEntry& operator=(const SpecEntry&);
  SpecEntry& operator=(SpecEntry&&) noexcept;
  ~SpecEntry();

  bool operator==(const SpecEntry&) const = default;

  std::vector<std::string> axes;
};

// Which mesh axes shard which dimension. Dimensions without an entry are not sharded, so trailing empty
// entries make no difference. Written with P().
struct PartitionSpec {
  std::vector<SpecEntry> entries;
  // The axes over which a sum is pending: each device along them holds a summand.
  std::set<std::string> unreduced = {};

  PartitionSpec with_unreduced(std::set<std::string> axes) const { return {entries, std::move(axes)}; }
  // Removes trailing empty entries.
  PartitionSpec trimmed() const;
  bool operator==(const PartitionSpec&) const;
};

// P(), P("data"), P("data", {}), P({}, "model"), P({"x", "y"}, nullptr). To build a spec at run time, fill in
// PartitionSpec::entries.
PartitionSpec P();
PartitionSpec P(SpecEntry a);
PartitionSpec P(SpecEntry a, SpecEntry b);
PartitionSpec P(SpecEntry a, SpecEntry b, SpecEntry c);
PartitionSpec P(SpecEntry a, SpecEntry b, SpecEntry c, SpecEntry d);
PartitionSpec P(SpecEntry a, SpecEntry b, SpecEntry c, SpecEntry d, SpecEntry e);
PartitionSpec P(SpecEntry a, SpecEntry b, SpecEntry c, SpecEntry d, SpecEntry e, SpecEntry f);

// "P('data', None, ('x', 'y'))"; "P('data', unreduced={'model'})".
std::string to_string(const PartitionSpec&);

// A half-open index range [begin, end).
struct Range {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// "0:43".
std::string to_string(const Range&);

// The range of part number `piece` when `extent` is divided into `pieces` parts. If they are uneven, the
// first parts are one larger (128 into 3: 43, 43, 42); parts beyond the extent are empty. REQUIRES: extent >=
// 0, 0 <= piece < pieces.
Range shard_range(int64_t extent, int64_t pieces, int64_t piece);

// Part of an array: one range per dimension.
using IndexBox = std::vector<Range>;

// The part of an array that a device holds.
struct DeviceIndices {
  Device device;
  IndexBox box;
};

// A mesh, and a spec over its axes.
class NamedSharding {
 public:
  // An empty handle. Only assignment, comparison and defined() are allowed; the rest throws Error.
  NamedSharding() = default;
  // Throws Error when the spec names an axis that is not in the mesh, or one axis twice.
  NamedSharding(const Mesh& mesh, const PartitionSpec& spec, SourceLine at = SourceLine::here());

  bool defined() const { return data_ != nullptr; }
  const Mesh& mesh() const;
  // The spec without trailing empty entries.
  const PartitionSpec& spec() const;

  // The number of shards along a dimension.
  int64_t num_shards(int64_t dimension, SourceLine at = SourceLine::here()) const;
  // Whether every device holds the complete array and no sum is pending.
  bool is_fully_replicated() const;

  // The shard number, along a dimension, of the device at `position` of the mesh.
  int64_t piece(int64_t dimension, int64_t position) const;
  // The part of an array that the device at `position` of the mesh holds. Shards may be uneven. This and the
  // functions below throw Error when the spec has more entries than the shape has dimensions.
  IndexBox index_box(const Shape&, int64_t position, SourceLine at = SourceLine::here()) const;
  // The part that each device holds, in mesh order: for all devices, and for the devices of this process.
  std::vector<DeviceIndices> devices_indices_map(const Shape&, SourceLine at = SourceLine::here()) const;
  std::vector<DeviceIndices> addressable_indices_map(const Shape&, SourceLine at = SourceLine::here()) const;

  // The shape of every shard. Throws Error when shards are uneven; the message begins with `op`.
  Shape shard_shape(const Shape&, std::string_view op = "shard_shape", SourceLine at = SourceLine::here()) const;

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
