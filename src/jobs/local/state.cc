#include "jobs/local/state.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>

#include "base/check.h"
#include "base/json.h"
#include "jobs/model/object.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

std::string value_of(const detail::Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

std::string home_of(const detail::Environment& environment) {
  if (const std::string home = value_of(environment, "HOME"); !home.empty()) return home;
  const passwd* user = ::getpwuid(::getuid());
  if (!user) throw_error("jobs: HOME is not set, and user {} has no home folder; set LOCKSTEP_STATE_DIR", ::getuid());
  return user->pw_dir;
}

// The names in a folder; empty if the folder does not exist.
std::vector<std::string> names_in(const std::string& folder) {
  FileSystem& files = FileSystem::real();
  return files.exists(folder) ? files.list(folder) : std::vector<std::string>();
}

PodPhase phase_of(const std::string& name) {
  for (const PodPhase each : {PodPhase::pending, PodPhase::running, PodPhase::succeeded, PodPhase::failed})
    if (name_of(each) == name) return each;
  throw_error("read a job: \"{}\" is not a pod phase", name);
}

}  // namespace

void add_event(LocalJob& job, JobEvent event) {
  job.events.push_back(std::move(event));
  if (job.events.size() > kMaxEvents) job.events.erase(job.events.begin());
}

Json to_json(const LocalJob& job) {
  Json events = Json::array(), phases = Json::array();
  for (const JobEvent& event : job.events) events.push_back(event_to_json(event));
  for (const PodPhase phase : job.reported_phases) phases.push_back(std::string(name_of(phase)));
  return {{"job", job_to_json(job.job)},
          {"folder", job.folder},
          {"program", job.program},
          {"environment", job.environment},
          {"events", std::move(events)},
          {"deleting", job.deleting},
          {"reported_attempt", job.reported_attempt},
          {"reported_phases", std::move(phases)}};
}

LocalJob local_job_from_json(const Json& value) {
  try {
    LocalJob out{.job = job_from_json(value.at("job")),
                 .folder = value.at("folder"),
                 .program = value.at("program"),
                 .environment = value.at("environment"),
                 .events = {},
                 .deleting = value.at("deleting"),
                 .reported_attempt = integer_at<int>(value, "reported_attempt"),
                 .reported_phases = {}};
    for (const Json& event : value.at("events")) out.events.push_back(event_from_json(event));
    for (const Json& phase : value.at("reported_phases")) out.reported_phases.push_back(phase_of(phase));
    return out;
  } catch (const Json::exception& error) {
    throw_error("read a job: {}", error.what());
  }
}

std::string StateDir::default_path(const detail::Environment& environment) {
  if (const std::string path = value_of(environment, "LOCKSTEP_STATE_DIR"); !path.empty()) return path;
  if (const std::string path = value_of(environment, "XDG_STATE_HOME"); !path.empty()) return path + "/lockstep";
  return home_of(environment) + "/.local/state/lockstep";
}

StateDir::StateDir(const std::string& path) {
  // The canonical path, so that all processes use the same names.
  std::error_code error;
  FileSystem::real().make_dirs(path);
  path_ = std::filesystem::canonical(path, error).string();
  if (error) throw_io_error("open folder", path, error.value());
  struct stat info = {};
  if (::stat(path_.c_str(), &info) != 0) throw_io_error("open folder", path_, errno);
  if (info.st_uid != ::geteuid())
    throw_error("jobs: the folder {} belongs to user {}, not to the current user {}; set LOCKSTEP_STATE_DIR", path_,
                info.st_uid, ::geteuid());
  if ((info.st_mode & 0777) != 0700 && ::chmod(path_.c_str(), 0700) != 0) throw_io_error("protect", path_, errno);
}

std::string StateDir::attempt_folder(const Job& job, int attempt) const {
  return fmt::format("{}/attempt-{}", job_folder(job), attempt);
}

PodFolder StateDir::pod_folder(const Job& job, int attempt, int index) const {
  return PodFolder(attempt_folder(job, attempt) + "/" + pod_name(job, index));
}

std::vector<PodStatus> StateDir::read_pod_statuses(const Job& job, int attempt) const {
  std::vector<PodStatus> out;
  if (!FileSystem::real().exists(attempt_folder(job, attempt))) return out;
  for (int i = 0; i < job.spec.replicas; ++i) out.push_back(read_pod_status(pod_folder(job, attempt, i)));
  return out;
}

std::vector<int> StateDir::attempts(const Job& job) const {
  constexpr std::string_view kPrefix = "attempt-";
  std::vector<int> out;
  for (const std::string& name : names_in(job_folder(job))) {
    if (!name.starts_with(kPrefix)) continue;
    int number = 0;
    const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), number);
    if (error == std::errc() && end == name.data() + name.size()) out.push_back(number);
  }
  std::ranges::sort(out);
  return out;
}

std::optional<LocalJob> StateDir::read(const std::string& namespace_name, const std::string& name) const {
  const auto is_name = [](const std::string& text) {
    return !text.empty() && text[0] != '.' && text.find('/') == text.npos;
  };
  if (!is_name(namespace_name) || !is_name(name)) return std::nullopt;
  const std::string path = namespace_folder(namespace_name) + "/" + name + "/job.json";
  if (!FileSystem::real().exists(path)) return std::nullopt;
  try {
    return local_job_from_json(read_json(path));
  } catch (const IoError&) {
    if (!FileSystem::real().exists(path)) return std::nullopt;  // deleted in the meantime
    throw;
  }
}

void StateDir::write(const LocalJob& job, FileSystem& files) const {
  write_json(files, job_folder(job.job) + "/job.json", to_json(job));
}

bool StateDir::needs_daemon(const LocalJob& job) const {
  const bool finished = is_finished(job.job);
  if (job.deleting || (finished && job.job.spec.ttl_after_finished)) return true;
  if (!finished && !(job.job.spec.suspend && job_state(job.job) == "Suspended")) return true;
  for (const int attempt : attempts(job.job))
    for (const PodStatus& status : read_pod_statuses(job.job, attempt))
      if (status.state != PodState::ended || status.shim) return true;
  return false;
}

std::vector<StateDir::Name> StateDir::list(const std::string& namespace_name) const {
  std::vector<Name> out;
  for (const std::string& each :
       namespace_name.empty() ? names_in(jobs_folder()) : std::vector<std::string>{namespace_name})
    for (const std::string& name : names_in(namespace_folder(each)))
      if (!name.starts_with('.') && FileSystem::real().exists(namespace_folder(each) + "/" + name + "/job.json"))
        out.push_back({each, name});
  return out;
}

}  // namespace lockstep
