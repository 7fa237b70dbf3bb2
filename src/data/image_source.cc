#include <limits>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "data/image_stream.h"
#include "lockstep/data.h"

namespace lockstep {
namespace {

Shape shape_of_set(const ImageDataset& set) {
  if (set.channels == 1) return {set.count, set.rows, set.cols};
  return {set.count, set.rows, set.cols, set.channels};
}

// Throws Error unless sizes and labels are consistent.
void check_set(const ImageDataset& set) {
  if (set.count < 1) throw_error("loader: the set has {} examples; give at least one", set.count);
  if (set.count > std::numeric_limits<int32_t>::max())
    throw_error(
        "loader: the set has {} examples, too many for the 32-bit row numbers of a set in memory; stream it from disk "
        "with image_source(ImageFiles)",
        set.count);
  const Shape shape = shape_of_set(set);
  if (set.rows < 1 || set.cols < 1 || set.channels < 1 || static_cast<int64_t>(set.images.size()) != count(shape))
    throw_error("loader: {} bytes of images for shape {}; give one byte per pixel", set.images.size(),
                to_string(shape));
  if (static_cast<int64_t>(set.labels.size()) != set.count)
    throw_error("loader: {} labels for {} images; each image needs one label", set.labels.size(), set.count);
  for (size_t i = 0; i < set.labels.size(); ++i)
    if (set.labels[i] >= set.classes)
      throw_error("loader: label {} at position {}, but the set has {} classes; labels are 0 to {}", set.labels[i], i,
                  set.classes, set.classes - 1);
}

class StreamedImages final : public Source {
 public:
  StreamedImages(const ImageFiles& paths, FileSystem& files) : stream_(paths, files) {}

  std::string name() const override { return stream_.path(); }
  int64_t count() const override { return stream_.count(); }
  std::vector<Field> fields() const override {
    return {{"images", {u8, {stream_.rows(), stream_.cols()}}}, {"labels", {u8, {}}}};
  }
  void read(std::span<const int64_t> rows, std::span<std::byte* const> buffers) const override {
    stream_.read(rows, reinterpret_cast<uint8_t*>(buffers[0]), reinterpret_cast<uint8_t*>(buffers[1]));
  }

 private:
  detail::ImageStream stream_;
};

}  // namespace

SourcePtr image_source(ImageDataset set, const ImageFiles& origins) {
  check_set(set);
  const Shape shape = shape_of_set(set);
  return array_source({{"images", Array::from(std::move(set.images), shape)},
                       {"labels", Array::from(std::move(set.labels), {set.count})}},
                      "images", {{"images", origins.images_path}, {"labels", origins.labels_path}});
}

SourcePtr image_source(const ImageFiles& paths, FileSystem* files) {
  return std::make_shared<StreamedImages>(paths, files ? *files : FileSystem::real());
}

}  // namespace lockstep
