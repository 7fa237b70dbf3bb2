// gzip streams. The first byte sets the size of reads.
#include "data/bytes.h"
#include "fuzz/fuzz.h"

using namespace lockstep;

namespace {

// Inflates at most 16 MiB in pieces of `piece` bytes.
std::vector<uint8_t> inflated(std::span<const uint8_t> bytes, size_t piece) {
  constexpr size_t kMax = 16 << 20;
  std::vector<uint8_t> out, buffer(piece);
  try {
    detail::GzipStream stream(bytes, "input");
    for (size_t got = piece; got == piece && out.size() < kMax;) {
      const uint64_t most = stream.max_remaining();
      got = stream.read(buffer);
      fuzz::require(got <= most, "read() returns at most max_remaining() bytes");
      out.insert(out.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(got));
    }
  } catch (const Error&) {
  }
  return out;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const uint8_t> bytes(data + 1, size - 1);
  const std::vector<uint8_t> whole = inflated(bytes, 1 << 16), pieces = inflated(bytes, size_t{1} + data[0]);
  const size_t common = std::min(whole.size(), pieces.size());
  fuzz::require(std::equal(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(common), pieces.begin()),
                "the size of pieces does not change the contents");
  return 0;
}
