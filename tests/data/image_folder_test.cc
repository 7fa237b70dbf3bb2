#include "data/images/image_folder.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/throws.h"
#include "data/image_files.h"
#include "data/source_rows.h"
#include "lockstep/image_data.h"

#ifdef LOCKSTEP_TEST_IMAGES

namespace lockstep::detail {
namespace {

using Bytes = std::vector<uint8_t>;

class ImageFolders : public testing::Test {
 protected:
  // A gray image of one value.
  void gray(const std::string& name, uint8_t value, int64_t rows = 4, int64_t cols = 6) {
    write_in(dir_.path(), name, gray_png(rows, cols, Bytes(static_cast<size_t>(rows * cols), value)));
  }
  ImageData open(const ImageDataOptions& options = {}) {
    ImageDataOptions with = options;
    with.dataset = "images:" + dir_.path();
    return open_image_data(with);
  }
  // Two classes with ten images each, of values 0 to 9 and 10 to 19.
  void two_classes(const std::string& folder = "") {
    for (int i = 0; i < 10; ++i) {
      gray(folder + "ant/" + std::to_string(i) + ".png", static_cast<uint8_t>(i));
      gray(folder + "bee/" + std::to_string(i) + ".png", static_cast<uint8_t>(10 + i));
    }
  }

  const TempDir dir_;
};

TEST_F(ImageFolders, SortedNamesOfFoldersAreTheClasses) {
  two_classes("train/");
  gray("test/bee/x.png", 99);
  const ImageData data = open();
  EXPECT_EQ(data.class_names, (std::vector<std::string>{"ant", "bee"}));
  EXPECT_EQ(data.classes, 2);
  EXPECT_EQ(data.shape, (Shape{4, 6}));
  EXPECT_EQ(data.train->count(), 20);
  EXPECT_EQ(data.validation, nullptr);
  const BatchArrays train = all_rows(*data.train), test = all_rows(*data.test);
  EXPECT_EQ(train.at("images").type(), (Type{u8, {20, 4, 6}}));
  std::vector<uint8_t> labels(20);
  for (size_t i = 10; i < 20; ++i) labels[i] = 1;
  EXPECT_EQ(train.at("labels").to_vector<uint8_t>(), labels);
  const std::vector<uint8_t> pixels = train.at("images").to_vector<uint8_t>();
  for (size_t i = 0; i < pixels.size(); ++i) ASSERT_EQ(pixels[i], i / 24);
  EXPECT_EQ(test.at("labels").to_vector<uint8_t>(), Bytes{1});
  EXPECT_EQ(test.at("images").to_vector<uint8_t>(), Bytes(24, 99));
}

TEST_F(ImageFolders, StreamedAndResidentImagesAreEqual) {
  two_classes();
  const ImageData resident = open({.stream = "off"}), streamed = open({.stream = "on"});
  EXPECT_FALSE(resident.train->resident().empty());
  EXPECT_TRUE(streamed.train->resident().empty());
  expect_same_rows(*resident.train, *streamed.train);
  expect_same_rows(*resident.test, *streamed.test);
}

TEST_F(ImageFolders, ThreadsReadTheSameRows) {
  two_classes();
  const ImageSet set = open_image_folder(dir_.path(), {.stream = "on"});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      const std::vector<int64_t> rows = {19, 3, 3, 0, 12};
      Bytes images(rows.size() * 24), labels(rows.size());
      std::byte* buffers[] = {reinterpret_cast<std::byte*>(images.data()), reinterpret_cast<std::byte*>(labels.data())};
      for (int repeat = 0; repeat < 20; ++repeat) {
        set.source->read(rows, buffers);
        for (size_t i = 0; i < rows.size(); ++i) {
          ASSERT_EQ(images[24 * i], rows[i]);
          ASSERT_EQ(labels[i], rows[i] / 10);
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ImageFolders, WithoutATestFolderATenthIsHeldOut) {
  two_classes();
  const ImageData data = open({.validation = "0.25"});
  EXPECT_EQ(data.test->count(), 2);
  EXPECT_EQ(data.validation->count(), 5);  // 18 / 4, rounded
  EXPECT_EQ(data.train->count(), 13);
  std::vector<int> seen(20);
  for (const SourcePtr& source : {data.train, data.validation, data.test})
    for (int64_t i = 0; i < source->count(); ++i) ++seen[static_cast<size_t>(source->row(0, i))];
  EXPECT_EQ(seen, std::vector<int>(20, 1));
}

TEST_F(ImageFolders, OneColorImageMakesAllImagesColor) {
  gray("train/a/1.png", 5, 1, 2);
  write_in(dir_.path(), "train/b/2.png", rgb_png(1, 2, {1, 2, 3, 4, 5, 6}));
  gray("test/a/3.png", 7, 1, 2);
  const ImageData data = open();
  EXPECT_EQ(data.shape, (Shape{1, 2, 3}));
  EXPECT_EQ(all_rows(*data.train).at("images").to_vector<uint8_t>(), (Bytes{5, 5, 5, 5, 5, 5, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(all_rows(*data.test).at("images").to_vector<uint8_t>(), Bytes(6, 7));
}

TEST_F(ImageFolders, DifferentSizesNeedASize) {
  gray("train/a/1.png", 5);
  gray("train/a/2.png", 6, 8, 8);
  gray("test/a/3.png", 7, 9, 2);
  EXPECT_THROWS(open(), Error,
                "data: " + dir_.path() + "/train/a/1.png has 4 x 6 pixels, but " + dir_.path() +
                    "/train/a/2.png has 8 x 8; give a size for all images: --image-size");
  const ImageData data = open({.rows = 3, .cols = 3});
  EXPECT_EQ(data.shape, (Shape{3, 3}));
  EXPECT_EQ(all_rows(*data.train).at("images").to_vector<uint8_t>(),
            (Bytes{5, 5, 5, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 6, 6}));
  EXPECT_EQ(all_rows(*data.test).at("images").to_vector<uint8_t>(), Bytes(9, 7));
}

TEST_F(ImageFolders, DamagedFilesAreNamed) {
  two_classes();
  const std::string path = dir_.path() + "/ant/5.png";
  Bytes file = FileSystem::real().read_file(path);
  file.resize(file.size() - 20);
  FileSystem::real().write(path, file);
  EXPECT_THROWS(open({.stream = "off"}), Error,
                "read " + path + ": the PNG image cannot be decoded: the file ends early");
  const ImageSet set = open_image_folder(dir_.path(), {.stream = "on"});  // the header is complete
  Bytes images(24), labels(1);
  std::byte* buffers[] = {reinterpret_cast<std::byte*>(images.data()), reinterpret_cast<std::byte*>(labels.data())};
  EXPECT_THROWS(set.source->read(std::vector<int64_t>{5}, buffers), Error, "read " + path + ": the PNG image");
  FileSystem::real().write(path, Bytes{});
  EXPECT_THROWS(open({.stream = "on"}), Error, "read " + path + ": the file is empty");
}

TEST_F(ImageFolders, OtherFilesAreIgnored) {
  two_classes();
  write_in(dir_.path(), "README.txt", {'x'});
  write_in(dir_.path(), "ant/notes.txt", {'x'});
  write_in(dir_.path(), "ant/.hidden.png", {'x'});
  write_in(dir_.path(), ".cache/x.png", {'x'});
  EXPECT_EQ(open_image_folder(dir_.path(), {}).source->count(), 20);
}

TEST_F(ImageFolders, WrongFoldersAreErrors) {
  EXPECT_THROWS(open_image_data({.dataset = "images:/no/such/folder"}), Error,
                "data: /no/such/folder is not a folder; give images:DIR");
  EXPECT_THROWS(open(), Error, "has no folders; put the images of each class into a folder");
  FileSystem::real().make_dirs(dir_.path() + "/empty");
  EXPECT_THROWS(open(), Error, "/empty has no PNG or JPEG images");
  FileSystem::real().remove_tree(dir_.path() + "/empty");
  two_classes("train/");
  gray("test/cat/1.png", 1);
  EXPECT_THROWS(open(), Error, "/test has the class cat, which the training set does not have");
}

TEST_F(ImageFolders, ValidationFolderIsTheValidationSet) {
  two_classes("train/");
  gray("val/bee/x.png", 42);
  EXPECT_EQ(all_rows(*open().validation).at("images").to_vector<uint8_t>(), Bytes(24, 42));
  EXPECT_EQ(open().test, nullptr);
  EXPECT_EQ(open().train->count(), 20);
  EXPECT_EQ(open({.validation = "0.5"}).validation->count(), 9);  // of 18, after the test set
  EXPECT_EQ(open({.validation = dir_.path() + "/val"}).validation->count(), 1);
}

TEST_F(ImageFolders, ManyClassesHaveWideLabels) {
  for (int i = 0; i < 300; ++i) gray("c" + std::to_string(1000 + i) + "/x.png", static_cast<uint8_t>(i), 1, 1);
  for (const char* stream : {"off", "on"}) {
    const ImageSet set = open_image_folder(dir_.path(), {.stream = stream});
    EXPECT_EQ(set.source->fields()[1].example, (Type{i32, {}}));
    const std::vector<int32_t> labels = all_rows(*set.source).at("labels").to_vector<int32_t>();
    for (size_t i = 0; i < 300; ++i) ASSERT_EQ(labels[i], static_cast<int32_t>(i));
  }
}

}  // namespace
}  // namespace lockstep::detail

#endif
