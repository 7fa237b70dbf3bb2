#include "charts/metrics_reader.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

namespace lockstep::charts {
namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 20;
constexpr size_t kCompared = 128;  // bytes that are compared to notice that a file was replaced

std::string read_bytes(OpenFile& file, int64_t offset, size_t size) {
  std::string out(size, '\0');
  out.resize(file.read(offset, {reinterpret_cast<uint8_t*>(out.data()), size}));
  return out;
}

}  // namespace

// A run that is resumed drops the steps after its checkpoint and appends; a new run starts a new file. In both cases the
// file is shorter, or other bytes are where this reader stopped: times of lines differ.
bool MetricsReader::was_replaced(OpenFile& file, int64_t size) {
  if (size < offset_) return true;
  const auto known = static_cast<int64_t>(last_.size());
  return read_bytes(file, offset_ - known, last_.size()) != last_;
}

void MetricsReader::start_again(const Sink& sink) {
  offset_ = skipped_ = 0;
  in_long_line_ = false;
  last_.clear();
  sink.restart();
}

void MetricsReader::pass_lines(const Sink& sink) {
  size_t begin = 0;
  for (size_t end; (end = pending_.find('\n', begin)) != pending_.npos; begin = end + 1) {
    const std::string_view text = std::string_view(pending_).substr(begin, end - begin);
    const int64_t at = offset_ + static_cast<int64_t>(begin);
    if (std::exchange(in_long_line_, false) || text.size() > kMaxLineBytes || !parse_metric_line(text, line_))
      ++skipped_;
    else
      sink.line(line_, at);
  }
  if (pending_.size() - begin > kMaxLineBytes) {
    in_long_line_ = true;
    begin = pending_.size();
  }
  if (begin == 0) return;
  offset_ += static_cast<int64_t>(begin);
  const size_t kept = std::min(begin, kCompared);
  last_.append(pending_, begin - kept, kept);
  if (last_.size() > kCompared) last_.erase(0, last_.size() - kCompared);
  pending_.erase(0, begin);
}

bool MetricsReader::read(const Sink& sink, int64_t most) {
  if (!files_.exists(path_)) {
    if (offset_ > 0) start_again(sink);
    return true;
  }
  const int64_t size = files_.size(path_);
  const std::unique_ptr<OpenFile> file = files_.open(path_);
  if (was_replaced(*file, size)) start_again(sink);
  const int64_t begin = offset_;
  bool at_end = false;
  // A line that is longer than `most` is read completely, so that every call gets on.
  for (int64_t done = 0; !at_end && (done < most || offset_ == begin);) {
    const int64_t at = offset_ + static_cast<int64_t>(pending_.size());
    const auto wanted = static_cast<size_t>(std::min(kChunkBytes, size - at));
    const std::string chunk = wanted > 0 ? read_bytes(*file, at, wanted) : "";
    at_end = chunk.size() < wanted || at + static_cast<int64_t>(wanted) == size;
    done += static_cast<int64_t>(chunk.size());
    pending_ += chunk;
    pass_lines(sink);
  }
  pending_.clear();  // read again by the next call: the run may have replaced an incomplete line
  return at_end;
}

void read_metric_lines(FileSystem& files, const std::string& path, int64_t offset, int64_t most,
                       const std::function<bool(const MetricLine& line)>& line) {
  const std::unique_ptr<OpenFile> file = files.open(path);
  std::string pending;
  MetricLine parsed;
  for (int64_t done = 0; done < most;) {
    const std::string chunk = read_bytes(*file, offset + done, kChunkBytes);
    done += static_cast<int64_t>(chunk.size());
    pending += chunk;
    size_t begin = 0;
    for (size_t end; (end = pending.find('\n', begin)) != pending.npos; begin = end + 1)
      if (parse_metric_line(std::string_view(pending).substr(begin, end - begin), parsed) && !line(parsed)) return;
    pending.erase(0, begin);
    if (static_cast<int64_t>(chunk.size()) < kChunkBytes || pending.size() > kMaxLineBytes) return;
  }
}

}  // namespace lockstep::charts
