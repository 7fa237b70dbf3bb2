// RunStore: the runs below a folder, and the metrics of those that are watched, kept up to date by a thread. Safe from
// any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "charts/run_metrics.h"

namespace lockstep::board {

// What the list of runs shows, read from the beginning and the end of the metrics file.
struct RunLine {
  std::string id, name, title;
  std::string state;  // of run.json, else "ended", "running" or "stopped"
  int64_t step = 0, total_steps = 0, bytes = 0;
  double started = 0, updated = 0;                     // seconds since 1970
  std::vector<std::pair<std::string, double>> values;  // of the last step
  bool operator==(const RunLine&) const = default;
};

class RunStore {
 public:
  static constexpr size_t kMaxRuns = 10'000;
  static constexpr size_t kMaxLoaded = 32;  // the metrics of more runs are dropped, least recently used first

  // The runs are the folders in `folder`, and the folder itself, that have metrics. It may be created later.
  explicit RunStore(std::string folder);
  ~RunStore();
  RunStore(const RunStore&) = delete;
  RunStore& operator=(const RunStore&) = delete;

  std::vector<RunLine> list();

  // Calls `use` with the metrics of a run as far as they are read, and keeps reading them. Returns false for an id of no
  // run.
  struct Loaded {
    charts::RunMetrics& metrics;
    const RunLine& line;
    bool complete;                                    // everything that was in the file has been read
    const std::map<std::string, std::string>& files;  // see file_versions()
  };
  bool with_run(const std::string& id, const std::function<void(const Loaded&)>& use);

  // The folder of a run; empty for an id of no run.
  std::string folder_of(const std::string& id);

  // Keeps the metrics of these runs loaded. Unknown ids are ignored.
  void touch(const std::vector<std::string>& ids);

  // What changed last: of the list (key ""), and of each run.
  struct Changes {
    int64_t list = 0;
    std::map<std::string, int64_t> runs;
    bool operator==(const Changes&) const = default;
  };
  Changes changes();
  // Waits until something has changed since `seen`, at most for `limit`.
  void wait(const Changes& seen, std::chrono::milliseconds limit);

 private:
  struct Run {
    std::mutex mutex;                          // of metrics
    std::string folder, path;                  // of the run, and of its metrics file
    std::map<std::string, std::string> files;  // see file_versions(); of loaded runs
    RunLine line;
    std::filesystem::file_time_type state_written;  // of run.json when `line` was read
    std::unique_ptr<charts::RunMetrics> metrics;
    bool complete = false;
    int64_t version = 0;
    std::chrono::steady_clock::time_point used;
  };
  using RunPointer = std::shared_ptr<Run>;

  void watch();
  void scan();
  bool scan_run(const std::string& name, const std::string& folder, const std::string& file);
  bool read_more();
  void look_for_files();
  void drop_unused();
  Changes changes_locked() const;

  const std::string folder_;
  std::mutex mutex_;  // of all below, but not of the metrics of a Run
  std::condition_variable changed_;
  std::map<std::string, RunPointer> runs_;
  int64_t list_version_ = 0;
  bool stop_ = false, wake_ = false;
  std::thread thread_;
};

}  // namespace lockstep::board
