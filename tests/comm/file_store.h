// FileStore: a KeyStore for tests. Its keys are files in a folder: a temporary one, for threads and for processes that
// are forked later, or a given one. Safe from any thread.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/check.h"
#include "comm/key_store.h"

namespace lockstep::conformance {

class FileStore final : public KeyStore {
 public:
  FileStore() : owner_(getpid()) {
    std::string pattern = (std::filesystem::temp_directory_path() / "lockstep_keys_XXXXXX").string();
    LOCKSTEP_CHECK(mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
  }
  // Uses an existing folder, and does not remove it.
  explicit FileStore(std::filesystem::path folder) : owner_(-1), folder_(std::move(folder)) {}
  ~FileStore() override {
    std::error_code ignored;
    if (getpid() == owner_) std::filesystem::remove_all(folder_, ignored);
  }

  // Writes a temporary file and links it, so that the key appears atomically, and only if it is not set.
  void set(const std::string& key, const std::string& value) override {
    static std::atomic<int> count = 0;
    const std::filesystem::path final_path = path(key),
                                part = final_path.string() + fmt::format(".{}.{}", getpid(), ++count);
    std::ofstream(part, std::ios::binary) << value;
    const bool first = link(part.c_str(), final_path.c_str()) == 0;
    unlink(part.c_str());
    if (!first) throw_error("set: the key \"{}\" is already set; choose another", key);
  }

  std::string get(const std::string& key, std::chrono::nanoseconds timeout) override {
    const auto end =
        std::chrono::steady_clock::now() + std::min<std::chrono::nanoseconds>(timeout, std::chrono::hours(1));
    while (true) {
      if (std::ifstream file(path(key), std::ios::binary); file) {
        std::ostringstream text;
        text << file.rdbuf();
        return text.str();
      }
      if (std::chrono::steady_clock::now() >= end)
        throw CommTimeout(fmt::format("get: no process has set the key \"{}\"", key));
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  }

 private:
  std::filesystem::path path(const std::string& key) const {
    std::string name;
    for (const char c : key) name += c == '/' ? std::string("%") : std::string(1, c);
    return folder_ / name;
  }

  const pid_t owner_;
  std::filesystem::path folder_;
};

}  // namespace lockstep::conformance
