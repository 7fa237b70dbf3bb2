#include "train/log_file.h"

#include <chrono>
#include <cstdio>
#include <utility>

#include "base/print_stderr.h"
#include "base/text_bytes.h"

namespace lockstep::detail {
namespace {

constexpr double kFlushSeconds = 1;
constexpr size_t kFlushBytes = 1 << 20;
constexpr int64_t kMaxLogBytes = int64_t{16} << 30;  // of the file of a resumed run

}  // namespace

LogClock LogClock::real() {
  return {
      .unix_seconds =
          [] { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); },
      .steady_seconds =
          [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }};
}

LogFile::LogFile(std::string path, FileSystem& files, LogClock clock)
    : path_(std::move(path)), files_(files), clock_(std::move(clock)), flushed_at_(clock_.steady_seconds()) {
  files_.make_dirs(parent_dir(path_));
  files_.append(path_, {});
}

LogFile::~LogFile() {
  open_ = true;
  flush();
}

void LogFile::attempt(const std::function<void()>& action) {
  if (broken_) return;
  try {
    action();
  } catch (const std::runtime_error& error) {  // Error or IoError
    broken_ = true;
    print_stderr("lockstep: {}; training continues without writing {}\n", error.what(), path_);
  }
}

bool LogFile::due() const { return clock_.steady_seconds() - flushed_at_ >= kFlushSeconds; }

void LogFile::added() {
  if (buffer_.size() >= kFlushBytes || due()) flush();
}

void LogFile::flush() {
  if (!open_) return;
  flushed_at_ = clock_.steady_seconds();
  if (!buffer_.empty()) attempt([&] { files_.append(path_, text_bytes(buffer_)); });
  buffer_.clear();
}

void LogFile::rewrite(const Edit& edit) {
  attempt([&] {
    const std::vector<uint8_t> old = files_.read_file(path_, kMaxLogBytes);
    files_.write_atomic(path_, text_bytes(edit(std::string(old.begin(), old.end()))));
  });
}

void LogFile::open(const Edit& resume) {
  flush();  // of an earlier run with the same logger
  open_ = true;
  if (resume) return rewrite(resume);
  attempt([&] {
    if (files_.size(path_) > 0) files_.rename(path_, path_ + ".previous");
  });
}

void LogFile::edit(const Edit& edit) {
  flush();
  rewrite(edit);
}

}  // namespace lockstep::detail
