#include "jobs/local/pod_folder.h"

#include <signal.h>
#include <sys/stat.h>

#include <charconv>
#include <fstream>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "base/text_bytes.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

int64_t seconds_of(JobTime time) { return time.time_since_epoch().count(); }
JobTime time_of(const Json& value) { return JobTime(std::chrono::seconds(value.get<int64_t>())); }

// Reads and parses a JSON file; nullopt if it does not exist.
template <class T, class Parse>
std::optional<T> read_if_exists(const std::string& path, const Parse& parse) {
  if (!FileSystem::real().exists(path)) return std::nullopt;
  const Json value = read_json(path);
  try {
    return parse(value);
  } catch (const Json::exception& error) {
    throw_error("read {}: {}; delete the job and apply it again", path, json_error_text(error));
  }
}

bool has_marker(pid_t pid, const PodFolder& folder) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  const std::string marker = pod_marker(folder);
  // Not by stream iterators, which throw if the process ends meanwhile.
  for (std::string variable; std::getline(in, variable, '\0');)
    if (variable == marker) return true;
  return false;
}

}  // namespace

JobTime current_time() { return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()); }

void write_json(FileSystem& files, const std::string& path, const Json& value) {
  const std::string text = value.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  files.write_atomic(path, text_bytes(text));
}

Json read_json(const std::string& path) {
  constexpr int64_t kMaxBytes = 64 << 20;
  const std::vector<uint8_t> bytes = FileSystem::real().read_file(path, kMaxBytes);
  try {
    return parse_json<Json>({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "it", {.bytes = kMaxBytes});
  } catch (const Error& error) {
    throw_error("read {}: {}; delete the job and apply it again", path, error.what());
  }
}

std::string PodFolder::state() const {
  std::string out = path_;
  for (int level = 0; level < 5; ++level) out = parent_dir(out);
  return out;
}

void PodFolder::write(const ReplicaSpec& spec, FileSystem& files) const {
  write_json(files, path_ + "/spec.json",
             {{"argv", spec.argv},
              {"environment", spec.environment},
              {"folder", spec.folder},
              {"cpus", spec.cpus},
              {"grace", spec.grace.count()},
              {"log_limit", spec.log_limit},
              {"port", spec.port}});
}

void PodFolder::write(const StartRecord& started, FileSystem& files) const {
  write_json(files, path_ + "/started.json",
             {{"time", seconds_of(started.time)}, {"session", started.session}, {"process", started.process}});
}

void PodFolder::write(const EndRecord& ended, FileSystem& files) const {
  write_json(files, path_ + "/ended.json",
             {{"time", seconds_of(ended.time)},
              {"code", ended.code ? Json(*ended.code) : Json()},
              {"reason", ended.reason},
              {"message", ended.message}});
}

ReplicaSpec PodFolder::spec() const {
  const std::string path = path_ + "/spec.json";
  const auto spec = read_if_exists<ReplicaSpec>(path, [](const Json& value) {
    return ReplicaSpec{.argv = value.at("argv"),
                       .environment = value.at("environment"),
                       .folder = value.at("folder"),
                       .cpus = value.at("cpus"),
                       .grace = std::chrono::seconds(integer_at<int>(value, "grace")),
                       .log_limit = integer_at<int64_t>(value, "log_limit"),
                       .port = value.contains("port") ? integer_at<int>(value, "port") : 0};
  });
  if (!spec) throw_io_error("read", path, ENOENT);
  return *spec;
}

std::optional<StartRecord> PodFolder::started() const {
  return read_if_exists<StartRecord>(path_ + "/started.json", [](const Json& value) {
    return StartRecord{time_of(value.at("time")), integer_at<pid_t>(value, "session"),
                       integer_at<pid_t>(value, "process")};
  });
}

std::optional<EndRecord> PodFolder::ended() const {
  return read_if_exists<EndRecord>(path_ + "/ended.json", [](const Json& value) {
    const Json& code = value.at("code");
    return EndRecord{time_of(value.at("time")),
                     code.is_null() ? std::nullopt : std::optional<int>(integer_at<int>(value, "code")),
                     value.at("reason"), value.at("message")};
  });
}

PodStatus read_pod_status(const PodFolder& folder) {
  PodStatus out;
  // Check the lock first: a shim writes its files before it releases the lock.
  out.shim = lock_holder(folder.lock_path());
  out.ended = folder.ended();
  out.started = folder.started();
  if (out.ended)
    out.state = PodState::ended;
  else if (out.shim)
    out.state = out.started ? PodState::running : PodState::starting;
  else
    out.state = out.started ? PodState::lost : PodState::waiting;
  return out;
}

Pod to_pod(const PodStatus& status, int index, int attempt) {
  Pod pod;
  pod.index = index;
  pod.attempt = attempt;
  if (status.started) {
    pod.started = status.started->time;
    pod.process = status.started->process;
  }
  switch (status.state) {
    case PodState::waiting:
    case PodState::starting:
      break;
    case PodState::running:
      pod.phase = PodPhase::running;
      break;
    case PodState::lost:
      pod.phase = PodPhase::failed;
      pod.reason = "Lost";
      pod.process = 0;
      break;
    case PodState::ended:
      pod.phase = status.ended->code == 0 ? PodPhase::succeeded : PodPhase::failed;
      pod.exit_code = status.ended->code;
      pod.reason = status.ended->reason;
      pod.ended = status.ended->time;
      pod.process = 0;
      break;
  }
  return pod;
}

std::string pod_marker(const PodFolder& folder) { return "LOCKSTEP_POD_FOLDER=" + folder.path(); }

std::vector<pid_t> find_leftover_processes(const PodFolder& folder) {
  std::vector<pid_t> out;
  for (const std::string& name : FileSystem::real().list("/proc")) {
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error == std::errc() && end == name.data() + name.size() && has_marker(pid, folder)) out.push_back(pid);
  }
  return out;
}

void kill_leftover_process(pid_t pid, const PodFolder& folder) {
  const LockHolder process{pid, open_process(pid)};
  if (has_marker(pid, folder)) process.send(SIGKILL);
}

}  // namespace lockstep
