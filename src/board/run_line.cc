#include "board/run_line.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/json.h"

namespace lockstep::board {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 16;
constexpr int64_t kMaxRunJson = int64_t{1} << 20;
constexpr double kStoppedSeconds = 60;  // without a new line
constexpr size_t kMaxValues = 64;

std::string piece(FileSystem& files, const std::string& path, int64_t offset, int64_t size) {
  std::string out(static_cast<size_t>(size), '\0');
  out.resize(files.read(path, offset, {reinterpret_cast<uint8_t*>(out.data()), out.size()}));
  return out;
}

// The `state` of run.json; empty if there is none.
std::string stored_state(FileSystem& files, const std::string& folder) {
  const std::string path = folder + "/run.json";
  if (!files.exists(path)) return "";
  try {
    const std::vector<uint8_t> bytes = files.read_file(path, kMaxRunJson);
    const auto object = parse_json<nlohmann::json>(std::string(bytes.begin(), bytes.end()), path);
    const auto state = object.is_object() ? object.find("state") : object.end();
    return state != object.end() && state->is_string() ? state->get<std::string>() : "";
  } catch (const std::runtime_error&) {  // damaged, or being replaced
    return "";
  }
}

// Takes step, time and values from the lines that are complete. Returns whether there was one.
bool read_lines(std::string_view tail, RunLine& out, bool& ended) {
  bool found = false;
  charts::MetricLine line;
  for (size_t at = 0, end; (end = tail.find('\n', at)) != tail.npos; at = end + 1) {
    if (!charts::parse_metric_line(tail.substr(at, end - at), line)) continue;
    found = true;
    out.step = line.step;
    out.updated = line.time;
    ended = line.kind == charts::MetricLine::Kind::end;
    if (line.total_steps > 0) out.total_steps = line.total_steps;
    if (line.kind != charts::MetricLine::Kind::step) continue;
    out.values.clear();
    for (const auto& [name, value] : line.scalars)
      if (out.values.size() < kMaxValues && std::isfinite(value)) out.values.emplace_back(name, value);
  }
  return found;
}

}  // namespace

void read_run_line(FileSystem& files, const std::string& run_folder, const std::string& metrics_path, double now,
                   RunLine& out) {
  out.bytes = files.size(metrics_path);
  const std::string head = piece(files, metrics_path, 0, kPieceBytes);
  charts::MetricLine line;
  const std::string_view first = std::string_view(head).substr(0, head.find('\n'));
  if (first.size() < head.size() && charts::parse_metric_line(first, line)) {
    out.started = out.updated = line.time;
    out.title = line.title;
    out.total_steps = line.total_steps;
  }
  bool ended = false;
  // Lines of runs with many metrics are long.
  for (const int64_t size : {kPieceBytes, 16 * kPieceBytes, 256 * kPieceBytes}) {
    const int64_t begin = std::max<int64_t>(0, out.bytes - size);
    if (read_lines(piece(files, metrics_path, begin, std::min(size, out.bytes)), out, ended) || begin == 0) break;
  }
  out.state = stored_state(files, run_folder);
  if (out.state.empty()) out.state = ended ? "ended" : now - out.updated < kStoppedSeconds ? "running" : "stopped";
}

}  // namespace lockstep::board
