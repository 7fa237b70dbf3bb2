// PNG and JPEG files, as in `--dataset images:DIR`.
#include "data/images/image_codec.h"

#include "fuzz/fuzz.h"
#include "fuzz/memory_file.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  fuzz::MemoryFile file(bytes);
  detail::ImageHeader header;
  const bool accepted = fuzz::accepts([&] { header = detail::read_image_header("input", file); });
  detail::DecodedImage image;
  if (!fuzz::accepts([&] { image = detail::decode_image(bytes, "input"); })) return 0;
  fuzz::require(accepted, "a decoded image has a header");
  fuzz::require(image.rows == header.rows && image.cols == header.cols && image.channels == header.channels,
                "the header has the size of the image");
  fuzz::require(std::ssize(image.pixels) == image.rows * image.cols * image.channels, "the image has all pixels");
  return 0;
}
