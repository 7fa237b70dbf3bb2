#include "board/run_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/digest.h"
#include "base/start_thread.h"
#include "base/text_bytes.h"
#include "board/run_files.h"
#include "board/run_line.h"
#include "charts/metrics_folder.h"

namespace lockstep::board {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPoll{40};
constexpr std::chrono::seconds kScan{2};
constexpr std::chrono::minutes kUnused{5};
constexpr int64_t kSliceBytes = int64_t{16} << 20;

double unix_now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// An id says nothing about paths and is stable: pages may keep it.
std::string id_of(const std::string& name) { return sha256_hex(text_bytes(name)).substr(0, 16); }

}  // namespace

RunStore::RunStore(std::string folder) : folder_(std::move(folder)) {
  scan();
  thread_ = start_thread([this] { watch(); });
}

RunStore::~RunStore() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RunStore::scan() {
  FileSystem& files = FileSystem::real();
  std::map<std::string, std::pair<std::string, std::string>> found;  // name -> folder, metrics file
  try {
    const auto add = [&](const std::string& name, const std::string& path) {
      const std::string file = charts::find_metrics_file(files, path);
      if (!file.empty() && found.size() < kMaxRuns) found[name] = {path, file};
    };
    std::error_code ignored;
    if (std::filesystem::is_directory(folder_, ignored)) {
      add(charts::run_name(folder_), folder_);
      for (const std::string& name : files.list(folder_))
        if (name != "log" && std::filesystem::is_directory(folder_ + "/" + name, ignored))
          add(name, folder_ + "/" + name);
    }
  } catch (const IoError&) {  // the folder was removed while it was read: the next scan shows what is left
  }
  std::set<std::string> ids;
  bool changed = false;
  for (const auto& [name, paths] : found) {
    ids.insert(id_of(paths.first));
    try {
      changed |= scan_run(name, paths.first, paths.second);
    } catch (const IoError&) {  // removed meanwhile
    }
  }
  const std::lock_guard lock(mutex_);
  changed |= std::erase_if(runs_, [&](const auto& each) { return !ids.contains(each.first); }) > 0;
  if (!changed) return;
  ++list_version_;
  changed_.notify_all();
}

// Reads the line of a run, if its files have changed or it may have stopped. Returns whether the line is another one.
bool RunStore::scan_run(const std::string& name, const std::string& folder, const std::string& file) {
  std::error_code missing;
  const auto state_written = std::filesystem::last_write_time(folder + "/run.json", missing);
  const int64_t bytes = FileSystem::real().size(file);
  RunLine line;
  line.id = id_of(folder);
  line.name = name;
  {
    const std::lock_guard lock(mutex_);
    const auto known = runs_.find(line.id);
    if (known != runs_.end() && known->second->path == file && known->second->line.bytes == bytes &&
        known->second->state_written == state_written && known->second->line.state != "running")
      return false;
  }
  read_run_line(FileSystem::real(), folder, file, unix_now(), line);
  const std::lock_guard lock(mutex_);
  RunPointer& run = runs_[line.id];
  if (!run) run = std::make_shared<Run>();
  const bool changed = run->path != file || run->line != line;
  run->folder = folder;
  run->path = file;
  run->state_written = state_written;
  run->line = std::move(line);
  return changed;
}

// Reads a slice of each loaded run. Returns whether more is left.
bool RunStore::read_more() {
  std::vector<RunPointer> loaded;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, run] : runs_)
      if (run->metrics) loaded.push_back(run);
  }
  bool more = false;
  for (const RunPointer& run : loaded) {
    bool complete = true, changed = false;
    {
      const std::lock_guard lock(run->mutex);
      if (!run->metrics) continue;  // dropped meanwhile
      const int64_t before = run->metrics->version();
      try {
        complete = run->metrics->update(kSliceBytes);
      } catch (const IoError&) {  // removed while it was read
      }
      changed = run->metrics->version() != before || complete != run->complete;
      run->complete = complete;
    }
    more |= !complete;
    if (!changed) continue;
    const std::lock_guard lock(mutex_);
    ++run->version;
    changed_.notify_all();
  }
  return more;
}

// Notices files that loaded runs have written besides their metrics.
void RunStore::look_for_files() {
  std::vector<std::pair<RunPointer, std::string>> loaded;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, run] : runs_)
      if (run->metrics) loaded.emplace_back(run, run->folder);
  }
  for (const auto& [run, folder] : loaded) {
    auto files = file_versions(folder);
    const std::lock_guard lock(mutex_);
    if (files == run->files) continue;
    run->files = std::move(files);
    ++run->version;
    changed_.notify_all();
  }
}

void RunStore::drop_unused() {
  const std::lock_guard lock(mutex_);
  std::vector<RunPointer> loaded;
  for (const auto& [id, run] : runs_)
    if (run->metrics) loaded.push_back(run);
  std::sort(loaded.begin(), loaded.end(), [](const auto& a, const auto& b) { return a->used > b->used; });
  for (size_t i = 0; i < loaded.size(); ++i) {
    if (i < kMaxLoaded && Clock::now() - loaded[i]->used < kUnused) continue;
    const std::lock_guard metrics_lock(loaded[i]->mutex);
    loaded[i]->metrics.reset();
    loaded[i]->complete = false;
  }
}

void RunStore::watch() {
  Clock::time_point scanned = Clock::now();
  for (;;) {
    const bool more = read_more();
    if (Clock::now() - scanned >= kScan) {
      scan();
      look_for_files();
      drop_unused();
      scanned = Clock::now();
    }
    std::unique_lock lock(mutex_);
    if (!more) changed_.wait_for(lock, kPoll, [&] { return stop_ || wake_; });
    if (stop_) return;
    wake_ = false;
  }
}

std::vector<RunLine> RunStore::list() {
  const std::lock_guard lock(mutex_);
  std::vector<RunLine> out;
  for (const auto& [id, run] : runs_) out.push_back(run->line);
  std::sort(out.begin(), out.end(), [](const RunLine& a, const RunLine& b) {
    return a.started != b.started ? a.started > b.started : a.name < b.name;
  });
  return out;
}

bool RunStore::with_run(const std::string& id, const std::function<void(const Loaded&)>& use) {
  RunPointer run;
  RunLine line;
  std::map<std::string, std::string> files;
  {
    const std::lock_guard lock(mutex_);
    const auto found = runs_.find(id);
    if (found == runs_.end()) return false;
    run = found->second;
    run->used = Clock::now();
    line = run->line;
    if (!run->metrics) {
      const std::lock_guard metrics_lock(run->mutex);
      run->metrics = std::make_unique<charts::RunMetrics>(run->path, FileSystem::real());
      run->files = file_versions(run->folder);
    }
    files = run->files;
  }
  const std::lock_guard lock(run->mutex);
  if (!run->metrics) return false;  // dropped by another thread meanwhile
  if (!run->complete) run->complete = run->metrics->update(kSliceBytes);
  use({*run->metrics, line, run->complete, files});
  return true;
}

std::string RunStore::folder_of(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(id);
  return found == runs_.end() ? "" : found->second->folder;
}

void RunStore::touch(const std::vector<std::string>& ids) {
  const std::lock_guard lock(mutex_);
  for (const std::string& id : ids)
    if (const auto found = runs_.find(id); found != runs_.end()) found->second->used = Clock::now();
}

RunStore::Changes RunStore::changes_locked() const {
  Changes out{.list = list_version_, .runs = {}};
  for (const auto& [id, run] : runs_) out.runs[id] = run->version;
  return out;
}

RunStore::Changes RunStore::changes() {
  const std::lock_guard lock(mutex_);
  return changes_locked();
}

void RunStore::wait(const Changes& seen, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [&] { return stop_ || changes_locked() != seen; });
}

}  // namespace lockstep::board
