#include "jobs/local/pod_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <span>
#include <sstream>

#include "base/text_bytes.h"

namespace lockstep {
namespace {

int64_t size_of(FileSystem& files, const std::string& path) {
  try {
    return files.exists(path) ? files.size(path) : 0;
  } catch (const IoError&) {
    return 0;
  }
}

int64_t dropped_bytes(FileSystem& files, const std::string& path) {
  try {
    const std::string file = path + ".dropped";
    if (!files.exists(file)) return 0;
    const std::vector<uint8_t> bytes = files.read_file(file, 64);
    return std::strtoll(std::string(bytes.begin(), bytes.end()).c_str(), nullptr, 10);
  } catch (const std::runtime_error&) {
    return 0;
  }
}

}  // namespace

PodLog::PodLog(FileSystem& files, std::string path, int64_t limit, Clock clock)
    : files_(files),
      path_(std::move(path)),
      limit_(std::max(limit, kMinLogLimit)),
      size_(size_of(files_, path_)),
      clock_(clock ? std::move(clock) : [] { return static_cast<int64_t>(std::time(nullptr)); }) {}

void PodLog::write(std::string_view text) {
  // Split long text, so that no file exceeds the limit.
  const auto most = static_cast<size_t>(limit_ / 2);
  for (; text.size() > most; text.remove_prefix(most)) append(text.substr(0, most));
  if (!text.empty()) append(text);
}

void PodLog::finish() {
  if (missing_bytes_ > 0) append("");
}

void PodLog::append(std::string_view text) {
  std::string note;
  if (missing_bytes_ > 0)
    note = fmt::format("{}lockstep: {} lines ({} bytes) are missing here: {}\n", inside_line_ ? "\n" : "",
                       missing_lines_, missing_bytes_, reason_);
  const std::string both = note + std::string(text);
  const int64_t before = size_;
  try {
    if (size_ > 0 && size_ + static_cast<int64_t>(both.size()) > limit_) rotate();
    note_time();
    files_.append(path_, text_bytes(both));
    size_ += static_cast<int64_t>(both.size());
    missing_lines_ = missing_bytes_ = 0;
    inside_line_ = !both.ends_with('\n');
  } catch (const IoError& error) {
    reason_ = error.what();
    // A part may have been written. A truncated note has wrong numbers; the next note counts again.
    const int64_t rotated_or_same = size_ == before ? before : size_;
    const auto written = static_cast<size_t>(
        std::clamp<int64_t>(size_of(files_, path_) - rotated_or_same, 0, static_cast<int64_t>(both.size())));
    size_ = rotated_or_same + static_cast<int64_t>(written);
    if (written > 0) inside_line_ = both[written - 1] != '\n';
    if (written >= note.size()) missing_lines_ = missing_bytes_ = 0;  // the note was written completely
    const std::string_view lost = text.substr(std::min(text.size(), written > note.size() ? written - note.size() : 0));
    missing_lines_ += std::count(lost.begin(), lost.end(), '\n');
    missing_bytes_ += static_cast<int64_t>(lost.size());
  }
}

// Notes the time of the output that follows, once per second. Without the note, `logs --since` shows earlier output too.
void PodLog::note_time() {
  const int64_t now = clock_();
  if (now == noted_time_) return;
  noted_time_ = now;
  try {
    files_.append(path_ + ".times", text_bytes(fmt::format("{} {}\n", now, size_)));
  } catch (const IoError&) {
  }
}

void PodLog::rotate() {
  const int64_t oldest = size_of(files_, path_ + ".1");
  if (oldest > 0) {
    try {
      files_.write_atomic(path_ + ".dropped", text_bytes(std::to_string(dropped_bytes(files_, path_) + oldest)));
    } catch (const IoError&) {  // the count is only informative
    }
  }
  files_.rename(path_, path_ + ".1");
  size_ = 0;
  noted_time_ = 0;
  try {
    files_.rename(path_ + ".times", path_ + ".1.times");
  } catch (const IoError&) {  // the log matters more than the times
  }
}

std::optional<int64_t> offset_since(const std::string& path, int64_t time) {
  FileSystem& files = FileSystem::real();
  try {
    if (!files.exists(path + ".times")) return std::nullopt;
    const std::vector<uint8_t> bytes = files.read_file(path + ".times");
    std::istringstream lines(std::string(bytes.begin(), bytes.end()));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream numbers(line);
      int64_t at = 0, offset = 0;
      if (numbers >> at >> offset && at >= time) return offset;
    }
  } catch (const std::runtime_error&) {  // removed meanwhile
  }
  return std::nullopt;
}

std::string dropped_note(const std::string& path) {
  const int64_t bytes = dropped_bytes(FileSystem::real(), path);
  if (bytes == 0) return "";
  return fmt::format("lockstep: {} bytes before this line were dropped: the log was longer than LOCKSTEP_LOG_LIMIT\n",
                     bytes);
}

}  // namespace lockstep
