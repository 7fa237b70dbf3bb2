#include "data/images/image_sets.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "data/dataset.h"
#include "data/idx.h"
#include "data/row_file.h"
#include "data/tables/npy_integers.h"

namespace lockstep::detail {
namespace {

int64_t class_count(const std::vector<int32_t>& labels) {
  return int64_t{*std::max_element(labels.begin(), labels.end())} + 1;
}

// The shape of an image in a file (n, rows, cols) or (n, rows, cols, channels); one channel has no dimension.
Shape image_shape(const Shape& file) {
  Shape out(file.begin() + 1, file.end());
  if (out.size() == 3 && out[2] == 1) out.pop_back();
  return out;
}

std::vector<uint8_t> read_npy_bytes(const NpyFile& file) {
  try {
    std::vector<uint8_t> out(static_cast<size_t>(count(file.header().shape)));
    file.read_range(0, file.count(), reinterpret_cast<std::byte*>(out.data()));
    return out;
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(fmt::format("read {}: out of memory for its {} bytes; stream it from disk: --stream on",
                                  file.path(), count(file.header().shape)));
  }
}

}  // namespace

ImageSet to_image_set(ImageDataset set, std::string name, const ImageFiles& origins) {
  const Shape shape = set.channels == 1 ? Shape{set.rows, set.cols} : Shape{set.rows, set.cols, set.channels};
  const std::vector<int32_t> labels(set.labels.begin(), set.labels.end());
  return {.source = resident_images(std::move(name), shape, std::move(set.images), labels, set.classes,
                                    {{"images", origins.images_path}, {"labels", origins.labels_path}}),
          .shape = shape,
          .classes = set.classes};
}

ImageSet stream_idx_pair(const ImageFiles& paths) {
  FileSystem& files = FileSystem::real();
  const IdxHeader images = read_idx_header(paths.images_path, files);
  const IdxHeader labels = read_idx_header(paths.labels_path, files);
  check_pair("data", paths.images_path, images.shape, paths.labels_path, labels.shape);
  const std::vector<uint8_t> bytes = read_idx(paths.labels_path, files, &labels.shape).bytes;
  std::vector<int32_t> numbers(bytes.begin(), bytes.end());
  ImageSet set{.source = nullptr, .shape = image_shape(images.shape), .classes = class_count(numbers)};
  const auto rows =
      std::make_shared<const RowFile>(paths.images_path, images.size, count(images.shape) / images.shape[0], files);
  set.source = streamed_images(paths.images_path, set.shape, std::move(numbers), set.classes,
                               [rows](std::span<const int64_t> wanted, std::byte* out) { rows->read(wanted, out); });
  return set;
}

ImageSet open_npy_images(const std::string& images_path, const std::string& labels_path, const std::string& stream) {
  const auto images = std::make_shared<const NpyFile>(images_path);
  const NpyFile labels(labels_path);
  const NpyHeader& header = images->header();
  if (header.element != NpyElement::u1)
    throw_error("data: {} has elements {}; images are uint8, 0 to 255: save (255 * x).astype('uint8')", images_path,
                npy_name(header.element));
  check_pair("data", images_path, header.shape, labels_path, labels.header().shape);
  std::vector<int32_t> numbers = read_npy_labels(labels);
  ImageSet set{.source = nullptr, .shape = image_shape(header.shape), .classes = class_count(numbers)};
  if (should_stream(stream, count(header.shape))) {
    set.source = streamed_images(images_path, set.shape, std::move(numbers), set.classes,
                                 [images](std::span<const int64_t> rows, std::byte* out) { images->read(rows, out); });
  } else {
    set.source = resident_images(images_path, set.shape, read_npy_bytes(*images), numbers, set.classes);
  }
  return set;
}

void check_same_images(const ImageSet& train, ImageSet& other, const std::string& what) {
  if (other.shape != train.shape || other.classes > train.classes)
    throw_error(
        "data: the {} {} has {} images in {} classes, but the training set {} has {} images in {}; use files of one "
        "data set",
        what, other.source->name(), to_string(other.shape), other.classes, train.source->name(), to_string(train.shape),
        train.classes);
  other.classes = train.classes;
}

}  // namespace lockstep::detail
