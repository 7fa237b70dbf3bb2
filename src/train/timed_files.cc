#include "train/timed_files.h"

#include <utility>

namespace lockstep::detail {

std::optional<TimedFiles::Clock::time_point> TimedFiles::started() const {
  const std::lock_guard lock(mutex_);
  return started_;
}

void TimedFiles::set_started(std::optional<Clock::time_point> at) {
  const std::lock_guard lock(mutex_);
  started_ = at;
}

template <class F>
auto TimedFiles::timed(F f) {
  struct Current {
    TimedFiles& files;
    explicit Current(TimedFiles& timed) : files(timed) { files.set_started(Clock::now()); }
    ~Current() { files.set_started({}); }
  } current(*this);
  return f(files_);
}

class TimedFiles::Writer final : public FileWriter {
 public:
  Writer(TimedFiles& files, std::unique_ptr<FileWriter> writer) : files_(files), writer_(std::move(writer)) {}
  void write(std::span<const uint8_t> bytes) override {
    files_.timed([&](FileSystem&) { writer_->write(bytes); });
  }
  void finish() override {
    files_.timed([&](FileSystem&) { writer_->finish(); });
  }

 private:
  TimedFiles& files_;
  std::unique_ptr<FileWriter> writer_;
};

bool TimedFiles::exists(const std::string& path) {
  return timed([&](FileSystem& files) { return files.exists(path); });
}
int64_t TimedFiles::size(const std::string& path) {
  return timed([&](FileSystem& files) { return files.size(path); });
}
size_t TimedFiles::read(const std::string& path, int64_t offset, std::span<uint8_t> out) {
  return timed([&](FileSystem& files) { return files.read(path, offset, out); });
}
void TimedFiles::write(const std::string& path, std::span<const uint8_t> bytes) {
  timed([&](FileSystem& files) { files.write(path, bytes); });
}
void TimedFiles::append(const std::string& path, std::span<const uint8_t> bytes) {
  timed([&](FileSystem& files) { files.append(path, bytes); });
}
std::unique_ptr<FileWriter> TimedFiles::create(const std::string& path) {
  return std::make_unique<Writer>(*this, timed([&](FileSystem& files) { return files.create(path); }));
}
void TimedFiles::rename(const std::string& from, const std::string& to) {
  timed([&](FileSystem& files) { files.rename(from, to); });
}
void TimedFiles::remove(const std::string& path) {
  timed([&](FileSystem& files) { files.remove(path); });
}
void TimedFiles::remove_tree(const std::string& path) {
  timed([&](FileSystem& files) { files.remove_tree(path); });
}
void TimedFiles::make_dirs(const std::string& path) {
  timed([&](FileSystem& files) { files.make_dirs(path); });
}
void TimedFiles::sync_dir(const std::string& path) {
  timed([&](FileSystem& files) { files.sync_dir(path); });
}
std::vector<std::string> TimedFiles::list(const std::string& path) {
  return timed([&](FileSystem& files) { return files.list(path); });
}

}  // namespace lockstep::detail
