#include "board/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"

namespace lockstep::board {
namespace {

using nlohmann::json;

constexpr int64_t kMaxJsonBytes = int64_t{16} << 20, kMaxPictureBytes = int64_t{16} << 20,
                  kMaxSampleBytes = int64_t{4} << 20;
constexpr size_t kMaxSamples = 200, kMaxClasses = 100'000, kMaxDevices = 65'536;
constexpr std::string_view kPngBegin = "\x89PNG\r\n\x1a\n";

std::string version_of(const std::filesystem::path& path) {
  std::error_code size_error, time_error;
  const auto bytes = std::filesystem::file_size(path, size_error);
  const auto time = std::filesystem::last_write_time(path, time_error);
  if (size_error || time_error) return "";
  return fmt::format("{}-{}", bytes, time.time_since_epoch().count());
}

std::string version_of_folder(const std::filesystem::path& path) {
  std::string out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error))
    out += entry.path().filename().string() + ":" + version_of(entry.path()) + ";";
  return out.empty() ? "" : std::to_string(std::hash<std::string>()(out));
}

std::vector<uint8_t> bytes_of(const std::string& folder, const std::string& name, int64_t most,
                              std::string_view remedy) {
  FileSystem& files = FileSystem::real();
  const std::string path = folder + "/" + name;
  try {
    if (!files.exists(path)) throw_error("the run has no {}; {}", name, remedy);
    if (const int64_t size = files.size(path); size > most)
      throw_error("{} has {} bytes, but the board reads at most {}; {}", name, size, most, remedy);
    return files.read_file(path, most);
  } catch (const IoError& error) {
    throw_error("{}", error.what());
  }
}

// Says that a file is not what it should be.
class Checked {
 public:
  Checked(const std::string& folder, std::string name, std::string remedy)
      : name_(std::move(name)), remedy_(std::move(remedy)) {
    const std::vector<uint8_t> bytes = bytes_of(folder, name_, kMaxJsonBytes, remedy_);
    try {
      value = parse_json<json>(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), name_);
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

// Whether the chunks of a PNG file are complete: each has its length, its type and a checksum, and IEND is the last.
bool is_complete_png(const std::vector<uint8_t>& bytes) {
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

// The last part of a file, from the begin of a line.
std::string last_lines(const std::string& path) {
  FileSystem& files = FileSystem::real();
  const int64_t size = files.size(path), begin = std::max<int64_t>(0, size - kMaxSampleBytes);
  std::string out(static_cast<size_t>(size - begin), '\0');
  out.resize(files.read(path, begin, {reinterpret_cast<uint8_t*>(out.data()), out.size()}));
  return begin == 0 ? out : out.substr(std::min(out.size(), out.find('\n')));
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

std::map<std::string, std::string> file_versions(const std::string& run_folder) {
  const std::filesystem::path folder = run_folder;
  std::map<std::string, std::string> out = {{"evaluation", version_of(folder / "evaluation" / "report.json")},
                                            {"samples", version_of(folder / "samples.jsonl")},
                                            {"mesh", version_of(folder / "mesh.json")},
                                            {"trace", version_of_folder(folder / "trace")}};
  std::erase_if(out, [](const auto& each) { return each.second.empty(); });
  return out;
}

std::string evaluation_json(const std::string& run_folder) {
  const Checked report(run_folder, "evaluation/report.json", "`lockstep eval RUN` writes it");
  const json& classes = report.array(report.value, "classes");
  report.require(classes.size() <= kMaxClasses, fmt::format("has {} classes", classes.size()));
  for (const json& each : classes) {
    report.text(each, "name");
    for (const char* key : {"examples", "predicted", "correct"}) report.integer(each, key, 0, int64_t{1} << 52);
  }
  report.text(report.value, "set");
  report.integer(report.value, "step", 0, int64_t{1} << 52);
  report.require(report.value.contains("metrics") && report.value["metrics"].is_object(), "has no \"metrics\"");
  if (report.value.contains("confusion")) check_confusion(report, classes.size());
  for (const json& each : report.array(report.value, "confusions")) {
    for (const char* key : {"label", "predicted"})
      report.integer(each, key, 0, static_cast<int64_t>(classes.size()) - 1);
    report.integer(each, "examples", 0, int64_t{1} << 52);
  }
  return report.dump();
}

std::vector<uint8_t> worst_picture(const std::string& run_folder) {
  constexpr const char* kName = "evaluation/worst.png";
  constexpr std::string_view kRemedy = "`lockstep eval RUN` writes it";
  std::vector<uint8_t> bytes = bytes_of(run_folder, kName, kMaxPictureBytes, kRemedy);
  if (!is_complete_png(bytes))
    throw_error("{} has {} bytes and is not a complete PNG file; {}", kName, bytes.size(), kRemedy);
  return bytes;
}

std::string samples_json(const std::string& run_folder) {
  const std::string path = run_folder + "/samples.jsonl";
  std::string text;
  try {
    if (!FileSystem::real().exists(path))
      throw_error("the run has no samples.jsonl; `lockstep train --sample-tokens N` writes it");
    text = last_lines(path);
  } catch (const IoError& error) {
    throw_error("{}", error.what());
  }
  std::deque<json> samples;
  int64_t skipped = 0;
  for (size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1) {
    if (end == at) continue;
    std::optional<json> sample = sample_of(std::string_view(text).substr(at, end - at));
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

std::string mesh_json(const std::string& run_folder) {
  const Checked mesh(run_folder, "mesh.json", "training writes it when it starts");
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

}  // namespace lockstep::board
