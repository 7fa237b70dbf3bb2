// The real file system with injected failures, as on a full or broken disk. Safe from any
// thread.
#pragma once

#include <cerrno>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/file.h"

namespace lockstep {

class FaultyFiles : public FileSystem {
 public:
  // From now on the operation ("write", "rename", "read", …) fails with this errno; 0: succeeds again.
  void fail(const std::string& operation, int error) {
    const std::lock_guard lock(mutex_);
    faults_[operation] = error;
  }
  // The k-th next call of the operation (k >= 1) fails with this errno; later calls succeed.
  void fail_at(const std::string& operation, int k, int error) {
    const std::lock_guard lock(mutex_);
    once_[operation] = {counts_[operation] + k, error};
  }
  // The k-th next call of any operation and all later calls fail, as if the process had been killed there;
  // 0: they succeed again.
  void die_at(int k) {
    const std::lock_guard lock(mutex_);
    dies_at_ = k == 0 ? 0 : total_ + k;
  }

  // The number of calls of the operation, and of all operations. Writers call "create", "write" (per piece) and
  // "sync".
  int count(const std::string& operation) const {
    const std::lock_guard lock(mutex_);
    const auto at = counts_.find(operation);
    return at == counts_.end() ? 0 : at->second;
  }
  std::map<std::string, int> counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }
  int total() const {
    const std::lock_guard lock(mutex_);
    return total_;
  }

  bool exists(const std::string& path) override { return step("exists", path), real().exists(path); }
  int64_t size(const std::string& path) override { return step("size", path), real().size(path); }
  size_t read(const std::string& path, int64_t offset, std::span<uint8_t> out) override {
    return step("read", path), real().read(path, offset, out);
  }
  void write(const std::string& path, std::span<const uint8_t> bytes) override {
    const int error = next("write");
    real().write(path, error != 0 ? bytes.first(bytes.size() / 2) : bytes);  // a full disk keeps the bytes that fit
    if (error != 0) throw_io_error("write", path, error);
  }
  void append(const std::string& path, std::span<const uint8_t> bytes) override {
    const int error = next("append");
    real().append(path, error != 0 ? bytes.first(bytes.size() / 2) : bytes);
    if (error != 0) throw_io_error("append to", path, error);
  }
  std::unique_ptr<FileWriter> create(const std::string& path) override {
    return step("create", path), std::make_unique<Writer>(*this, path);
  }
  void rename(const std::string& from, const std::string& to) override { step("rename", to), real().rename(from, to); }
  void remove(const std::string& path) override { step("remove", path), real().remove(path); }
  void remove_tree(const std::string& path) override { step("remove_tree", path), real().remove_tree(path); }
  void make_dirs(const std::string& path) override { step("make_dirs", path), real().make_dirs(path); }
  void sync_dir(const std::string& path) override { step("sync_dir", path), real().sync_dir(path); }
  std::vector<std::string> list(const std::string& path) override { return step("list", path), real().list(path); }

 private:
  class Writer final : public FileWriter {
   public:
    Writer(FaultyFiles& files, std::string path)
        : files_(files), path_(std::move(path)), file_(FileSystem::real().create(path_)) {}
    void write(std::span<const uint8_t> bytes) override {
      const int error = files_.next("write");
      file_->write(error != 0 ? bytes.first(bytes.size() / 2) : bytes);
      if (error != 0) throw_io_error("write", path_, error);
    }
    void finish() override { files_.step("sync", path_), file_->finish(); }

   private:
    FaultyFiles& files_;
    std::string path_;
    std::unique_ptr<FileWriter> file_;
  };

  // Counts a call and returns the errno it fails with, or 0.
  int next(const std::string& operation) {
    const std::lock_guard lock(mutex_);
    const int call = ++counts_[operation];
    ++total_;
    if (dies_at_ != 0 && total_ >= dies_at_) return EIO;
    if (const auto [at, error] = once_[operation]; at == call) return error;
    return faults_[operation];
  }
  void step(const std::string& operation, const std::string& path) {
    if (const int error = next(operation); error != 0) throw_io_error(operation, path, error);
  }

  mutable std::mutex mutex_;
  std::map<std::string, int> faults_, counts_;
  std::map<std::string, std::pair<int, int>> once_;  // which call, and its errno
  int total_ = 0, dies_at_ = 0;
};

}  // namespace lockstep
