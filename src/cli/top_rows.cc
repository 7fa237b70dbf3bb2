#include "cli/top_rows.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "base/file.h"
#include "base/json.h"
#include "base/os/host_name.h"
#include "cli/job_flags.h"
#include "jobs/show.h"
#include "train/logging.h"
#include "train/progress_line.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

constexpr int64_t kTailBytes = 256 << 10;
constexpr size_t kLogLines = 200;

std::string metrics_path(const std::string& folder) {
  for (const char* name : {"/log/metrics.jsonl", "/metrics.jsonl"})
    if (FileSystem::real().exists(folder + name)) return folder + name;
  return "";
}

// Up to `most` bytes of a file from an offset; empty if it cannot be read.
std::string read_part(const std::string& path, int64_t offset, int64_t most) {
  std::string out(static_cast<size_t>(most), '\0');
  try {
    const size_t n = FileSystem::real().read(path, offset, {reinterpret_cast<uint8_t*>(out.data()), out.size()});
    out.resize(n);
  } catch (const IoError&) {
    out.clear();
  }
  return out;
}

std::string read_tail(const std::string& path) {
  try {
    return read_part(path, std::max<int64_t>(FileSystem::real().size(path) - kTailBytes, 0), kTailBytes);
  } catch (const IoError&) {
    return "";
  }
}

// An object; null if the text is none.
json parse_object(std::string_view text) {
  try {
    json out = parse_json<json>(text, "a line", {.repeated_keys = true});
    return out.is_object() ? out : json();
  } catch (const std::exception&) {
    return {};
  }
}

std::string text_at(const json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}
double number_at(const json& object, const char* key, double missing) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number() ? at->get<double>() : missing;
}
int64_t count_at(const json& object, const char* key, int64_t missing) {
  const double value = number_at(object, key, static_cast<double>(missing));
  return std::abs(value) < 1e15 ? static_cast<int64_t>(value) : missing;
}

bool is_fixed_field(const std::string& name) { return name == "kind" || name == "step" || name == "time"; }

// Collects a row from the lines of metrics.jsonl.
class MetricsReader {
 public:
  explicit MetricsReader(TopRow& row) : row_(row) {}

  void read_start(const std::string& line) {
    const json object = parse_object(line);
    if (!object.is_object() || text_at(object, "kind") != "start") return;
    row_.total_steps = count_at(object, "total_steps", 0);
    if (row_.what.empty()) row_.what = text_at(object, "title").substr(0, text_at(object, "title").find(' '));
  }

  void read_lines(const std::string& text, bool from_beginning) {
    std::istringstream lines(text);
    std::string line;
    if (!from_beginning) std::getline(lines, line);  // incomplete
    while (std::getline(lines, line)) add(parse_object(line));
    row_.losses = losses_.means();
    if (last_.is_object()) finish();
  }

  bool ended() const { return ended_; }

 private:
  void add(const json& object) {
    if (!object.is_object()) return;
    const std::string kind = text_at(object, "kind");
    row_.step = std::max(row_.step, count_at(object, "step", -1));
    row_.updated = std::max(row_.updated, number_at(object, "time", 0));
    ended_ = kind == "end";
    if (kind == "start") steps_.clear();
    if (kind == "step") add_step(object);
    if (kind == "evaluation") add_evaluation(object);
    if (kind != "message") return;
    const auto alarm = object.find("alarm");
    row_.log.push_back(fmt::format("step {}  {}{}", row_.step, alarm != object.end() && *alarm == true ? "alarm: " : "",
                                   text_at(object, "text")));
  }

  void add_step(const json& object) {
    last_ = object;
    row_.loss = number_at(object, "loss", NAN);
    losses_.add(row_.loss);
    steps_.emplace_back(count_at(object, "step", 0), number_at(object, "time", 0));
    if (steps_.size() > 1000) steps_.erase(steps_.begin(), steps_.begin() + 500);
  }

  void add_evaluation(const json& object) {
    std::string text = fmt::format("step {}", row_.step);
    for (const auto& [name, value] : object.items())
      if (!is_fixed_field(name) && value.is_number()) text += "  " + detail::scalar_text(name, value.get<double>());
    row_.log.push_back(text);
    // An accuracy says more than a loss.
    for (const char* word : {"loss", "accuracy"})
      for (const auto& [name, value] : object.items())
        if (name.ends_with(word) && value.is_number()) row_.metric = detail::scalar_text(name, value.get<double>());
  }

  void finish() {
    Scalars scalars;
    for (const auto& [name, value] : last_.items())
      if (!is_fixed_field(name) && value.is_number()) scalars.emplace_back(name, value.get<double>());
    if (const auto* rate = detail::find_rate(scalars); rate != nullptr && rate->second > 0)
      row_.rate = rate->second, row_.rate_unit = rate->first.substr(0, rate->first.rfind("_per_second"));
    for (const auto& [name, value] : scalars) row_.facts.emplace_back(name, detail::scalar_text("", value).substr(1));
    const auto [first, from] = steps_.front();
    const auto [last, to] = steps_.back();
    if (last > first && to > from && row_.total_steps > 0)
      row_.seconds_left = static_cast<double>(std::max<int64_t>(row_.total_steps - row_.step, 0)) * (to - from) /
                          static_cast<double>(last - first);
  }

  TopRow& row_;
  json last_;
  std::vector<std::pair<int64_t, double>> steps_;  // recent ones, with their times
  detail::LossHistory losses_;
  bool ended_ = false;
};

// The fields of run.json.
void add_record(TopRow& row, const json& record, const ProcessTable& processes, const std::string& host) {
  row.state = text_at(record, "state");
  for (const char* key : {"task", "model"})
    if (row.what.empty()) row.what = text_at(record, key);
  row.step = count_at(record, "step", row.step);
  row.total_steps = count_at(record, "total_steps", 0);
  row.updated = number_at(record, "updated", 0);
  const bool here = text_at(record, "host") == host;
  const auto process = static_cast<pid_t>(count_at(record, "pid", 0));
  if (here && row.state == "running") {
    if (processes.exists(process))
      row.process = processes.launcher_of(process);
    else
      row.state = "lost";
  }
  for (const char* key : {"dataset", "host", "error"})
    if (const std::string text = text_at(record, key); !text.empty()) row.facts.emplace_back(key, text);
  if (process > 0) row.facts.emplace_back("process", std::to_string(process));
}

bool is_number_name(const std::string& name) {
  return !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == name.npos;
}

}  // namespace

ProcessTable::ProcessTable(const std::string& folder) {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (!is_number_name(name)) continue;
    std::string text;
    std::getline(std::ifstream(entry.path() / "stat"), text);
    const size_t open = text.find('('), close = text.rfind(')');
    if (open == text.npos || close == text.npos || close < open) continue;  // it has ended
    std::istringstream rest(text.substr(close + 1));
    std::string state, word;
    Process process{.parent = 0, .command = text.substr(open + 1, close - open - 1), .memory = 0};
    rest >> state >> process.parent;
    constexpr int kResident = 24, kAfterParent = 5;  // positions in the line, from 1
    for (int i = kAfterParent; i < kResident; ++i) rest >> word;
    rest >> process.memory;
    process.memory *= page;
    if (state != "Z") processes_.emplace(std::stoi(name), std::move(process));
  }
}

pid_t ProcessTable::launcher_of(pid_t process) const {
  const auto at = processes_.find(process);
  const auto parent = at == processes_.end() ? processes_.end() : processes_.find(at->second.parent);
  return parent != processes_.end() && parent->second.command == "lockstep" ? parent->first : process;
}

int64_t ProcessTable::memory_of(pid_t process) const {
  const auto at = processes_.find(process);
  if (at == processes_.end()) return -1;
  int64_t sum = at->second.memory;
  for (const auto& [id, each] : processes_)
    if (each.parent == process && id != process) sum += std::max<int64_t>(memory_of(id), 0);
  return sum;
}

bool is_run_folder(const std::string& folder) {
  return FileSystem::real().exists(folder + "/run.json") || !metrics_path(folder).empty();
}

TopRow read_run_row(const std::string& folder, const ProcessTable& processes, const std::string& host, double now) {
  const std::string name = std::filesystem::path(folder).lexically_normal().filename();
  TopRow row{.kind = TopRow::Kind::run, .name = name.empty() || name == "." ? folder : name, .state = ""};
  row.facts.emplace_back("folder", folder);
  constexpr int64_t kMostRecord = 1 << 20;
  const json record = parse_object(read_part(folder + "/run.json", 0, kMostRecord));
  if (record.is_object()) add_record(row, record, processes, host);

  MetricsReader reader(row);
  if (const std::string path = metrics_path(folder); !path.empty()) {
    const std::string begin = read_part(path, 0, 64 << 10), tail = read_tail(path);
    reader.read_start(begin.substr(0, begin.find('\n')));
    reader.read_lines(tail, static_cast<int64_t>(tail.size()) < kTailBytes);
  }
  constexpr double kSilent = 60;  // seconds
  if (row.state.empty())
    row.state = reader.ended() ? (row.step >= row.total_steps ? "complete" : "stopped")
                               : (now - row.updated < kSilent ? "running" : "silent");
  if (row.state != "running") row.seconds_left = -1, row.rate = 0;
  row.memory = row.process > 0 ? processes.memory_of(row.process) : -1;
  if (row.log.size() > kLogLines) row.log.erase(row.log.begin(), row.log.end() - kLogLines);
  return row;
}

std::vector<TopRow> read_run_rows(const std::vector<std::string>& folders, const ProcessTable& processes, double now) {
  const std::string host = own_host_name();
  std::vector<TopRow> out;
  for (const std::string& folder : folders) {
    if (is_run_folder(folder)) {
      out.push_back(read_run_row(folder, processes, host, now));
      continue;
    }
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error))
      if (const std::string path = entry.path(); entry.is_directory(error) && is_run_folder(path))
        out.push_back(read_run_row(path, processes, host, now));
  }
  return out;
}

std::vector<TopRow> read_job_rows(Runner& runner, const ProcessTable& processes) {
  std::vector<TopRow> out;
  for (const Job& job : runner.list("")) {
    const std::vector<Pod> pods = pods_of(runner, job);
    const auto running = std::ranges::count(pods, PodPhase::running, &Pod::phase);
    TopRow row{.kind = TopRow::Kind::job,
               .name = job.name,
               .state = job_state(job),
               .what = fmt::format("{}/{} replicas", running, job.spec.replicas)};
    row.facts = {{"namespace", job.namespace_name}, {"kind", std::string(name_of(job.kind))}};
    row.updated = static_cast<double>(job.created.time_since_epoch().count());
    const size_t at = out.size();
    out.push_back(std::move(row));
    for (const Pod& pod : pods) {
      TopRow replica{.kind = TopRow::Kind::replica, .name = pod_name(job, pod), .state = pod_status(pod)};
      replica.updated = out[at].updated;
      replica.facts = {{"namespace", job.namespace_name}, {"job", job.name}, {"replica", std::to_string(pod.index)}};
      if (pod.phase == PodPhase::running && pod.process > 0) {
        replica.memory = processes.memory_of(static_cast<pid_t>(pod.process));
        out[at].memory = std::max<int64_t>(out[at].memory, 0) + std::max<int64_t>(replica.memory, 0);
      }
      out.push_back(std::move(replica));
    }
  }
  return out;
}

}  // namespace lockstep::cli
