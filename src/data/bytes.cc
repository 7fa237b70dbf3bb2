#include "data/bytes.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace lockstep::detail {

size_t MemoryStream::read(std::span<uint8_t> out) {
  const size_t n = std::min(out.size(), rest_.size());
  std::copy_n(rest_.begin(), n, out.begin());
  rest_ = rest_.subspan(n);
  return n;
}

FileStream::FileStream(FileSystem& files, std::string path)
    : files_(files), path_(std::move(path)), size_(files.size(path_)) {}

size_t FileStream::read(std::span<uint8_t> out) {
  const size_t n = files_.read(path_, offset_, out);
  offset_ += static_cast<int64_t>(n);
  size_ = std::max(size_, offset_);
  return n;
}

GzipStream::GzipStream(std::span<const uint8_t> compressed, std::string where)
    : rest_(compressed), where_(std::move(where)) {
  constexpr int kGzipOnly = 16;
  LOCKSTEP_CHECK(inflateInit2(&state_, MAX_WBITS + kGzipOnly) == Z_OK, "zlib initialization failed");
}

GzipStream::~GzipStream() { inflateEnd(&state_); }

size_t GzipStream::read(std::span<uint8_t> out) {
  constexpr size_t kMax = std::numeric_limits<uInt>::max();
  size_t done = 0;
  while (done < out.size() && !ended_) {
    const size_t in_size = std::min(rest_.size(), kMax), out_size = std::min(out.size() - done, kMax);
    state_.next_in = const_cast<Bytef*>(rest_.data());  // zlib's signature predates const
    state_.avail_in = static_cast<uInt>(in_size);
    state_.next_out = out.data() + done;
    state_.avail_out = static_cast<uInt>(out_size);
    const int status = inflate(&state_, Z_NO_FLUSH);
    rest_ = rest_.subspan(in_size - state_.avail_in);
    done += out_size - state_.avail_out;
    if (status == Z_STREAM_END) {
      if (rest_.empty()) {
        ended_ = true;
      } else if (inflateReset(&state_) != Z_OK || !is_gzip(rest_)) {  // a gzip file may have several members
        throw_error("read {}: {} bytes after the end of the compressed data are not gzip; fetch the file again", where_,
                    rest_.size());
      }
    } else if (status == Z_BUF_ERROR) {
      throw_error("read {}: the compressed data is truncated after {} bytes of contents; fetch the file again", where_,
                  state_.total_out);
    } else if (status != Z_OK) {
      throw_error("read {}: the compressed data is corrupt ({}); fetch the file again", where_,
                  state_.msg ? state_.msg : "wrong checksum or header");
    }
  }
  return done;
}

uint64_t GzipStream::max_remaining() const {
  // The best ratio of deflate is 258 bytes from 2 bits. The decoder may hold back one window.
  constexpr uint64_t kBestRatio = 1032, kWindow = 1 << 16;
  return ended_ ? 0 : kWindow + kBestRatio * rest_.size();
}

bool is_gzip(std::span<const uint8_t> bytes) { return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b; }

}  // namespace lockstep::detail
