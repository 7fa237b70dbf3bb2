#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/names.h"
#include "base/printable.h"
#include "cli/predict_inputs.h"
#include "data/images/image_folder.h"
#include "data/images/resize.h"
#include "data/tables/npy.h"

namespace lockstep::cli {
namespace {

constexpr size_t kMaxFolderDepth = 32;

// The mean of the channels as the eye weighs them.
detail::DecodedImage to_gray(const detail::DecodedImage& image) {
  detail::DecodedImage out{.rows = image.rows, .cols = image.cols, .channels = 1, .pixels = {}};
  out.pixels.reserve(static_cast<size_t>(image.rows * image.cols));
  for (size_t i = 0; i + 2 < image.pixels.size(); i += 3)
    out.pixels.push_back(static_cast<uint8_t>(
        (299 * image.pixels[i] + 587 * image.pixels[i + 1] + 114 * image.pixels[i + 2] + 500) / 1000));
  return out;
}

detail::DecodedImage to_color(const detail::DecodedImage& image) {
  detail::DecodedImage out{.rows = image.rows, .cols = image.cols, .channels = 3, .pixels = {}};
  out.pixels.reserve(3 * image.pixels.size());
  for (const uint8_t value : image.pixels) out.pixels.insert(out.pixels.end(), 3, value);
  return out;
}

class FileInputs final : public InputSet {
 public:
  FileInputs(std::vector<std::string> paths, ImageForm form) : paths_(std::move(paths)), form_(form) {}
  int64_t count() const override { return std::ssize(paths_); }
  std::string name(int64_t i) const override { return paths_[static_cast<size_t>(i)]; }
  void read(int64_t i, std::byte* out, Conversions& conversions) const override {
    const std::string& path = paths_[static_cast<size_t>(i)];
    const std::vector<uint8_t> bytes = FileSystem::real().read_file(path, detail::kMaxImageBytes);
    form_.convert(detail::decode_image(bytes, path), out, conversions);
  }

 private:
  std::vector<std::string> paths_;
  ImageForm form_;
};

// One image in memory.
class ImageBytes final : public InputSet {
 public:
  ImageBytes(std::string bytes, std::string name, ImageForm form)
      : bytes_(std::move(bytes)), name_(std::move(name)), form_(form) {}
  int64_t count() const override { return 1; }
  std::string name(int64_t) const override { return name_; }
  void read(int64_t, std::byte* out, Conversions& conversions) const override {
    const std::span bytes(reinterpret_cast<const uint8_t*>(bytes_.data()), bytes_.size());
    form_.convert(detail::decode_image(bytes, name_), out, conversions);
  }

 private:
  std::string bytes_, name_;
  ImageForm form_;
};

class NpyImages final : public InputSet {
 public:
  NpyImages(const std::string& path, ImageForm form) : file_(path), form_(form) {
    const Shape& shape = file_.header().shape;
    if (file_.header().element != detail::NpyElement::u1 || (shape.size() != 3 && shape.size() != 4) ||
        (shape.size() == 4 && shape[3] != 1 && shape[3] != 3))
      throw_error("predict: {} has {} {}; give images as uint8 (n, rows, cols) or (n, rows, cols, channels)", path,
                  detail::npy_name(file_.header().element), to_string(shape));
  }
  int64_t count() const override { return file_.count(); }
  std::string name(int64_t i) const override { return fmt::format("{}[{}]", file_.path(), i); }
  void read(int64_t i, std::byte* out, Conversions& conversions) const override {
    const Shape& shape = file_.header().shape;
    detail::DecodedImage image{
        .rows = shape[1], .cols = shape[2], .channels = shape.size() == 4 ? shape[3] : 1, .pixels = {}};
    image.pixels.resize(static_cast<size_t>(image.rows * image.cols * image.channels));
    file_.read({&i, 1}, reinterpret_cast<std::byte*>(image.pixels.data()));
    form_.convert(std::move(image), out, conversions);
  }

 private:
  detail::NpyFile file_;
  ImageForm form_;
};

void add_folder(const std::string& folder, size_t depth, std::vector<std::string>& out) {
  if (depth > kMaxFolderDepth)
    throw_error("predict: {} is {} folders deep; give the folder that has the images", folder, depth);
  for (const std::string& name : FileSystem::real().list(folder)) {
    if (name.starts_with('.')) continue;
    const std::string path = folder + (folder.ends_with('/') ? "" : "/") + name;
    if (detail::is_folder(path)) {
      add_folder(path, depth + 1, out);
    } else if (detail::is_image_name(name)) {
      out.push_back(path);
    }
  }
}

// Whether this is the content of a PNG or JPEG file.
bool is_image(std::string_view bytes) { return bytes.starts_with("\x89PNG") || bytes.starts_with("\xff\xd8\xff"); }

std::vector<std::string> listed_paths(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) out.push_back(std::move(line));
    at = end + 1;
  }
  if (out.empty()) throw_error("predict: standard input is empty; give an image, or one path per line");
  return out;
}

}  // namespace

std::vector<std::string> Conversions::notes() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [change, n] : counts_) out.push_back(fmt::format("{}: {}", change, counted(n, "input")));
  return out;
}

ImageForm image_form(const ModelInfo& info, const TrainConfig& config, bool invert) {
  return {.rows = info.rows,
          .cols = info.cols,
          .channels = info.channels,
          .invert = invert,
          .expects_dark = config.dataset == "mnist" || config.dataset == "fashion-mnist"};
}

void ImageForm::convert(detail::DecodedImage image, std::byte* out, Conversions& conversions) const {
  if (image.channels == 3 && channels == 1) {
    conversions.add("converted from color to gray");
    image = to_gray(image);
  } else if (image.channels == 1 && channels == 3) {
    conversions.add("converted from gray to color");
    image = to_color(image);
  }
  LOCKSTEP_CHECK(image.channels == channels, "{} channels instead of {}", image.channels, channels);
  if (image.rows != rows || image.cols != cols) {
    const bool cropped = image.rows * cols != image.cols * rows;
    conversions.add(fmt::format("scaled to {} x {} pixels{}", rows, cols, cropped ? ", cropped at the center" : ""));
    image = detail::resize_and_crop(std::move(image), rows, cols);
  }
  if (invert) {
    conversions.add("inverted");
    for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(255 - value);
  }
  const auto sum = std::accumulate(image.pixels.begin(), image.pixels.end(), int64_t{0});
  if (expects_dark && sum > 160 * std::ssize(image.pixels))
    conversions.add(invert ? "mostly bright after --invert, but the model was trained on light shapes on a dark ground"
                           : "mostly bright, but the model was trained on light shapes on a dark ground; try --invert");
  std::memcpy(out, image.pixels.data(), image.pixels.size());
}

InputSets open_images(const std::vector<std::string>& paths, const ImageForm& form) {
  InputSets out;
  std::vector<std::string> images;  // consecutive files
  const auto flush = [&] {
    if (!images.empty()) out.push_back(std::make_unique<FileInputs>(std::exchange(images, {}), form));
  };
  const auto add = [&](const std::string& path) {
    if (detail::is_folder(path)) {
      const size_t before = images.size();
      add_folder(path, 0, images);
      if (images.size() == before)
        throw_error("predict: {} has no PNG or JPEG images (.png, .jpg, .jpeg); give a folder with images", path);
    } else if (path.ends_with(".npy")) {
      flush();
      out.push_back(std::make_unique<NpyImages>(path, form));
    } else {
      images.push_back(path);
    }
  };
  for (const std::string& path : paths) {
    if (path == "-") {
      std::string text = read_user_file("-", detail::kMaxImageBytes);
      if (is_image(text)) {
        flush();
        out.push_back(std::make_unique<ImageBytes>(std::move(text), "standard input", form));
        continue;
      }
      for (const std::string& listed : listed_paths(text)) add(listed);
    } else {
      add(path);
    }
  }
  flush();
  return out;
}

}  // namespace lockstep::cli
