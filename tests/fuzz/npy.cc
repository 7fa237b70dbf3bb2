// .npy files, as in `--dataset npy:X.npy,Y.npy`.
#include "data/tables/npy.h"

#include "fuzz/fuzz.h"
#include "fuzz/memory_file.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::MemoryFile file({data, size});
  detail::NpyHeader header;
  if (!fuzz::accepts([&] { header = detail::read_npy_header("input", file); })) return 0;
  const auto elements = static_cast<size_t>(count(header.shape) * detail::npy_size_of(header.element));
  fuzz::require(static_cast<size_t>(header.begin) + elements == size, "the header declares all bytes of the file");
  if (header.shape.empty() || elements == 0) return 0;
  const detail::NpyFile array("input", file);
  std::vector<std::byte> all(static_cast<size_t>(array.count() * array.example().bytes()));
  array.read_range(0, array.count(), all.data());
  std::vector<std::byte> last(static_cast<size_t>(array.example().bytes()));
  const int64_t row[] = {array.count() - 1};
  array.read(row, last.data());
  fuzz::require(std::equal(last.begin(), last.end(), all.end() - std::ssize(last)), "rows are parts of the whole");
  return 0;
}
