#include "data/images/labelled_images.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "lane/memory.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kByteClasses = 256;

DType label_type(int64_t classes) { return classes <= kByteClasses ? u8 : i32; }

class LabelledImageStream final : public Source {
 public:
  LabelledImageStream(std::string name, Shape image, std::vector<int32_t> labels, int64_t classes, ReadImages read)
      : name_(std::move(name)),
        image_(std::move(image)),
        labels_(std::move(labels)),
        label_type_(label_type(classes)),
        read_(std::move(read)) {}

  std::string name() const override { return name_; }
  int64_t count() const override { return std::ssize(labels_); }
  std::vector<Field> fields() const override { return {{"images", {u8, image_}}, {"labels", {label_type_, {}}}}; }
  void read(std::span<const int64_t> rows, std::span<std::byte* const> buffers) const override {
    read_(rows, buffers[0]);
    for (size_t i = 0; i < rows.size(); ++i) {
      const int32_t label = labels_[static_cast<size_t>(rows[i])];
      if (label_type_ == u8) {
        buffers[1][i] = static_cast<std::byte>(label);
      } else {
        std::memcpy(buffers[1] + i * sizeof(label), &label, sizeof(label));
      }
    }
  }

 private:
  std::string name_;
  Shape image_;
  std::vector<int32_t> labels_;
  DType label_type_;
  ReadImages read_;
};

}  // namespace

SourcePtr streamed_images(std::string name, const Shape& image, std::vector<int32_t> labels, int64_t classes,
                          ReadImages read) {
  return std::make_shared<LabelledImageStream>(std::move(name), image, std::move(labels), classes, std::move(read));
}

SourcePtr resident_images(std::string name, const Shape& image, std::vector<uint8_t> images,
                          const std::vector<int32_t>& labels, int64_t classes,
                          std::map<std::string, std::string> origins) {
  const int64_t count = std::ssize(labels);
  Shape shape = image;
  shape.insert(shape.begin(), count);
  return array_source({{"images", Array::from(std::move(images), shape)}, {"labels", label_array(labels, classes)}},
                      std::move(name), std::move(origins));
}

Array label_array(const std::vector<int32_t>& labels, int64_t classes) {
  const int64_t count = std::ssize(labels);
  if (label_type(classes) == u8) return Array::from(std::vector<uint8_t>(labels.begin(), labels.end()), {count});
  return Array::from(labels, {count});
}

bool should_stream(const std::string& setting, int64_t bytes) {
  if (setting == "on") return true;
  if (setting == "off") return false;
  if (setting == "auto") return bytes > machine_memory() / 2;
  throw_error("data: stream is \"{}\"; choose auto, on or off", setting);
}

}  // namespace lockstep::detail
