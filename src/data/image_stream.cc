#include "data/image_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "data/dataset.h"
#include "data/idx.h"

namespace lockstep::detail {

ImageStream::ImageStream(const ImageFiles& paths, FileSystem& files) : path_(paths.images_path) {
  const IdxHeader images = read_idx_header(paths.images_path, files);
  const IdxHeader labels = read_idx_header(paths.labels_path, files);
  check_pair("loader", paths.images_path, images.shape, paths.labels_path, labels.shape);
  if (images.shape.size() != 3)
    throw_error("loader: {} has shape {}, with channels; open it with open_image_data()", paths.images_path,
                to_string(images.shape));
  file_ = files.open(paths.images_path);
  begin_ = images.size;
  rows_ = images.shape[1];
  cols_ = images.shape[2];
  labels_ = read_idx(paths.labels_path, files, &labels.shape).bytes;
  classes_ = *std::max_element(labels_.begin(), labels_.end()) + 1;
}

void ImageStream::read(std::span<const int64_t> examples, uint8_t* images, uint8_t* labels) const {
  const int64_t pixels = rows_ * cols_;
  for (size_t first = 0, end = 0; first < examples.size(); first = end) {
    for (end = first + 1; end < examples.size() && examples[end] == examples[end - 1] + 1;) ++end;
    const std::span<uint8_t> run(images + static_cast<int64_t>(first) * pixels,
                                 (end - first) * static_cast<size_t>(pixels));
    if (file_->read(begin_ + examples[first] * pixels, run) < run.size())
      throw IoError(
          fmt::format("read {}: it ends before image {} of {} although it was complete when opened; do not change the "
                      "file while it is in use",
                      path_, examples[end - 1], count()));
  }
  for (size_t i = 0; i < examples.size(); ++i) labels[i] = labels_[static_cast<size_t>(examples[i])];
}

}  // namespace lockstep::detail
