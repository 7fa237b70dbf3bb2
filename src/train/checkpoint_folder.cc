#include "train/checkpoint_folder.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <mutex>
#include <set>

#include "base/os/host_name.h"
#include "train/manifest.h"

namespace lockstep::detail {
namespace {

constexpr std::string_view kStepPrefix = "step_";
constexpr size_t kDigits = 8;

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

struct HiddenFolder {
  int64_t step = 0;
  bool old = false;
  std::string host;
  int64_t pid = 0;
};

// Parses the name of a hidden folder, as described in the header.
std::optional<HiddenFolder> parse_hidden(std::string_view name) {
  if (name.empty() || name[0] != '.') return std::nullopt;
  const size_t dot = name.find('.', 1);
  if (dot == std::string_view::npos) return std::nullopt;
  const std::optional<int64_t> step = parse_step_name(name.substr(1, dot - 1));
  const std::string_view kind = name.substr(dot + 1, 4);
  if (!step || (kind != "tmp-" && kind != "old-")) return std::nullopt;
  const std::string_view rest = name.substr(dot + 5);  // parsed from the end, because the host may contain dashes
  const size_t serial = rest.rfind('-');
  if (serial == std::string_view::npos || serial == 0) return std::nullopt;
  const size_t process = rest.rfind('-', serial - 1);
  if (process == std::string_view::npos || !parse_number(rest.substr(serial + 1))) return std::nullopt;
  const std::optional<int64_t> pid = parse_number(rest.substr(process + 1, serial - process - 1));
  if (!pid) return std::nullopt;
  return HiddenFolder{*step, kind == "old-", std::string(rest.substr(0, process)), *pid};
}

// The hidden folders that this process is using.
class FoldersInUse {
 public:
  static FoldersInUse& instance() {
    static FoldersInUse in_use;
    return in_use;
  }
  std::string add(int64_t step, const char* kind) {
    static std::atomic<int64_t> serial = 0;
    std::string name = fmt::format(".{}.{}-{}-{}-{}", step_name(step), kind, own_host_name(), ::getpid(), ++serial);
    const std::lock_guard lock(mutex_);
    names_.insert(name);
    return name;
  }
  void remove(const std::string& name) {
    const std::lock_guard lock(mutex_);
    names_.erase(name);
  }
  bool has(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return names_.count(name) > 0;
  }

 private:
  std::mutex mutex_;
  std::set<std::string> names_;
};

// Whether the folder's writer may still be running. A writer on another host is assumed dead, since only one may write.
bool in_use(const std::string& name, const HiddenFolder& hidden) {
  if (hidden.host != own_host_name()) return false;
  if (hidden.pid == ::getpid()) return FoldersInUse::instance().has(name);
  return hidden.pid > 0 && (::kill(static_cast<pid_t>(hidden.pid), 0) == 0 || errno != ESRCH);
}

bool has_manifest(FileSystem& files, const std::string& folder) { return files.exists(folder + "/" + kManifest); }

}  // namespace

std::string step_name(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

std::optional<int64_t> parse_step_name(std::string_view name) {
  if (name.substr(0, kStepPrefix.size()) != kStepPrefix || name.size() < kStepPrefix.size() + kDigits)
    return std::nullopt;
  const std::optional<int64_t> step = parse_number(name.substr(kStepPrefix.size()));
  return step && step_name(*step) == name ? step : std::nullopt;
}

std::vector<int64_t> list_steps(FileSystem& files, const std::string& dir, ListedSteps listed) {
  if (!files.exists(dir)) return {};
  std::set<int64_t> steps;
  for (const std::string& name : files.list(dir)) {
    const std::optional<int64_t> step = parse_step_name(name);
    const std::optional<HiddenFolder> hidden = parse_hidden(name);
    if (step && (listed == ListedSteps::all || has_manifest(files, dir + "/" + name))) steps.insert(*step);
    if (hidden && hidden->old && has_manifest(files, dir + "/" + name)) steps.insert(hidden->step);
  }
  return {steps.begin(), steps.end()};
}

std::string locate_checkpoint(FileSystem& files, const std::string& path) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  const std::optional<int64_t> step = parse_step_name(trimmed.substr(trimmed.find_last_of('/') + 1));
  const std::string dir = parent_dir(trimmed);
  if (!step || files.exists(trimmed) || !files.exists(dir)) return trimmed;
  for (const std::string& name : files.list(dir))
    if (const std::optional<HiddenFolder> hidden = parse_hidden(name);
        hidden && hidden->old && hidden->step == *step && has_manifest(files, dir + "/" + name))
      return dir + "/" + name;
  return trimmed;
}

std::vector<std::string> recover_folder(FileSystem& files, const std::string& dir) {
  std::vector<std::string> failures;
  const auto attempt = [&](const auto& action) {
    try {
      action();
    } catch (const IoError& error) {
      failures.push_back(error.what());
    }
  };
  std::vector<std::string> names;
  attempt([&] { names = files.list(dir); });
  for (const std::string& name : names) {
    const std::optional<HiddenFolder> hidden = parse_hidden(name);
    if (!hidden || in_use(name, *hidden)) continue;
    attempt([&] {
      const std::string path = dir + "/" + name, target = dir + "/" + step_name(hidden->step);
      if (hidden->old && !files.exists(target) && has_manifest(files, path)) {
        files.rename(path, target);
      } else {
        files.remove_tree(path);
      }
    });
  }
  return failures;
}

void remove_checkpoint(FileSystem& files, const std::string& dir, int64_t step) {
  const std::string name = FoldersInUse::instance().add(step, "tmp");
  try {
    files.rename(dir + "/" + step_name(step), dir + "/" + name);
    files.remove_tree(dir + "/" + name);
  } catch (...) {
    FoldersInUse::instance().remove(name);
    throw;
  }
  FoldersInUse::instance().remove(name);
}

StagedCheckpoint::StagedCheckpoint(FileSystem& files, const std::string& dir, int64_t step)
    : files_(files),
      dir_(dir),
      target_(dir + "/" + step_name(step)),
      name_(FoldersInUse::instance().add(step, "tmp")),
      old_name_(FoldersInUse::instance().add(step, "old")),
      path_(dir + "/" + name_) {}

StagedCheckpoint::~StagedCheckpoint() {
  if (!installed_) {
    try {
      files_.remove_tree(path_);
    } catch (const IoError&) {  // the save already failed with another error; the next save cleans up
    }
  }
  FoldersInUse::instance().remove(name_);
  FoldersInUse::instance().remove(old_name_);
}

std::vector<std::string> StagedCheckpoint::install() {
  const std::string old = dir_ + "/" + old_name_;
  const bool replaces = files_.exists(target_);
  if (replaces) files_.rename(target_, old);
  try {
    files_.rename(path_, target_);
  } catch (...) {
    try {
      if (replaces) files_.rename(old, target_);
    } catch (const IoError&) {  // readers also find it under its hidden name
    }
    throw;
  }
  installed_ = true;
  files_.sync_dir(dir_);
  if (!replaces) return {};
  try {
    files_.remove_tree(old);
    return {};
  } catch (const IoError& error) {
    return {error.what()};
  }
}

}  // namespace lockstep::detail
