#include "lockstep/image_data.h"

#include <gtest/gtest.h>

#include <set>

#include "base/throws.h"
#include "data/idx.h"
#include "data/npy_files.h"
#include "data/source_rows.h"
#include "lockstep/split.h"

namespace lockstep {
namespace {

class ImageDataFiles : public testing::Test {
 protected:
  // Writes n images of 2 x 3 pixels with `channels` channels, and labels i % 4.
  std::string idx(const std::string& name, int64_t n, int64_t channels = 1) {
    IdxData images{{n, 2, 3}, {}}, labels{{n}, {}};
    if (channels > 1) images.shape.push_back(channels);
    for (int64_t i = 0; i < n * 6 * channels; ++i) images.bytes.push_back(static_cast<uint8_t>(7 * i));
    for (int64_t i = 0; i < n; ++i) labels.bytes.push_back(static_cast<uint8_t>(i % 4));
    const std::string base = dir_.path() + "/" + name;
    FileSystem::real().write(base + "-images", encode_idx(images));
    FileSystem::real().write(base + "-labels", encode_idx(labels));
    return base + "-images," + base + "-labels";
  }

  const TempDir dir_;
};

TEST_F(ImageDataFiles, SyntheticImagesAreThoseOfLoadDataset) {
  const ImageData data = open_image_data({.dataset = "synthetic"});
  const Dataset expected = load_dataset("synthetic");
  EXPECT_EQ(data.shape, (Shape{28, 28}));
  EXPECT_EQ(data.classes, 10);
  EXPECT_TRUE(data.class_names.empty());
  EXPECT_EQ(data.train->resident().at("images").to_vector<uint8_t>(), expected.train.images);
  EXPECT_EQ(data.train->resident().at("labels").to_vector<uint8_t>(), expected.train.labels);
  EXPECT_EQ(data.test->resident().at("images").to_vector<uint8_t>(), expected.test.images);
  EXPECT_TRUE(image_data_files({.dataset = "synthetic"}).empty());
}

TEST_F(ImageDataFiles, IdxFilesAreEqualStreamedAndResident) {
  for (const int64_t channels : {1, 3}) {
    const std::string dataset = idx("train", 20, channels) + "," + idx("test", 5, channels);
    const ImageData resident = open_image_data({.dataset = dataset, .stream = "off", .validation = "0.2"});
    const ImageData streamed = open_image_data({.dataset = dataset, .stream = "on", .validation = "0.2"});
    EXPECT_EQ(resident.shape, channels == 1 ? (Shape{2, 3}) : (Shape{2, 3, channels}));
    EXPECT_EQ(resident.classes, 4);
    EXPECT_EQ(resident.train->count(), 16);
    EXPECT_EQ(resident.validation->count(), 4);
    EXPECT_EQ(resident.test->count(), 5);
    EXPECT_TRUE(streamed.train->resident().empty());
    expect_same_rows(*resident.train, *streamed.train);
    expect_same_rows(*resident.validation, *streamed.validation);
    expect_same_rows(*resident.test, *streamed.test);
  }
}

TEST_F(ImageDataFiles, MessagesNameTheFilesOfFields) {
  const std::string train = idx("train", 20), test = idx("test", 5);
  const ImageData data = open_image_data({.dataset = train + "," + test});
  EXPECT_EQ(data.train->origin("labels"), dir_.path() + "/train-labels");
  EXPECT_EQ(data.test->origin("images"), dir_.path() + "/test-images");
  EXPECT_EQ(image_data_files({.dataset = train + "," + test})[3], dir_.path() + "/test-labels");
}

TEST_F(ImageDataFiles, ValidationSetOfItsOwn) {
  const std::string train = idx("train", 20) + "," + idx("test", 5);
  EXPECT_EQ(open_image_data({.dataset = train, .validation = idx("own", 7)}).validation->count(), 7);
  EXPECT_THROWS(open_image_data({.dataset = train, .validation = idx("own", 7, 3)}), Error,
                "data: the validation set " + dir_.path() + "/own-images has [2, 3, 3] images in 4 classes");
  EXPECT_THROWS(open_image_data({.dataset = train, .validation = "1.5"}), Error, "data: a validation share of 1.5");
  EXPECT_THROWS(open_image_data({.dataset = train, .validation = "most"}), Error,
                "data: the validation set is \"most\"; give a share");
}

TEST_F(ImageDataFiles, NpyImagesAreEqualStreamedAndResident) {
  std::string pixels;
  for (int i = 0; i < 30 * 4; ++i) pixels += static_cast<char>(i);
  std::string labels;
  for (int i = 0; i < 30; ++i) labels += std::string{static_cast<char>(i % 3), 0, 0, 0, 0, 0, 0, 0};
  write_npy(dir_.path() + "/x.npy", "|u1", "(30, 2, 2)", pixels);
  write_npy(dir_.path() + "/y.npy", "<i8", "(30,)", labels);
  const std::string dataset = "npy:" + dir_.path() + "/x.npy," + dir_.path() + "/y.npy";
  EXPECT_TRUE(is_image_data(dataset));
  const ImageData resident = open_image_data({.dataset = dataset, .stream = "off"});
  const ImageData streamed = open_image_data({.dataset = dataset, .stream = "on"});
  EXPECT_EQ(resident.shape, (Shape{2, 2}));
  EXPECT_EQ(resident.classes, 3);
  EXPECT_EQ(resident.train->count(), 27);
  EXPECT_EQ(resident.test->count(), 3);
  expect_same_rows(*resident.train, *streamed.train);
  expect_same_rows(*resident.test, *streamed.test);
  write_npy(dir_.path() + "/f.npy", "<f4", "(30, 1, 1)", std::string(120, '\0'));
  EXPECT_THROWS(open_image_data({.dataset = "npy:" + dir_.path() + "/f.npy," + dir_.path() + "/y.npy"}), Error,
                "f.npy has elements float32; images are uint8");
}

TEST_F(ImageDataFiles, ShapesOfNamedSetsNeedNoFiles) {
  const std::string cache = dir_.path() + "/none";
  const ImageData data =
      open_image_data({.dataset = "cifar10", .cache_dir = cache, .allow_download = false, .only_shapes = true});
  EXPECT_EQ(data.shape, (Shape{32, 32, 3}));
  EXPECT_EQ(data.train->count(), 50000);
  EXPECT_EQ(data.test->count(), 10000);
  EXPECT_EQ(data.class_names[6], "frog");
  EXPECT_FALSE(FileSystem::real().exists(cache));
  EXPECT_THROWS(open_image_data({.dataset = "cifar10", .cache_dir = cache, .allow_download = false}), IoError,
                "data: no source has train-images-idx4-ubyte of cifar10");
}

TEST_F(ImageDataFiles, WrongOptionsAreErrors) {
  EXPECT_THROWS(open_image_data({.dataset = "cifar"}), Error, "data: unknown data set \"cifar\"");
  EXPECT_THROWS(open_image_data({.dataset = "synthetic", .stream = "maybe"}), Error,
                "data: stream is \"maybe\"; choose auto, on or off");
  EXPECT_THROWS(open_image_data({.dataset = "images:x", .data_dir = "y"}), Error, "the folder y has no effect");
  EXPECT_THROWS(open_image_data({.dataset = "synthetic", .rows = 8, .cols = 8}), Error, "only folders of images");
  EXPECT_THROWS(open_image_data({.dataset = "images:x", .rows = 8}), Error, "data: an image size of 8 x 0");
  EXPECT_THROWS(open_image_data({.dataset = "npy:x.npy"}), Error, "data: \"npy:x.npy\" has 1 paths");
}

TEST_F(ImageDataFiles, KindOfDataFollowsFromTheName) {
  for (const char* name : {"mnist", "cifar10", "synthetic", "images:x", "a,b", "a,b,c,d"})
    EXPECT_TRUE(is_image_data(name)) << name;
  for (const char* name : {"moby-dick", "text:x", "tokens:x", "csv:x"}) EXPECT_FALSE(is_image_data(name)) << name;
}

TEST(HoldOut, PartsAreDisjointAndMixed) {
  const SourcePtr all = array_source({{"x", Array::from(std::vector<int32_t>(1000), {1000})}});
  const SourceSplit split = hold_out(all, 0.1);
  EXPECT_EQ(split.held_out->count(), 100);
  EXPECT_EQ(split.kept->count(), 900);
  std::set<int64_t> rows;
  int low = 0;
  for (const SourcePtr& part : {split.kept, split.held_out})
    for (int64_t i = 0; i < part->count(); ++i) rows.insert(part->row(0, i));
  for (int64_t i = 0; i < 100; ++i) low += split.held_out->row(0, i) < 500 ? 1 : 0;
  EXPECT_EQ(rows.size(), 1000u);
  EXPECT_GT(low, 30);
  EXPECT_LT(low, 70);
  EXPECT_EQ(hold_out(all, 0.1).held_out->row(0, 7), split.held_out->row(3, 7));
  EXPECT_NE(hold_out(all, 0.1, 1).held_out->row(0, 7), split.held_out->row(0, 7));
}

TEST(HoldOut, BothPartsHaveAnExample) {
  const SourcePtr two = array_source({{"x", Array::from(std::vector<int32_t>{1, 2}, {2})}}, "two");
  EXPECT_EQ(hold_out(two, 0.001).held_out->count(), 1);
  EXPECT_EQ(hold_out(two, 0.999).kept->count(), 1);
  EXPECT_THROWS(hold_out(two, 0), Error, "hold_out: the share is 0; it must be greater than 0 and less than 1");
  EXPECT_THROWS(hold_out(part_of(two, 0, 1), 0.5), Error, "hold_out: two has one example");
}

}  // namespace
}  // namespace lockstep
