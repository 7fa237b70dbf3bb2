// ByteStream: sequential input from memory, from a file, or inflated from gzip. Not thread-safe.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <span>
#include <string>

#include "base/file.h"

namespace lockstep::detail {

class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Fills the span. Returns the number of bytes read, fewer than requested only at the end.
  virtual size_t read(std::span<uint8_t> out) = 0;

  // An upper bound on the remaining bytes, which bounds what a reader needs to allocate.
  virtual uint64_t max_remaining() const = 0;
};

class MemoryStream final : public ByteStream {
 public:
  // REQUIRES: the bytes outlive the stream.
  explicit MemoryStream(std::span<const uint8_t> bytes) : rest_(bytes) {}
  size_t read(std::span<uint8_t> out) override;
  uint64_t max_remaining() const override { return rest_.size(); }

 private:
  std::span<const uint8_t> rest_;
};

class FileStream final : public ByteStream {
 public:
  FileStream(FileSystem& files, std::string path);
  size_t read(std::span<uint8_t> out) override;
  uint64_t max_remaining() const override { return static_cast<uint64_t>(size_ - offset_); }

 private:
  FileSystem& files_;
  std::string path_;
  int64_t size_;
  int64_t offset_ = 0;
};

// The inflated contents of gzip data. Corrupt or truncated input throws Error naming `where`.
class GzipStream final : public ByteStream {
 public:
  // REQUIRES: the compressed bytes outlive the stream.
  GzipStream(std::span<const uint8_t> compressed, std::string where);
  ~GzipStream() override;
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  size_t read(std::span<uint8_t> out) override;
  uint64_t max_remaining() const override;

 private:
  std::span<const uint8_t> rest_;
  std::string where_;
  z_stream state_ = {};
  bool ended_ = false;
};

// Whether the bytes start with the magic number of gzip.
bool is_gzip(std::span<const uint8_t> bytes);

}  // namespace lockstep::detail
