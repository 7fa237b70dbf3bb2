// RunMetrics: the metrics of a run in bounded memory, read from its metrics.jsonl while the run may still write it. Used
// by one thread at a time.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "charts/metrics_reader.h"
#include "charts/series.h"

namespace lockstep::charts {

struct MetricsLimits {
  size_t buckets = size_t{1} << 19;  // of all series together, as far as kMinBuckets allows
  size_t tags = 20'000;              // further ones are counted, but not stored
  size_t messages = 1000;            // the newest ones
};
inline constexpr size_t kMinBuckets = 128, kMaxBuckets = size_t{1} << 16;  // of a series

// When the run started, or was resumed after `step`.
struct RunStart {
  int64_t step = 0;
  double time = 0;
};

struct RunMessage {
  int64_t step = 0;
  double time = 0;
  bool alarm = false;
  std::string text;
};

class RunMetrics {
 public:
  using SeriesByTag = std::map<std::string, Series, std::less<>>;
  using Scalars = std::vector<std::pair<std::string, double>>;

  // REQUIRES: `files` outlives the object.
  RunMetrics(std::string path, FileSystem& files, MetricsLimits limits = {});
  RunMetrics(const RunMetrics&) = delete;
  RunMetrics& operator=(const RunMetrics&) = delete;

  // Reads what was appended, at most about `most` bytes. Returns whether the end of the file was reached. Throws
  // IoError.
  bool update(int64_t most = INT64_MAX);

  // Increases with every line that was read, and if the file was replaced.
  int64_t version() const { return version_; }
  // Increases if the file was replaced: earlier series are invalid.
  int64_t generation() const { return generation_; }

  const SeriesByTag& series() const { return series_; }
  const std::vector<RunStart>& starts() const { return starts_; }
  const std::vector<RunMessage>& messages() const { return messages_; }
  // Of the newest start line.
  const std::string& title() const { return title_; }
  const std::vector<std::pair<std::string, std::string>>& config() const { return config_; }
  int64_t total_steps() const { return total_steps_; }
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  // The metrics of the end line; empty while the run is not over.
  bool has_ended() const { return has_ended_; }
  const Scalars& result() const { return result_; }

  int64_t last_step() const { return last_step_; }
  double first_time() const { return starts_.empty() ? first_time_ : starts_.front().time; }
  double last_time() const { return last_time_; }
  int64_t skipped_lines() const { return reader_.skipped_lines(); }
  int64_t ignored_tags() const { return static_cast<int64_t>(ignored_.size()); }
  int64_t bytes_read() const { return reader_.offset(); }

  // The buckets of a metric between two steps, at most `columns`. Where the stored buckets are too coarse, reads at most
  // `most` bytes of the file again. Empty for an unknown metric. Throws IoError.
  std::vector<Bucket> query(std::string_view tag, int64_t from, int64_t to, int64_t columns,
                            int64_t most = int64_t{32} << 20);

 private:
  struct Place {  // where the lines of a step begin in the file
    int64_t step = 0, offset = 0;
  };

  void restart();
  void add(const MetricLine& line, int64_t offset);
  void add_scalars(const MetricLine& line);
  Series* series_of(std::string_view tag, size_t position);
  std::vector<Bucket> read_buckets(std::string_view tag, int64_t from, int64_t to, int64_t columns, int64_t most);

  std::string path_;
  FileSystem& files_;
  MetricsLimits limits_;
  MetricsReader reader_;
  SeriesByTag series_;
  std::vector<std::pair<const std::string*, Series*>> order_;  // tags as in the last line: most lines are alike
  std::map<std::string, int, std::less<>> ignored_;
  size_t capacity_ = kMaxBuckets;
  std::vector<RunStart> starts_;
  std::vector<RunMessage> messages_;
  std::vector<Place> places_;
  std::string title_;
  std::vector<std::pair<std::string, std::string>> config_;
  Scalars result_;
  bool has_ended_ = false;
  int64_t total_steps_ = 0, steps_per_epoch_ = 0, last_step_ = 0;
  double first_time_ = 0, last_time_ = 0;
  int64_t version_ = 0, generation_ = 0;
};

}  // namespace lockstep::charts
