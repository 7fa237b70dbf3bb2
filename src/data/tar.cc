#include "data/tar.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/check.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kTarBlock = 512;
using TarBlock = std::array<uint8_t, kTarBlock>;

std::string_view tar_text(const TarBlock& header, size_t begin, size_t size) {
  const std::string_view field(reinterpret_cast<const char*>(header.data()) + begin, size);
  return field.substr(0, field.find('\0'));
}

// An octal number that ends with a space or NUL. Throws Error for anything else.
int64_t tar_number(const TarBlock& header, size_t begin, size_t size, const std::string& where) {
  int64_t value = 0;
  const std::string_view text = tar_text(header, begin, size);
  size_t at = text.find_first_not_of(' ');
  if (at == text.npos) throw_error("read {}: the archive has an entry without a size; fetch it again", where);
  for (; at < text.size() && text[at] != ' '; ++at) {
    if (text[at] < '0' || text[at] > '7' || value > INT64_MAX / 16)
      throw_error("read {}: the archive has an entry with a wrong size or checksum; fetch it again", where);
    value = value * 8 + (text[at] - '0');
  }
  return value;
}

// The sum of all bytes of the header, with spaces for the checksum itself.
int64_t tar_checksum(const TarBlock& header) {
  int64_t sum = 8 * ' ';
  for (size_t i = 0; i < header.size(); ++i)
    if (i < 148 || i >= 156) sum += header[i];
  return sum;
}

void skip_bytes(ByteStream& archive, int64_t count, const std::string& where) {
  std::vector<uint8_t> ignored(1 << 16);
  while (count > 0) {
    const auto part = std::span(ignored).first(static_cast<size_t>(std::min<int64_t>(count, std::ssize(ignored))));
    if (archive.read(part) < part.size()) throw_error("read {}: the archive is truncated; fetch it again", where);
    count -= std::ssize(part);
  }
}

}  // namespace

void read_tar(ByteStream& archive, const std::string& where, const std::vector<std::string>& names, int64_t most,
              const std::function<void(const std::string& name, std::vector<uint8_t> contents)>& found) {
  for (TarBlock header = {};;) {
    const size_t got = archive.read(header);
    if (got == 0 || std::ranges::all_of(header, [](uint8_t byte) { return byte == 0; })) return;
    if (got < header.size()) throw_error("read {}: the archive is truncated; fetch it again", where);
    if (tar_number(header, 148, 8, where) != tar_checksum(header))
      throw_error("read {}: an entry of the archive has a wrong checksum; fetch it again", where);
    const int64_t size = tar_number(header, 124, 12, where), padding = (kTarBlock - size % kTarBlock) % kTarBlock;
    const std::string prefix(tar_text(header, 345, 155)), base(tar_text(header, 0, 100));
    const std::string name = prefix.empty() ? base : prefix + "/" + base;
    const bool regular = header[156] == '0' || header[156] == 0;
    if (!regular || std::find(names.begin(), names.end(), name) == names.end()) {
      skip_bytes(archive, size + padding, where);
      continue;
    }
    if (size > most)
      throw_error("read {}: {} has {} bytes, but at most {} are allowed; fetch it again", where, name, size, most);
    std::vector<uint8_t> contents(static_cast<size_t>(size));
    if (archive.read(contents) < contents.size())
      throw_error("read {}: the archive ends within {}; fetch it again", where, name);
    skip_bytes(archive, padding, where);
    found(name, std::move(contents));
  }
}

}  // namespace lockstep::detail
