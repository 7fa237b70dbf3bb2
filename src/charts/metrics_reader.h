// Reads a metrics.jsonl that a run may still write, in pieces. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "charts/metric_line.h"

namespace lockstep::charts {

class MetricsReader {
 public:
  // REQUIRES: `files` outlives the reader.
  MetricsReader(std::string path, FileSystem& files) : path_(std::move(path)), files_(files) {}

  struct Sink {
    // A line, and where it begins in the file.
    std::function<void(const MetricLine& line, int64_t offset)> line;
    // The file was replaced, as by a resumed run: all its lines follow again from the first one.
    std::function<void()> restart;
  };

  // Passes the complete lines that were appended since the last call, of at most about `most` bytes. Lines that are
  // damaged or longer than kMaxLineBytes are counted and skipped; a last line without newline is read when it is
  // complete. Returns whether the end of the file was reached. A missing file is an empty one. Throws IoError.
  bool read(const Sink& sink, int64_t most);

  int64_t offset() const { return offset_; }
  int64_t skipped_lines() const { return skipped_; }

 private:
  bool was_replaced(OpenFile& file, int64_t size);
  void start_again(const Sink& sink);
  void pass_lines(const Sink& sink);

  std::string path_;
  FileSystem& files_;
  int64_t offset_ = 0;  // behind the last complete line
  int64_t skipped_ = 0;
  bool in_long_line_ = false;
  std::string pending_;  // what follows in the file, within read()
  std::string last_;     // the bytes before offset_, to notice that the file was replaced
  MetricLine line_;
};

// Passes the lines of a part of a file from `offset` on, until `line` returns false or `most` bytes were read.
void read_metric_lines(FileSystem& files, const std::string& path, int64_t offset, int64_t most,
                       const std::function<bool(const MetricLine& line)>& line);

}  // namespace lockstep::charts
