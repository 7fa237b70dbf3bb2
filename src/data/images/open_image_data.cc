#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "data/catalog.h"
#include "data/dataset.h"
#include "data/images/image_folder.h"
#include "data/images/image_sets.h"
#include "data/share.h"
#include "data/split_list.h"
#include "data/tables/npy.h"
#include "lockstep/image_data.h"
#include "lockstep/split.h"

namespace lockstep {
namespace detail {
namespace {

constexpr std::string_view kImages = "images:", kNpy = "npy:";
constexpr uint64_t kTestSeed = 1, kValidationSeed = 0;
constexpr double kTestShare = 0.1;
constexpr int64_t kMaxImageExtent = 1 << 14;

// The parts of a data set, before the validation share is held out.
struct OpenedImages {
  ImageSet train;
  std::optional<ImageSet> test, validation;
};

DataOptions to_data_options(const ImageDataOptions& options) {
  return {.dir = options.data_dir,
          .cache_dir = options.cache_dir,
          .allow_download = options.allow_download,
          .progress = options.progress};
}

std::vector<std::string> npy_paths(const std::string& dataset) {
  std::vector<std::string> paths = split_list(std::string_view(dataset).substr(kNpy.size()), ',');
  const bool empty = std::ranges::any_of(paths, [](const std::string& path) { return path.empty(); });
  if (empty || (paths.size() != 2 && paths.size() != 4))
    throw_error("data: \"{}\" has {} paths{}; give npy:X.npy,Y.npy or npy:X.npy,Y.npy,TEST_X.npy,TEST_Y.npy", dataset,
                paths.size(), empty ? ", some of them empty" : "");
  return paths;
}

OpenedImages open_npy(const ImageDataOptions& options) {
  const std::vector<std::string> paths = npy_paths(options.dataset);
  OpenedImages out{.train = open_npy_images(paths[0], paths[1], options.stream), .test = {}, .validation = {}};
  if (paths.size() == 4) out.test = open_npy_images(paths[2], paths[3], options.stream);
  return out;
}

// DIR/CLASS/NAME, or DIR/train/CLASS/NAME with DIR/test and DIR/validation (or DIR/val) where they exist.
OpenedImages open_folders(const ImageDataOptions& options) {
  const std::string dir = options.dataset.substr(kImages.size());
  if (!is_folder(dir))
    throw_error("data: {} is not a folder; give images:DIR with DIR/CLASS/NAME.png", dir.empty() ? "\"\"" : dir);
  FolderOptions folder{.rows = options.rows, .cols = options.cols, .stream = options.stream};
  if (!is_folder(dir + "/train")) return {.train = open_image_folder(dir, folder), .test = {}, .validation = {}};
  OpenedImages out{.train = open_image_folder(dir + "/train", folder), .test = {}, .validation = {}};
  folder.classes = out.train.class_names;
  folder.channels = out.train.shape.size() == 2 ? 1 : out.train.shape[2];
  if (is_folder(dir + "/test")) out.test = open_image_folder(dir + "/test", folder);
  for (const char* name : {"/validation", "/val"})
    if (options.validation.empty() && !out.validation && is_folder(dir + name))
      out.validation = open_image_folder(dir + name, folder);
  return out;
}

bool is_named_images(const std::string& dataset) {
  for (const DatasetSpec& spec : catalog())
    if (spec.name == dataset) return spec.kind == DatasetKind::images;
  return false;
}

// Zeros in the shape of a named set.
OpenedImages shapes_of(const DatasetSpec& spec) {
  const auto zeros = [&](const FileSpec& images) {
    const Shape& shape = images.shape;
    return to_image_set({.images = std::vector<uint8_t>(static_cast<size_t>(count(shape))),
                         .labels = std::vector<uint8_t>(static_cast<size_t>(shape[0])),
                         .count = shape[0],
                         .rows = shape[1],
                         .cols = shape[2],
                         .channels = shape.size() == 4 ? shape[3] : 1,
                         .classes = spec.classes},
                        spec.name);
  };
  OpenedImages out{.train = zeros(spec.files[0]), .test = zeros(spec.files[2]), .validation = {}};
  out.train.class_names = spec.class_names;
  return out;
}

// Whether the training images of a named set or of IDX files stay on disk.
bool should_stream_idx(const ImageDataOptions& options) {
  int64_t bytes = 0;
  if (std::ranges::count(options.dataset, ',') == 3) {
    const std::string images = dataset_files(options.dataset).train.images_path;
    if (!images.ends_with(".gz") && FileSystem::real().exists(images)) bytes = FileSystem::real().size(images);
  }
  return should_stream(options.stream, bytes);
}

OpenedImages open_idx(const ImageDataOptions& options) {
  const std::string& name = options.dataset;
  const bool stream = should_stream_idx(options);
  if (options.only_shapes && !stream && is_named_images(name)) return shapes_of(find_dataset(name));
  OpenedImages out;
  if (stream) {
    const DatasetFiles files = dataset_files(name, to_data_options(options));
    out.train = stream_idx_pair(files.train);
    out.test =
        to_image_set(load_idx_pair(files.test.images_path, files.test.labels_path), files.test.images_path, files.test);
  } else {
    Dataset data = load_dataset(name, to_data_options(options));
    std::vector<std::string> paths = image_data_files(options);
    paths.resize(4);  // synthetic data has none
    out.train = to_image_set(std::move(data.train), name, {paths[0], paths[1]});
    out.test = to_image_set(std::move(data.test), name, {paths[2], paths[3]});
  }
  if (is_named_images(name)) out.train.class_names = find_dataset(name).class_names;
  return out;
}

// A validation set with files of its own.
ImageSet open_validation(const ImageDataOptions& options, const ImageSet& train) {
  const std::string& name = options.validation;
  const bool folder = options.dataset.starts_with(kImages);
  if (name.starts_with(kImages) || (folder && is_folder(name)))
    return open_image_folder(name.starts_with(kImages) ? name.substr(kImages.size()) : name,
                             {.classes = train.class_names,
                              .rows = options.rows,
                              .cols = options.cols,
                              .channels = train.shape.size() == 2 ? 1 : train.shape[2],
                              .stream = options.stream});
  const bool npy = name.starts_with(kNpy);
  const std::vector<std::string> paths = npy ? npy_paths(name) : split_list(name, ',');
  if (paths.size() != 2)
    throw_error(
        "data: the validation set is \"{}\"; give a share of the training set such as 0.1, or IMAGES,LABELS, "
        "npy:X.npy,Y.npy or images:DIR",
        name);
  return npy ? open_npy_images(paths[0], paths[1], options.stream)
             : to_image_set(load_idx_pair(paths[0], paths[1]), paths[0], {paths[0], paths[1]});
}

void check_options(const ImageDataOptions& options) {
  const bool files = options.dataset.starts_with(kImages) || options.dataset.starts_with(kNpy);
  if (files && !options.data_dir.empty())
    throw_error("data: the data set {} is given by paths, so the folder {} has no effect; remove the folder setting",
                options.dataset, options.data_dir);
  if ((options.rows == 0) != (options.cols == 0) || options.rows < 0 || options.cols < 0 ||
      std::max(options.rows, options.cols) > kMaxImageExtent)
    throw_error("data: an image size of {} x {}; give rows and columns from 1 to {}", options.rows, options.cols,
                kMaxImageExtent);
  if (options.rows > 0 && !options.dataset.starts_with(kImages))
    throw_error("data: an image size of {} x {} for {}; only folders of images (images:DIR) are resized", options.rows,
                options.cols, options.dataset);
}

}  // namespace
}  // namespace detail

ImageData open_image_data(const ImageDataOptions& options) {
  using namespace detail;
  check_options(options);
  OpenedImages opened = options.dataset.starts_with(kImages) ? open_folders(options)
                        : options.dataset.starts_with(kNpy)  ? open_npy(options)
                                                             : open_idx(options);
  ImageSet& train = opened.train;
  const std::optional<double> share = parse_share(options.validation);
  if (!options.validation.empty() && !share) opened.validation = open_validation(options, train);
  if (opened.test) check_same_images(train, *opened.test, "test set");
  if (opened.validation) check_same_images(train, *opened.validation, "validation set");
  ImageData out{
      .train = train.source, .shape = train.shape, .classes = train.classes, .class_names = train.class_names};
  if (opened.validation) out.validation = opened.validation->source;
  if (opened.test) {
    out.test = opened.test->source;
  } else if (!opened.validation || !options.validation.empty()) {
    SourceSplit split = hold_out(out.train, kTestShare, kTestSeed);
    out.train = std::move(split.kept);
    out.test = std::move(split.held_out);
  }
  if (share) {
    SourceSplit split = hold_out(out.train, *share, kValidationSeed);
    out.train = std::move(split.kept);
    out.validation = std::move(split.held_out);
  }
  return out;
}

std::vector<std::string> image_data_files(const ImageDataOptions& options) {
  using namespace detail;
  const std::string& name = options.dataset;
  if (name == "synthetic") return {};
  if (name.starts_with(kImages)) return {name.substr(kImages.size())};
  if (name.find(',') != name.npos) {
    std::vector<std::string> out =
        split_list(std::string_view(name).substr(name.starts_with(kNpy) ? kNpy.size() : 0), ',');
    if (out.size() == 2) out.insert(out.end(), {out[0], out[1]});  // the test set is a part of both files
    return out;
  }
  const std::string folder =
      options.data_dir.empty() ? cache_folder(name, {.cache_dir = options.cache_dir}) : options.data_dir;
  std::vector<std::string> out;
  for (const FileSpec& file : find_dataset(name).files)
    out.push_back(folder.empty() ? file.name : folder + "/" + file.name);
  return out;
}

bool is_image_data(const std::string& dataset) {
  using namespace detail;
  if (dataset.starts_with(kNpy)) {
    const std::string first = npy_paths(dataset)[0];
    return read_npy_header(first).shape.size() >= 3;
  }
  for (const char* other : {"text:", "tokens:", "csv:"})
    if (dataset.starts_with(other)) return false;
  for (const DatasetSpec& spec : catalog())
    if (spec.name == dataset) return spec.kind == DatasetKind::images;
  return true;
}

}  // namespace lockstep
