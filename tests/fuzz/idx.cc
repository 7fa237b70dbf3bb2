// IDX files, raw or compressed, as in `--data-dir`.
#include "data/idx.h"

#include "fuzz/fuzz.h"
#include "fuzz/memory_file.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  fuzz::MemoryFile file(bytes);
  IdxData read;
  const bool raw = fuzz::accepts([&] { read_idx_header("input", file); });
  const bool whole = fuzz::accepts([&] { read = read_idx("input", file); });
  if (raw) fuzz::require(whole, "a raw file with a good header can be read");
  if (!whole) return 0;
  const std::vector<uint8_t> written = encode_idx(read);
  const IdxData again = parse_idx(written, "written");
  fuzz::require(again.shape == read.shape && again.bytes == read.bytes, "what is written reads back the same");
  if (raw) fuzz::require(std::ranges::equal(written, bytes), "a raw file is written as it was read");
  return 0;
}
