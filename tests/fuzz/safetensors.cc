// Headers of safetensors files, which any program may have written.
#include "train/safetensors.h"

#include "fuzz/fuzz.h"
#include "fuzz/memory_file.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::MemoryFile file({data, size});
  detail::SafetensorsHeader header;
  if (!fuzz::accepts([&] { header = detail::read_safetensors_header(file, "input.safetensors"); })) return 0;
  std::string written = detail::encode_safetensors(header.tensors, header.metadata);
  written.append(size - static_cast<size_t>(header.data_begin), '\0');
  fuzz::MemoryFile again_file({reinterpret_cast<const uint8_t*>(written.data()), written.size()});
  const detail::SafetensorsHeader again = detail::read_safetensors_header(again_file, "written.safetensors");
  fuzz::require(again.tensors == header.tensors && again.metadata == header.metadata,
                "a header that is written reads back the same");
  return 0;
}
