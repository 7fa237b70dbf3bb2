#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "base/hash.h"
#include "lockstep/sharding.h"
#include "sharding/intern.h"
#include "sharding/names.h"

namespace lockstep {
namespace detail {

struct MeshData {
  std::vector<Device> devices;
  Shape shape;
  std::vector<std::string> axis_names;
  std::unordered_map<Device, int64_t> positions;  // derived from `devices`

  bool operator==(const MeshData& other) const {
    return devices == other.devices && shape == other.shape && axis_names == other.axis_names;
  }
  size_t hash() const {
    Hasher hasher;
    for (const std::string& name : axis_names) hasher.add(name);
    for (int64_t extent : shape) hasher.add(static_cast<uint64_t>(extent));
    for (const Device& device : devices) hasher.add(static_cast<uint64_t>(std::hash<Device>()(device)));
    return hasher.value();
  }
};

namespace {

std::string axes_text(const std::vector<std::string>& names, const Shape& shape) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < names.size(); ++i) parts.push_back(fmt::format("'{}': {}", names[i], shape[i]));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void check_axes(const Shape& shape, const std::vector<std::string>& names) {
  if (names.size() != shape.size())
    throw_error("mesh: {} axis names ({}) for the {} dimensions of {}; give one name per dimension", names.size(),
                quoted(names), shape.size(), to_string(shape));
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty())
      throw_error("mesh: axis {} of {} has an empty name; every axis needs a name", i, to_string(shape));
    if (std::find(names.begin(), names.begin() + static_cast<ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<ptrdiff_t>(i))
      throw_error("mesh: two axes are named \"{}\"; axis names must be unique", names[i]);
    if (shape[i] < 1) throw_error("mesh: axis \"{}\" has size {}; sizes must be at least 1", names[i], shape[i]);
  }
}

void check_devices(const std::vector<Device>& devices, const Shape& shape) {
  if (count(shape) != static_cast<int64_t>(devices.size()))
    throw_error("mesh: {} devices for a grid of shape {}, which needs {}; the numbers must match", devices.size(),
                to_string(shape), count(shape));
  std::unordered_set<Device> seen;
  for (const Device& device : devices) {
    if (!seen.insert(device).second)
      throw_error("mesh: device {} occurs twice; list each device once", to_string(device));
    if (device.platform != devices[0].platform)
      throw_error("mesh: devices {} and {} are of different platforms; use devices of one platform",
                  to_string(devices[0]), to_string(device));
  }
}

}  // namespace
}  // namespace detail

Mesh::Mesh(std::vector<Device> devices, Shape shape, std::vector<std::string> axis_names, SourceLine at) {
  const detail::CallerLine line(at);
  static auto* const table = new detail::InternTable<detail::MeshData>;
  detail::check_axes(shape, axis_names);
  detail::check_devices(devices, shape);
  std::unordered_map<Device, int64_t> positions;
  for (size_t i = 0; i < devices.size(); ++i) positions[devices[i]] = static_cast<int64_t>(i);
  data_ = table->intern({std::move(devices), std::move(shape), std::move(axis_names), std::move(positions)});
}

const detail::MeshData& Mesh::data() const {
  if (!data_) throw_error("mesh: the Mesh is empty; assign one from make_mesh() before use");
  return *data_;
}

const std::vector<std::string>& Mesh::axis_names() const { return data().axis_names; }
const Shape& Mesh::shape() const { return data().shape; }
const std::vector<Device>& Mesh::devices() const { return data().devices; }
int64_t Mesh::size() const { return static_cast<int64_t>(data().devices.size()); }

std::vector<Device> Mesh::local_devices() const {
  std::vector<Device> local;
  for (const Device& device : data().devices)
    if (device.process_index == process_index()) local.push_back(device);
  return local;
}

int64_t Mesh::size(std::string_view axis, SourceLine at) const {
  const detail::CallerLine line(at);
  const auto found = find_axis(axis);
  if (!found) throw_error("mesh: no axis \"{}\" in {}; its axes are {}", axis, to_string(*this), quoted(axis_names()));
  return shape()[*found];
}

std::optional<size_t> Mesh::find_axis(std::string_view axis) const {
  const auto& names = axis_names();
  const auto found = std::find(names.begin(), names.end(), axis);
  if (found == names.end()) return std::nullopt;
  return static_cast<size_t>(found - names.begin());
}

int64_t Mesh::position(const Device& device) const {
  const auto found = data().positions.find(device);
  if (found == data().positions.end())
    throw_error("mesh: device {} of process {} is not in {}; use one of its devices()", to_string(device),
                device.process_index, to_string(*this));
  return found->second;
}

std::vector<int64_t> Mesh::coordinates(const Device& device) const { return coordinates(position(device)); }

std::vector<int64_t> Mesh::coordinates(int64_t position) const {
  LOCKSTEP_CHECK(position >= 0 && position < size(), "position {} in a mesh of {}", position, size());
  std::vector<int64_t> coordinates(shape().size());
  for (size_t i = coordinates.size(); i-- > 0;) {
    coordinates[i] = position % shape()[i];
    position /= shape()[i];
  }
  return coordinates;
}

std::string to_string(const Mesh& mesh) {
  return fmt::format("Mesh({})", detail::axes_text(mesh.axis_names(), mesh.shape()));
}

MeshAxis::MeshAxis(const char* axis, int64_t extent) : name(axis), size(extent) {}
MeshAxis::MeshAxis(std::string axis, int64_t extent) : name(std::move(axis)), size(extent) {}
MeshAxis::MeshAxis(const MeshAxis&) = default;
MeshAxis::MeshAxis(MeshAxis&&) noexcept = default;
MeshAxis& MeshAxis::operator=(const MeshAxis&) = default;
MeshAxis& MeshAxis::operator=(MeshAxis&&) noexcept = default;
MeshAxis::~MeshAxis() = default;

Mesh make_mesh(const std::vector<MeshAxis>& axes, SourceLine at) { return make_mesh(axes, devices(), at); }

Mesh make_mesh(const std::vector<MeshAxis>& axes, const std::vector<Device>& devices, SourceLine at) {
  const detail::CallerLine line(at);
  std::vector<std::string> names;
  Shape shape;
  std::optional<size_t> inferred;
  for (const MeshAxis& axis : axes) {
    if (axis.size == -1) {
      if (inferred)
        throw_error("make_mesh: the sizes of \"{}\" and \"{}\" are both -1; only one can be inferred", names[*inferred],
                    axis.name);
      inferred = names.size();
    }
    names.push_back(axis.name);
    shape.push_back(axis.size == -1 ? 1 : axis.size);
  }
  detail::check_axes(shape, names);
  const int64_t available = static_cast<int64_t>(devices.size());
  const int64_t given = count(shape);
  if (given > available)
    throw_error(
        "make_mesh: {} needs {} devices, but only {} are available; set --devices {} or "
        "LOCKSTEP_NUM_CPU_DEVICES={}",
        detail::axes_text(names, shape), given, available, given, given);
  if (inferred) {
    if (available % given != 0)
      throw_error(
          "make_mesh: {} devices are not divisible by {}, the product of the sizes other than \"{}\"; set that size "
          "too, or use another number of devices",
          available, given, names[*inferred]);
    shape[*inferred] = available / given;
  }
  return Mesh({devices.begin(), devices.begin() + count(shape)}, shape, names);
}

}  // namespace lockstep
