// A file system that knows how long its current operation has been running, for deadlines. Safe from any thread.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace lockstep::detail {

class TimedFiles final : public FileSystem {
 public:
  using Clock = std::chrono::steady_clock;

  // REQUIRES: `files` outlives this object. One thread uses the files; any thread may call started().
  explicit TimedFiles(FileSystem& files) : files_(files) {}

  // When the current operation started; nullopt while there is none.
  std::optional<Clock::time_point> started() const;

  bool exists(const std::string& path) override;
  int64_t size(const std::string& path) override;
  size_t read(const std::string& path, int64_t offset, std::span<uint8_t> out) override;
  void write(const std::string& path, std::span<const uint8_t> bytes) override;
  void append(const std::string& path, std::span<const uint8_t> bytes) override;
  std::unique_ptr<FileWriter> create(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& path) override;
  void remove_tree(const std::string& path) override;
  void make_dirs(const std::string& path) override;
  void sync_dir(const std::string& path) override;
  std::vector<std::string> list(const std::string& path) override;

 private:
  class Writer;
  // Calls f(files_) as the current operation.
  template <class F>
  auto timed(F f);
  void set_started(std::optional<Clock::time_point> at);

  FileSystem& files_;
  mutable std::mutex mutex_;
  std::optional<Clock::time_point> started_;
};

}  // namespace lockstep::detail
