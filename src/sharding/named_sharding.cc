#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "base/hash.h"
#include "lockstep/sharding.h"
#include "sharding/intern.h"
#include "sharding/names.h"

namespace lockstep {
namespace detail {

// How one dimension is sharded. The device at position p of the mesh has coordinate p / f.stride % f.size
// along the axis of factor f. These coordinates are the digits, outermost first, of its shard number.
struct DimSharding {
  struct Factor {
    int64_t stride, size;
  };
  std::vector<Factor> factors;
  int64_t shards = 1;
};

struct ShardingData {
  Mesh mesh;
  PartitionSpec spec;
  std::vector<DimSharding> dims;  // per entry; derived from mesh and spec
  bool replicated;                // likewise

  bool operator==(const ShardingData& other) const { return mesh == other.mesh && spec == other.spec; }
  size_t hash() const {
    Hasher hasher;
    hasher.add(static_cast<uint64_t>(std::hash<Mesh>()(mesh)));
    hasher.add(static_cast<uint64_t>(std::hash<PartitionSpec>()(spec)));
    return hasher.value();
  }
};

namespace {

// Looks up the axes of a spec in its mesh; each may be used once.
class AxisUsage {
 public:
  AxisUsage(const Mesh& mesh, const PartitionSpec& spec) : mesh_(mesh), spec_(spec), used_(mesh.shape().size()) {}

  // Returns the axis's index in the mesh and marks it as used. Throws Error for an unknown or used axis.
  size_t use(const std::string& axis) {
    const auto found = mesh_.find_axis(axis);
    if (!found)
      throw_error("sharding: {} names axis \"{}\", which is not in {}; its axes are {}", to_string(spec_), axis,
                  to_string(mesh_), quoted(mesh_.axis_names()));
    if (used_[*found])
      throw_error("sharding: {} uses axis \"{}\" twice; an axis shards one dimension, or is unreduced",
                  to_string(spec_), axis);
    used_[*found] = true;
    return *found;
  }

 private:
  const Mesh& mesh_;
  const PartitionSpec& spec_;
  std::vector<bool> used_;
};

ShardingData make_data(const Mesh& mesh, const PartitionSpec& spec) {
  if (!mesh.defined()) throw_error("sharding: no mesh is given for {}; create one with make_mesh", to_string(spec));
  const Shape& shape = mesh.shape();
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];

  ShardingData data{mesh, spec.trimmed(), {}, true};
  AxisUsage axes(mesh, spec);
  for (const SpecEntry& entry : data.spec.entries) {
    DimSharding dim;
    for (const std::string& name : entry.axes) {
      const size_t axis = axes.use(name);
      dim.factors.push_back({strides[axis], shape[axis]});
      dim.shards *= shape[axis];
    }
    data.replicated &= dim.shards == 1;
    data.dims.push_back(std::move(dim));
  }
  for (const std::string& name : data.spec.unreduced) data.replicated &= shape[axes.use(name)] == 1;
  return data;
}

void check_rank(const ShardingData& data, const Shape& shape, std::string_view op) {
  if (data.dims.size() > shape.size())
    throw_error("{}: {} has {} entries, but {} has {} dimensions; give at most one entry per dimension", op,
                to_string(data.spec), data.dims.size(), to_string(shape), shape.size());
}

}  // namespace
}  // namespace detail

Range shard_range(int64_t extent, int64_t pieces, int64_t piece) {
  LOCKSTEP_CHECK(extent >= 0 && piece >= 0 && piece < pieces, "piece {} of {} of {}", piece, pieces, extent);
  const int64_t base = extent / pieces, larger = extent % pieces;
  const int64_t begin = piece * base + std::min(piece, larger);
  return {begin, begin + base + (piece < larger)};
}

std::string to_string(const Range& range) { return fmt::format("{}:{}", range.begin, range.end); }

NamedSharding::NamedSharding(const Mesh& mesh, const PartitionSpec& spec, SourceLine at) {
  const detail::CallerLine line(at);
  static auto* const table = new detail::InternTable<detail::ShardingData>;
  data_ = table->intern(detail::make_data(mesh, spec));
}

const detail::ShardingData& NamedSharding::data() const {
  if (!data_) throw_error("sharding: the NamedSharding is empty; assign NamedSharding(mesh, spec) before use");
  return *data_;
}

const Mesh& NamedSharding::mesh() const { return data().mesh; }
const PartitionSpec& NamedSharding::spec() const { return data().spec; }
bool NamedSharding::is_fully_replicated() const { return data().replicated; }

int64_t NamedSharding::num_shards(int64_t dimension, SourceLine at) const {
  const detail::CallerLine line(at);
  LOCKSTEP_CHECK(dimension >= 0, "dimension {}", dimension);
  const size_t i = static_cast<size_t>(dimension);
  return i < data().dims.size() ? data().dims[i].shards : 1;
}

int64_t NamedSharding::piece(int64_t dimension, int64_t position) const {
  LOCKSTEP_CHECK(dimension >= 0 && position >= 0 && position < mesh().size(), "dimension {} at {}", dimension,
                 position);
  const size_t i = static_cast<size_t>(dimension);
  if (i >= data().dims.size()) return 0;
  int64_t piece = 0;
  for (const auto& factor : data().dims[i].factors)
    piece = piece * factor.size + position / factor.stride % factor.size;
  return piece;
}

IndexBox NamedSharding::index_box(const Shape& shape, int64_t position, SourceLine at) const {
  const detail::CallerLine line(at);
  detail::check_rank(data(), shape, "sharding");
  IndexBox box;
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d)
    box.push_back(shard_range(shape[static_cast<size_t>(d)], num_shards(d), piece(d, position)));
  return box;
}

std::vector<DeviceIndices> NamedSharding::devices_indices_map(const Shape& shape, SourceLine at) const {
  const detail::CallerLine line(at);
  count(shape);  // throws for a negative extent
  std::vector<DeviceIndices> map;
  const auto& devices = mesh().devices();
  for (size_t i = 0; i < devices.size(); ++i) map.push_back({devices[i], index_box(shape, static_cast<int64_t>(i))});
  return map;
}

std::vector<DeviceIndices> NamedSharding::addressable_indices_map(const Shape& shape, SourceLine at) const {
  const detail::CallerLine line(at);
  std::vector<DeviceIndices> map = devices_indices_map(shape);
  std::erase_if(map, [](const DeviceIndices& entry) { return entry.device.process_index != process_index(); });
  return map;
}

Shape NamedSharding::shard_shape(const Shape& shape, std::string_view op, SourceLine at) const {
  const detail::CallerLine line(at);
  detail::check_rank(data(), shape, op);
  Shape shard = shape;
  for (size_t d = 0; d < data().dims.size(); ++d) {
    const int64_t n = data().dims[d].shards;
    if (shape[d] % n != 0)
      throw_error(
          "{}: dimension {} of {} is sharded {} ways by {}; per-device code needs equal shards, but {} is not a "
          "multiple of {}; pad the dimension, or use jit, which allows uneven shards",
          op, d, to_string(shape), n, quoted(data().spec.entries[d].axes), shape[d], n);
    shard[d] /= n;
  }
  return shard;
}

std::string to_string(const NamedSharding& sharding) {
  return fmt::format("NamedSharding({}, {})", to_string(sharding.mesh()), to_string(sharding.spec()));
}

}  // namespace lockstep
