#include "data/images/image_folder.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/printable.h"
#include "data/images/image_codec.h"
#include "data/images/parallel_indices.h"
#include "data/images/resize.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kHeadersPerThread = 64, kImagesPerThread = 4;

std::vector<std::string> class_folders(const std::string& folder, FileSystem& files) {
  std::vector<std::string> out;
  for (const std::string& name : files.list(folder))
    if (!name.starts_with('.') && is_folder(folder + "/" + name)) out.push_back(name);
  if (out.empty())
    throw_error("data: {} has no folders; put the images of each class into a folder with its name: {}/CLASS/NAME.png",
                printable(folder), printable(folder));
  return out;
}

// The files with the size and the number of channels that all decoded images have.
struct CheckedFolder {
  ImageFolder files;
  int64_t rows = 0, cols = 0, channels = 0;

  int64_t image_bytes() const { return rows * cols * channels; }
  Shape shape() const { return channels == 1 ? Shape{rows, cols} : Shape{rows, cols, channels}; }
};

CheckedFolder check_folder(ImageFolder folder, const FolderOptions& options, FileSystem& files) {
  std::vector<ImageHeader> headers(folder.paths.size());
  parallel_indices(std::ssize(headers), kHeadersPerThread, [&](int64_t i) {
    headers[static_cast<size_t>(i)] = read_image_header(folder.paths[static_cast<size_t>(i)], files);
  });
  CheckedFolder out{
      .files = std::move(folder), .rows = options.rows, .cols = options.cols, .channels = options.channels};
  if (out.rows == 0) {
    out.rows = headers[0].rows;
    out.cols = headers[0].cols;
    for (size_t i = 1; i < headers.size(); ++i)
      if (headers[i].rows != out.rows || headers[i].cols != out.cols)
        throw_error("data: {} has {} x {} pixels, but {} has {} x {}; give a size for all images: --image-size",
                    printable(out.files.paths[0]), out.rows, out.cols, printable(out.files.paths[i]), headers[i].rows,
                    headers[i].cols);
  }
  for (size_t i = 0; i < headers.size(); ++i) {
    if (options.channels == 1 && headers[i].channels != 1)
      throw_error("data: {} is a color image, but the training images are gray; convert it",
                  printable(out.files.paths[i]));
    if (options.channels == 0) out.channels = std::max(out.channels, headers[i].channels);
  }
  return out;
}

// Decodes file `i` to the size of the folder.
void decode_file(const CheckedFolder& folder, int64_t i, std::byte* out, FileSystem& files) {
  const std::string& path = folder.files.paths[static_cast<size_t>(i)];
  const std::vector<uint8_t> bytes = files.read_file(path, kMaxImageBytes);
  const DecodedImage image = resize_and_crop(decode_image(bytes, path, folder.channels), folder.rows, folder.cols);
  if (image.channels != folder.channels || std::ssize(image.pixels) != folder.image_bytes())
    throw_error("read {}: it has {} channels instead of {}; do not change files while they are in use", path,
                image.channels, folder.channels);
  std::memcpy(out, image.pixels.data(), image.pixels.size());
}

}  // namespace

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

ImageFolder scan_image_folder(const std::string& folder, const std::vector<std::string>& classes, FileSystem& files) {
  ImageFolder out{.folder = folder, .classes = classes, .paths = {}, .labels = {}};
  const std::vector<std::string> present = class_folders(folder, files);
  if (classes.empty()) out.classes = present;
  for (const std::string& name : present) {
    const auto found = std::lower_bound(out.classes.begin(), out.classes.end(), name);
    if (found == out.classes.end() || *found != name)
      throw_error(
          "data: {} has the class {}, which the training set does not have; remove the folder, or add training "
          "images",
          printable(folder), printable(name));
    const size_t before = out.paths.size();
    for (const std::string& file : files.list(folder + "/" + name)) {
      if (file.starts_with('.') || !is_image_name(file)) continue;
      out.paths.push_back(folder + "/" + name + "/" + file);
      out.labels.push_back(static_cast<int32_t>(found - out.classes.begin()));
    }
    if (out.paths.size() == before)
      throw_error("data: {}/{} has no PNG or JPEG images (.png, .jpg, .jpeg); add images, or remove the folder",
                  printable(folder), printable(name));
  }
  return out;
}

ImageSet open_image_folder(const std::string& folder, const FolderOptions& options, FileSystem& files) {
  const auto checked = std::make_shared<const CheckedFolder>(
      check_folder(scan_image_folder(folder, options.classes, files), options, files));
  const int64_t count = std::ssize(checked->files.paths), bytes = checked->image_bytes();
  const int64_t classes = std::ssize(checked->files.classes);
  ImageSet set{.source = nullptr, .shape = checked->shape(), .classes = classes, .class_names = checked->files.classes};
  if (should_stream(options.stream, count * bytes)) {
    const auto read = [checked, bytes, &files](std::span<const int64_t> rows, std::byte* out) {
      parallel_indices(std::ssize(rows), kImagesPerThread,
                       [&](int64_t i) { decode_file(*checked, rows[static_cast<size_t>(i)], out + i * bytes, files); });
    };
    set.source = streamed_images(folder, set.shape, checked->files.labels, classes, read);
  } else {
    std::vector<uint8_t> images(static_cast<size_t>(count * bytes));
    parallel_indices(count, kImagesPerThread, [&](int64_t i) {
      decode_file(*checked, i, reinterpret_cast<std::byte*>(images.data() + i * bytes), files);
    });
    set.source = resident_images(folder, set.shape, std::move(images), checked->files.labels, classes);
  }
  return set;
}

}  // namespace lockstep::detail
