#include "board/run_file_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/json.h"

namespace lockstep::board {
namespace {

using nlohmann::json;

constexpr size_t kMaxSamples = 200, kMaxClasses = 100'000, kMaxDevices = 65'536;
constexpr std::string_view kPngBegin = "\x89PNG\r\n\x1a\n";

// Says that a file is not what it should be.
class Checked {
 public:
  Checked(std::string_view text, std::string name, std::string_view remedy) : name_(std::move(name)), remedy_(remedy) {
    try {
      value = parse_json<json>(text, name_);
    } catch (const Error& error) {
      throw_error("{}; {}", error.what(), remedy_);
    }
    require(value.is_object(), "is not an object");
  }

  void require(bool condition, std::string_view problem) const {
    if (!condition) throw_error("{} {}; {}", name_, problem, remedy_);
  }
  // The array at a key of an object.
  const json& array(const json& object, const char* key) const {
    require(object.is_object() && object.contains(key) && object[key].is_array(),
            fmt::format("has no list \"{}\"", key));
    return object[key];
  }
  int64_t integer(const json& object, const char* key, int64_t low, int64_t high) const {
    require(object.is_object() && object.contains(key) && object[key].is_number_integer() &&
                !(object[key].is_number_unsigned() && object[key].get<uint64_t>() > static_cast<uint64_t>(high)) &&
                object[key].get<int64_t>() >= low && object[key].get<int64_t>() <= high,
            fmt::format("has no whole number \"{}\" from {} to {}", key, low, high));
    return object[key].get<int64_t>();
  }
  void text(const json& object, const char* key) const {
    require(object.is_object() && object.contains(key) && object[key].is_string(),
            fmt::format("has no text \"{}\"", key));
  }
  std::string dump() const { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

  json value;

 private:
  const std::string name_, remedy_;
};

void check_confusion(const Checked& report, size_t classes) {
  const json& matrix = report.array(report.value, "confusion");
  report.require(matrix.size() == classes,
                 fmt::format("has {} classes, but {} rows of \"confusion\"", classes, matrix.size()));
  for (const json& row : matrix) {
    const bool counts = row.is_array() && std::ranges::all_of(row, [](const json& each) {
                          return each.is_number_integer() && (each.is_number_unsigned() || each.get<int64_t>() >= 0);
                        });
    report.require(counts && row.size() == classes,
                   fmt::format("has a row of \"confusion\" without {} counts", classes));
  }
}

// The axes of each dimension of an array.
void check_sharding(const Checked& mesh, const json& parameter, const char* key, const std::set<std::string>& axes) {
  const json& sharding = mesh.array(parameter, key);
  mesh.require(sharding.size() == parameter["shape"].size(),
               fmt::format("has a \"{}\" of another rank than its \"shape\"", key));
  for (const json& dimension : sharding) {
    mesh.require(dimension.is_array(), fmt::format("has a \"{}\" that is not a list of lists", key));
    for (const json& axis : dimension)
      mesh.require(axis.is_string() && axes.contains(axis.get<std::string>()),
                   fmt::format("has a \"{}\" with an axis that the mesh does not have", key));
  }
}

// None for a damaged line.
std::optional<json> sample_of(std::string_view line) {
  try {
    json out = parse_json<json>(line, "samples.jsonl");
    const auto has_text = [&](const char* key) { return out.contains(key) && out[key].is_string(); };
    if (out.is_object() && out.contains("step") && out["step"].is_number_integer() &&
        (has_text("text") || has_text("error")))
      return out;
  } catch (const Error&) {  // the process was killed while it wrote
  }
  return std::nullopt;
}

}  // namespace

std::string checked_evaluation(std::string_view text) {
  const Checked report(text, kEvaluationFile, kEvaluationRemedy);
  const json& classes = report.array(report.value, "classes");
  const int64_t last_class = std::ssize(classes) - 1;
  report.require(classes.size() <= kMaxClasses, fmt::format("has {} classes", classes.size()));
  for (const json& each : classes) {
    report.text(each, "name");
    for (const char* key : {"examples", "predicted", "correct"}) report.integer(each, key, 0, int64_t{1} << 52);
  }
  report.text(report.value, "set");
  report.integer(report.value, "step", 0, int64_t{1} << 52);
  report.require(report.value.contains("metrics") && report.value["metrics"].is_object() &&
                     std::ranges::all_of(report.value["metrics"],
                                         [](const json& each) { return each.is_number() || each.is_null(); }),
                 "has no \"metrics\" with numbers");
  if (report.value.contains("confusion")) check_confusion(report, classes.size());
  for (const json& each : report.array(report.value, "confusions")) {
    for (const char* key : {"label", "predicted"}) report.integer(each, key, 0, last_class);
    report.integer(each, "examples", 0, int64_t{1} << 52);
  }
  for (const json& each : report.array(report.value, "mistakes")) {
    report.integer(each, "example", 0, int64_t{1} << 52);
    for (const char* key : {"label", "predicted"}) report.integer(each, key, 0, last_class);
    report.require(each.contains("probability") && each["probability"].is_number(),
                   "has a mistake without a \"probability\"");
  }
  return report.dump();
}

std::string samples_of(std::string_view text) {
  std::deque<json> samples;
  int64_t skipped = 0;
  for (size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1) {
    if (end == at) continue;
    std::optional<json> sample = sample_of(text.substr(at, end - at));
    if (!sample) {
      ++skipped;
      continue;
    }
    while (!samples.empty() && samples.back()["step"] >= (*sample)["step"]) samples.pop_back();
    samples.push_back(std::move(*sample));
    if (samples.size() > kMaxSamples) samples.pop_front();
  }
  return json{{"samples", samples}, {"skipped", skipped}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string checked_mesh(std::string_view text) {
  const Checked mesh(text, kMeshFile, kMeshRemedy);
  std::set<std::string> names;
  size_t size = 1;
  for (const json& axis : mesh.array(mesh.value, "axes")) {
    mesh.text(axis, "name");
    mesh.require(names.insert(axis["name"]).second, "has an axis twice");
    size *= static_cast<size_t>(mesh.integer(axis, "size", 1, static_cast<int64_t>(kMaxDevices)));
    mesh.require(size <= kMaxDevices, fmt::format("has more than {} devices", kMaxDevices));
  }
  const json& devices = mesh.array(mesh.value, "devices");
  mesh.require(devices.size() == size, fmt::format("has {} devices, but its axes need {}", devices.size(), size));
  for (const json& device : devices)
    for (const char* key : {"id", "process"}) mesh.integer(device, key, 0, INT32_MAX);
  for (const json& parameter : mesh.array(mesh.value, "parameters")) {
    mesh.text(parameter, "path");
    mesh.text(parameter, "type");
    for (const json& extent : mesh.array(parameter, "shape"))
      mesh.require(extent.is_number_unsigned() && extent.get<uint64_t>() < (uint64_t{1} << 52),
                   "has a \"shape\" that is not a list of sizes");
    check_sharding(mesh, parameter, "sharding", names);
    for (const char* key : {"gradient", "state"})
      if (parameter.contains(key)) check_sharding(mesh, parameter, key, names);
  }
  return mesh.dump();
}

bool is_complete_png(std::span<const uint8_t> bytes) {
  constexpr size_t kAround = 12;  // length, type and checksum
  if (bytes.size() < kPngBegin.size() || !std::equal(kPngBegin.begin(), kPngBegin.end(), bytes.begin(),
                                                     [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; }))
    return false;
  for (size_t at = kPngBegin.size(); at + kAround <= bytes.size();) {
    const size_t length = (size_t{bytes[at]} << 24) | (size_t{bytes[at + 1]} << 16) | (size_t{bytes[at + 2]} << 8) |
                          size_t{bytes[at + 3]};
    if (length > bytes.size() - at - kAround) return false;
    const std::string_view type(reinterpret_cast<const char*>(bytes.data()) + at + 4, 4);
    if (type == "IEND") return true;
    at += kAround + length;
  }
  return false;
}

}  // namespace lockstep::board
