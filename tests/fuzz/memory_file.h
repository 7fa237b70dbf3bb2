// A file system with one file, in memory. Used by one thread.
#pragma once

#include <algorithm>
#include <cerrno>

#include "base/file.h"

namespace lockstep::fuzz {

class MemoryFile final : public FileSystem {
 public:
  explicit MemoryFile(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  bool exists(const std::string&) override { return true; }
  int64_t size(const std::string&) override { return static_cast<int64_t>(bytes_.size()); }
  size_t read(const std::string&, int64_t offset, std::span<uint8_t> out) override {
    const size_t begin = std::min(static_cast<size_t>(offset), bytes_.size());
    const size_t count = std::min(out.size(), bytes_.size() - begin);
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(begin), count, out.begin());
    return count;
  }
  void write(const std::string& path, std::span<const uint8_t>) override { refuse("write", path); }
  void append(const std::string& path, std::span<const uint8_t>) override { refuse("append", path); }
  std::unique_ptr<FileWriter> create(const std::string& path) override { refuse("create", path); }
  void rename(const std::string& from, const std::string&) override { refuse("rename", from); }
  void remove(const std::string& path) override { refuse("remove", path); }
  void remove_tree(const std::string& path) override { refuse("remove", path); }
  void make_dirs(const std::string& path) override { refuse("make", path); }
  void sync_dir(const std::string& path) override { refuse("sync", path); }
  std::vector<std::string> list(const std::string& path) override { refuse("list", path); }

 private:
  [[noreturn]] static void refuse(const char* operation, const std::string& path) {
    throw_io_error(operation, path, EROFS);
  }

  std::span<const uint8_t> bytes_;
};

}  // namespace lockstep::fuzz
