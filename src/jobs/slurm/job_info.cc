#include "jobs/slurm/job_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <vector>

#include "base/json.h"

namespace lockstep {
namespace {

constexpr std::array kWaiting = {"PENDING",     "CONFIGURING",  "REQUEUED",      "REQUEUE_HOLD",
                                 "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD", "POWER_UP_NODE"};
constexpr std::array kFailed = {"FAILED",    "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY",
                                "BOOT_FAIL", "DEADLINE",  "REVOKED", "PREEMPTED", "LAUNCH_FAILED"};

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

int clamped(int64_t value) { return static_cast<int>(std::clamp<int64_t>(value, 0, INT32_MAX)); }

// Returns the text before the separator; removes both from `rest`.
std::string_view take(std::string_view& rest, char separator) {
  const size_t at = std::min(rest.find(separator), rest.size());
  const std::string_view out = rest.substr(0, at);
  rest.remove_prefix(std::min(at + 1, rest.size()));
  return out;
}

// The value of a field of scontrol, up to the next space.
std::string field(std::string_view line, std::string_view name) {
  const std::string wanted = fmt::format(" {}=", name);
  const std::string padded = fmt::format(" {}", line.substr(0, line.find('\n')));
  const size_t at = padded.find(wanted);
  if (at == padded.npos) return "";
  const size_t begin = at + wanted.size();
  return padded.substr(begin, padded.find(' ', begin) - begin);
}

// "0:9": exit code and signal.
int exit_code_of(std::string_view text) {
  const std::string_view code = take(text, ':');
  const int64_t signal = number(take(text, ':')).value_or(0);
  return clamped(signal > 0 ? 128 + std::min<int64_t>(signal, 127) : number(code).value_or(0));
}

std::optional<JobTime> slurm_time(std::string_view text) {
  const std::optional<int64_t> count = number(text);
  constexpr int64_t kLast = 253'402'300'799;  // end of the year 9999
  if (!count || *count <= 0 || *count > kLast) return std::nullopt;
  return JobTime(std::chrono::seconds(*count));
}

std::string node_list(std::string_view text) {
  return text == "(null)" || text == "None assigned" ? "" : std::string(text);
}

// The signal with this description: "Killed", "Segmentation fault (core dumped)".
std::optional<int> signal_of(std::string_view text) {
  for (int signal = 1; signal < 32; ++signal) {
    const char* const name = ::sigdescr_np(signal);
    if (name && text.starts_with(name)) return signal;
  }
  return std::nullopt;
}

// Expands "0-2,5". Returns {} if the list is malformed or too long.
std::vector<int> indexes(std::string_view list) {
  std::vector<int> out;
  while (!list.empty()) {
    std::string_view part = take(list, ',');
    const std::optional<int64_t> first = number(take(part, '-'));
    const std::optional<int64_t> last = part.empty() ? first : number(part);
    constexpr int64_t kMax = 1 << 20;
    if (!first || !last || *first < 0 || *last > kMax) return {};
    if (*last - *first >= kMax - std::ssize(out)) return {};
    for (int64_t i = *first; i <= *last; ++i) out.push_back(static_cast<int>(i));
  }
  return out;
}

// Parses `n1: tasks 0-2: Exited with exit code 75`; ignores other lines.
void read_exit(std::string_view line, std::map<int, int>& exit_codes) {
  size_t at = line.find(": task ");
  size_t length = std::strlen(": task ");
  if (at == line.npos) at = line.find(": tasks "), length = std::strlen(": tasks ");
  if (at == line.npos) return;
  std::string_view rest = line.substr(at + length);
  const std::vector<int> tasks = indexes(take(rest, ':'));
  constexpr std::string_view kExited = " Exited with exit code ";
  std::optional<int64_t> code;
  if (rest.starts_with(kExited)) {
    rest.remove_prefix(kExited.size());
    code = number(take(rest, ' '));
  } else if (rest.starts_with(' ')) {
    if (const std::optional<int> signal = signal_of(rest.substr(1))) code = 128 + *signal;
  }
  if (!code) return;
  for (const int task : tasks) exit_codes[task] = clamped(*code);
}

}  // namespace

SlurmStage stage_of(const SlurmJobInfo& info) {
  const auto is = [&](const char* word) { return info.state == word; };
  if (info.state == "COMPLETED") return SlurmStage::succeeded;
  if (std::ranges::any_of(kWaiting, is)) return SlurmStage::waiting;
  if (std::ranges::any_of(kFailed, is)) return SlurmStage::failed;
  return SlurmStage::running;
}

std::optional<SlurmJobInfo> parse_scontrol(std::string_view line) {
  SlurmJobInfo out;
  out.state = field(line, "JobState");
  if (out.state.empty()) return std::nullopt;
  out.reason = field(line, "Reason");
  out.restarts = clamped(number(field(line, "Restarts")).value_or(0));
  out.exit_code = exit_code_of(field(line, "ExitCode"));
  out.nodes = node_list(field(line, "NodeList"));
  // Of a pending job these are estimates.
  const SlurmStage stage = stage_of(out);
  if (stage != SlurmStage::waiting) out.started = slurm_time(field(line, "StartTime"));
  if (stage == SlurmStage::succeeded || stage == SlurmStage::failed) out.ended = slurm_time(field(line, "EndTime"));
  return out;
}

std::optional<SlurmJobInfo> parse_sacct(std::string_view text) {
  std::string_view line = take(text, '\n');
  std::string_view state = take(line, '|');
  SlurmJobInfo out;
  out.state = std::string(take(state, ' '));  // "CANCELLED by 1000"
  if (out.state.empty() || line.empty()) return std::nullopt;
  out.exit_code = exit_code_of(take(line, '|'));
  out.started = slurm_time(take(line, '|'));
  out.ended = slurm_time(take(line, '|'));
  out.nodes = node_list(take(line, '|'));
  out.restarts = static_cast<int>(number(take(line, '|')).value_or(0));
  return out;
}

std::map<int, int> parse_task_exit_codes(std::string_view text) {
  constexpr std::string_view kBegin = "srun: error: ";
  std::map<int, int> out;
  while (!text.empty()) {
    const std::string_view line = take(text, '\n');
    if (line.starts_with(kBegin)) read_exit(line.substr(kBegin.size()), out);
  }
  return out;
}

std::string slurm_attempt_marker(int attempt) { return fmt::format("lockstep: attempt {}\n", attempt); }

std::string_view output_of_attempt(std::string_view text, int attempt) {
  const std::string mark = slurm_attempt_marker(attempt), next = slurm_attempt_marker(attempt + 1);
  const size_t begin = text.rfind(mark);
  if (begin == text.npos) return {};
  const size_t end = text.find(next, begin);
  return text.substr(begin, end == text.npos ? end : end - begin);
}

nlohmann::ordered_json job_info_to_json(const SlurmJobInfo& info) {
  const auto seconds = [](const std::optional<JobTime>& time) { return time ? time->time_since_epoch().count() : 0; };
  return {{"state", info.state},
          {"reason", info.reason},
          {"restarts", info.restarts},
          {"exit_code", info.exit_code},
          {"started", seconds(info.started)},
          {"ended", seconds(info.ended)},
          {"nodes", info.nodes}};
}

SlurmJobInfo job_info_from_json(const nlohmann::ordered_json& value) {
  const auto time = [&](const char* name) -> std::optional<JobTime> {
    const int64_t seconds = value.at(name).get<int64_t>();
    if (seconds == 0) return std::nullopt;
    return JobTime(std::chrono::seconds(seconds));
  };
  return {.state = value.at("state"),
          .reason = value.at("reason"),
          .restarts = integer_at<int>(value, "restarts"),
          .exit_code = integer_at<int>(value, "exit_code"),
          .started = time("started"),
          .ended = time("ended"),
          .nodes = value.at("nodes")};
}

}  // namespace lockstep
