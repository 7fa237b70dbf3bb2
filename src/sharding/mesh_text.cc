#include "sharding/mesh_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/check.h"

namespace lockstep {
namespace {

constexpr std::string_view kOn = " on ";

// Whether these are the first devices of this process's platform, in order. Then the text omits them.
bool is_default_order(const std::vector<Device>& devices) {
  const Platform own = platform();
  for (size_t i = 0; i < devices.size(); ++i)
    if (devices[i].platform != own || devices[i].id != static_cast<int>(i)) return false;
  return true;
}

// The parts of a comma-separated list.
std::vector<std::string_view> split_by_comma(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t begin = 0; begin <= text.size() && !text.empty();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

// Parses a name and a number: "data=4", "cpu:1".
std::pair<std::string, int64_t> parse_named_number(std::string_view part, char between) {
  const size_t at = part.rfind(between);
  int64_t number = 0;
  const char* end = part.data() + part.size();
  LOCKSTEP_CHECK(at != std::string_view::npos && std::from_chars(part.data() + at + 1, end, number).ptr == end,
                 "cannot parse '{}' in the text of a mesh", part);
  return {std::string(part.substr(0, at)), number};
}

// The device with this platform and id; of process 0 if there is none.
Device device_of(Platform platform, int id) {
  for (const Device& device : devices())
    if (device.platform == platform && device.id == id) return device;
  return {.id = id, .platform = platform};
}

}  // namespace

std::string mesh_text(const Mesh& mesh) {
  std::string out;
  for (size_t i = 0; i < mesh.shape().size(); ++i)
    out += fmt::format("{}{}={}", out.empty() ? "" : ",", mesh.axis_names()[i], mesh.shape()[i]);
  if (is_default_order(mesh.devices())) return out;
  out += kOn;
  for (size_t i = 0; i < mesh.devices().size(); ++i) {
    if (i > 0) out += ',';
    out += to_string(mesh.devices()[i]);
  }
  return out;
}

Mesh mesh_from_text(std::string_view text) {
  const size_t on = std::min(text.rfind(kOn), text.size());
  std::vector<std::string> names;
  Shape shape;
  for (std::string_view part : split_by_comma(text.substr(0, on))) {
    auto [name, size] = parse_named_number(part, '=');
    names.push_back(std::move(name));
    shape.push_back(size);
  }
  std::vector<Device> made;
  if (on == text.size()) {
    for (int64_t i = 0; i < count(shape); ++i) made.push_back(device_of(platform(), static_cast<int>(i)));
  } else {
    for (std::string_view part : split_by_comma(text.substr(on + kOn.size()))) {
      const auto [name, id] = parse_named_number(part, ':');
      made.push_back(
          device_of(name == to_string(Platform::cuda) ? Platform::cuda : Platform::cpu, static_cast<int>(id)));
    }
  }
  return {std::move(made), std::move(shape), std::move(names)};
}

}  // namespace lockstep
