// Sources of labelled images, in memory or read on demand. Immutable, safe from any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lockstep/source.h"

namespace lockstep::detail {

// A set of images with labels. `shape` is that of an image.
struct ImageSet {
  SourcePtr source;
  Shape shape;
  int64_t classes = 0;
  std::vector<std::string> class_names = {};
};

// Reads the images of these rows. Called from any thread.
using ReadImages = std::function<void(std::span<const int64_t> rows, std::byte* out)>;

// A source that calls `read` for images and keeps the labels in memory. REQUIRES: labels are in [0, classes).
SourcePtr streamed_images(std::string name, const Shape& image, std::vector<int32_t> labels, int64_t classes,
                          ReadImages read);

// A source of images in memory. REQUIRES: as many images as labels, and labels in [0, classes).
// `origins`: see Source::origin().
SourcePtr resident_images(std::string name, const Shape& image, std::vector<uint8_t> images,
                          const std::vector<int32_t>& labels, int64_t classes,
                          std::map<std::string, std::string> origins = {});

// Class numbers as an array: u8 for up to 256 classes, else i32.
Array label_array(const std::vector<int32_t>& labels, int64_t classes);

// Whether images of this many bytes stay on disk, by a setting "auto", "on" or "off". Throws Error for other settings.
bool should_stream(const std::string& setting, int64_t bytes);

}  // namespace lockstep::detail
