#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "base/hash.h"
#include "lockstep/sharding.h"
#include "sharding/intern.h"
#include "sharding/names.h"

namespace lockstep {
namespace detail {

// How one dimension is cut. The device at position p of the mesh has, along the axis of factor f, the coordinate
// p / f.stride % f.size; these are the digits, outermost first, of the number of its piece.
struct Cut {
  struct Factor {
    int64_t stride, size;
  };
  std::vector<Factor> factors;
  int64_t pieces = 1;
};

struct ShardingData {
  Mesh mesh;
  PartitionSpec spec;
  std::vector<Cut> cuts;  // per entry; follows from mesh and spec
  bool replicated;        // so does this

  bool operator==(const ShardingData& other) const { return mesh == other.mesh && spec == other.spec; }
  size_t hash() const {
    Hasher hasher;
    hasher.add(static_cast<uint64_t>(std::hash<Mesh>()(mesh)));
    hasher.add(static_cast<uint64_t>(std::hash<PartitionSpec>()(spec)));
    return hasher.value();
  }
};

namespace {

// The positions of the axes of a spec among those of its mesh; each may be taken once.
class AxisBook {
 public:
  AxisBook(const Mesh& mesh, const PartitionSpec& spec) : mesh_(mesh), spec_(spec), taken_(mesh.shape().size()) {}

  size_t take(const std::string& axis) {
    const auto found = mesh_.find_axis(axis);
    if (!found)
      throw_error("sharding: {} names axis \"{}\", which {} has not; its axes are {}", to_string(spec_), axis,
                  to_string(mesh_), quoted(mesh_.axis_names()));
    if (taken_[*found])
      throw_error("sharding: {} uses axis \"{}\" twice; an axis cuts one dimension, or is unreduced", to_string(spec_),
                  axis);
    taken_[*found] = true;
    return *found;
  }

 private:
  const Mesh& mesh_;
  const PartitionSpec& spec_;
  std::vector<bool> taken_;
};

ShardingData make_data(const Mesh& mesh, const PartitionSpec& spec) {
  if (!mesh.defined()) throw_error("sharding: no mesh is given for {}; make one with make_mesh", to_string(spec));
  const Shape& shape = mesh.shape();
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];

  ShardingData data{mesh, spec.trimmed(), {}, true};
  AxisBook book(mesh, spec);
  for (const SpecEntry& entry : data.spec.entries) {
    Cut cut;
    for (const std::string& name : entry.axes) {
      const size_t axis = book.take(name);
      cut.factors.push_back({strides[axis], shape[axis]});
      cut.pieces *= shape[axis];
    }
    data.replicated &= cut.pieces == 1;
    data.cuts.push_back(std::move(cut));
  }
  for (const std::string& name : data.spec.unreduced) data.replicated &= shape[book.take(name)] == 1;
  return data;
}

void check_rank(const ShardingData& data, const Shape& shape, std::string_view op) {
  if (data.cuts.size() > shape.size())
    throw_error("{}: {} has {} entries and {} has {} dimensions; give at most one entry per dimension", op,
                to_string(data.spec), data.cuts.size(), to_string(shape), shape.size());
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

NamedSharding::NamedSharding(const Mesh& mesh, const PartitionSpec& spec) {
  static auto* const table = new detail::InternTable<detail::ShardingData>;
  data_ = table->intern(detail::make_data(mesh, spec));
}

const detail::ShardingData& NamedSharding::data() const {
  if (!data_) throw_error("sharding: an empty NamedSharding; assign NamedSharding(mesh, spec) before it is used");
  return *data_;
}

const Mesh& NamedSharding::mesh() const { return data().mesh; }
const PartitionSpec& NamedSharding::spec() const { return data().spec; }
bool NamedSharding::is_fully_replicated() const { return data().replicated; }

int64_t NamedSharding::num_shards(int64_t dimension) const {
  LOCKSTEP_CHECK(dimension >= 0, "dimension {}", dimension);
  const size_t i = static_cast<size_t>(dimension);
  return i < data().cuts.size() ? data().cuts[i].pieces : 1;
}

int64_t NamedSharding::piece(int64_t dimension, int64_t position) const {
  LOCKSTEP_CHECK(dimension >= 0 && position >= 0 && position < mesh().size(), "dimension {} at {}", dimension,
                 position);
  const size_t i = static_cast<size_t>(dimension);
  if (i >= data().cuts.size()) return 0;
  int64_t piece = 0;
  for (const auto& factor : data().cuts[i].factors)
    piece = piece * factor.size + position / factor.stride % factor.size;
  return piece;
}

IndexBox NamedSharding::index_box(const Shape& shape, int64_t position) const {
  detail::check_rank(data(), shape, "sharding");
  IndexBox box;
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d)
    box.push_back(shard_range(shape[static_cast<size_t>(d)], num_shards(d), piece(d, position)));
  return box;
}

std::vector<DeviceIndices> NamedSharding::devices_indices_map(const Shape& shape) const {
  count(shape);  // throws for a negative extent
  std::vector<DeviceIndices> map;
  const auto& devices = mesh().devices();
  for (size_t i = 0; i < devices.size(); ++i) map.push_back({devices[i], index_box(shape, static_cast<int64_t>(i))});
  return map;
}

std::vector<DeviceIndices> NamedSharding::addressable_indices_map(const Shape& shape) const {
  std::vector<DeviceIndices> map = devices_indices_map(shape);
  std::erase_if(map, [](const DeviceIndices& entry) { return entry.device.process_index != process_index(); });
  return map;
}

Shape NamedSharding::shard_shape(const Shape& shape, std::string_view op) const {
  detail::check_rank(data(), shape, op);
  Shape pieces = shape;
  for (size_t d = 0; d < data().cuts.size(); ++d) {
    const int64_t n = data().cuts[d].pieces;
    if (shape[d] % n != 0)
      throw_error(
          "{}: dimension {} of {} is cut {} ways by {}; per-device code needs equal pieces and {} is no multiple "
          "of {}; pad the dimension, or use jit, which allows uneven pieces",
          op, d, to_string(shape), n, quoted(data().spec.entries[d].axes), shape[d], n);
    pieces[d] /= n;
  }
  return pieces;
}

std::string to_string(const NamedSharding& sharding) {
  return fmt::format("NamedSharding({}, {})", to_string(sharding.mesh()), to_string(sharding.spec()));
}

}  // namespace lockstep
