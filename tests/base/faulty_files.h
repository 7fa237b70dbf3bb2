// The real file system with one operation that fails when told to, as a full or broken disk would.
#pragma once

#include <map>
#include <string>

#include "base/file.h"

namespace lockstep {

class FaultyFiles final : public FileSystem {
 public:
  // From now on the operation ("write", "rename", "read", …) fails with this errno; 0 heals it.
  void fail(const std::string& operation, int error) { faults_[operation] = error; }
  // How often the operation was asked for.
  int count(const std::string& operation) const {
    const auto at = counts_.find(operation);
    return at == counts_.end() ? 0 : at->second;
  }

  bool exists(const std::string& path) override { return step("exists", path), real().exists(path); }
  int64_t size(const std::string& path) override { return step("size", path), real().size(path); }
  size_t read(const std::string& path, int64_t offset, std::span<uint8_t> out) override {
    return step("read", path), real().read(path, offset, out);
  }
  void write(const std::string& path, std::span<const uint8_t> bytes) override {
    if (faults_["write"] != 0) real().write(path, bytes.first(bytes.size() / 2));  // a full disk keeps what fitted
    step("write", path);
    real().write(path, bytes);
  }
  void rename(const std::string& from, const std::string& to) override { step("rename", to), real().rename(from, to); }
  void remove(const std::string& path) override { step("remove", path), real().remove(path); }
  void make_dirs(const std::string& path) override { step("make_dirs", path), real().make_dirs(path); }
  void sync_dir(const std::string& path) override { step("sync_dir", path), real().sync_dir(path); }
  std::vector<std::string> list(const std::string& path) override { return step("list", path), real().list(path); }

 private:
  void step(const std::string& operation, const std::string& path) {
    ++counts_[operation];
    if (const int error = faults_[operation]; error != 0) throw_io_error(operation, path, error);
  }

  std::map<std::string, int> faults_, counts_;
};

}  // namespace lockstep
