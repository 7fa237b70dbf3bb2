#include "base/throws.h"
#include "data/data_source.h"
#include "data/digits.h"
#include "lockstep/data.h"

namespace lockstep {
namespace {

class DatasetPaths : public testing::Test {
 protected:
  // Writes images of rows x 2 pixels with their labels; all pixels of image i are i. Returns "IMAGES,LABELS".
  std::string put(const std::string& name, int64_t rows, const std::vector<uint8_t>& labels, bool compressed = false) {
    const int64_t n = static_cast<int64_t>(labels.size());
    IdxData images{{n, rows, 2}, {}};
    for (int64_t i = 0; i < n * rows * 2; ++i) images.bytes.push_back(static_cast<uint8_t>(i / (rows * 2)));
    const std::vector<uint8_t> a = encode_idx(images), b = encode_idx({{n}, labels});
    FileSystem::real().write(images_of(name), compressed ? gzip(a) : a);
    FileSystem::real().write(labels_of(name), compressed ? gzip(b) : b);
    return images_of(name) + "," + labels_of(name);
  }
  std::string images_of(const std::string& name) const { return dir_.path() + "/" + name + "-images"; }
  std::string labels_of(const std::string& name) const { return dir_.path() + "/" + name + "-labels"; }

  const TempDir dir_;
};

std::vector<uint8_t> labels(size_t n, uint8_t classes) {
  std::vector<uint8_t> values;
  for (size_t i = 0; i < n; ++i) values.push_back(static_cast<uint8_t>(i % classes));
  return values;
}

TEST_F(DatasetPaths, FourFilesAreTrainAndTest) {
  const std::string name = put("train", 3, labels(9, 4)) + "," + put("test", 3, labels(2, 4), true);
  const Dataset data = load_dataset(name);
  EXPECT_EQ(data.train.count, 9);
  EXPECT_EQ(data.test.count, 2);
  EXPECT_EQ(data.train.images.size(), 9u * 6);
  EXPECT_EQ(data.test.labels, (std::vector<uint8_t>{0, 1}));
  EXPECT_EQ(data.train.classes, 4);
  EXPECT_EQ(data.test.classes, 4) << "the classes of the training set";
  EXPECT_EQ(data.test.rows, 3);
  EXPECT_EQ(data.test.cols, 2);
}

TEST_F(DatasetPaths, LastTenthOfAPairIsTheTestSet) {
  const Dataset data = load_dataset(put("all", 1, labels(39, 5)));
  EXPECT_EQ(data.train.count, 36);
  EXPECT_EQ(data.test.count, 3);
  EXPECT_EQ(data.train.labels, labels(36, 5));
  EXPECT_EQ(data.test.labels, (std::vector<uint8_t>{1, 2, 3}));
  EXPECT_EQ(data.train.images.size(), 72u);
  EXPECT_EQ(data.train.images.back(), 35);
  EXPECT_EQ(data.test.images, (std::vector<uint8_t>{36, 36, 37, 37, 38, 38}));
  EXPECT_EQ(data.test.classes, 5);
  EXPECT_EQ(load_dataset(put("two", 1, {1, 1})).test.count, 1);
}

TEST_F(DatasetPaths, PairThatCannotBeSplitIsRejected) {
  EXPECT_THROWS(load_dataset(put("one", 1, {0})), Error,
                "data: " + images_of("one") + " has one image; a training and a test set need at least two");
  EXPECT_THROWS(load_dataset(put("sorted", 1, {0, 0, 0, 1, 1, 1, 2})), Error,
                "data: the last tenth of " + labels_of("sorted") +
                    ", the test set, has label 2, but the rest has only labels up to 1; the examples seem to be "
                    "sorted: shuffle them");
}

TEST_F(DatasetPaths, SetsThatDoNotMatchAreRejected) {
  const std::string train = put("train", 3, labels(9, 4));
  EXPECT_THROWS(load_dataset(train + "," + put("small", 2, labels(2, 2))), Error,
                "data: the images of " + images_of("train") + " have 3 x 2 pixels, but those of " + images_of("small") +
                    " have 2 x 2; use images of one size for training and test");
  EXPECT_THROWS(load_dataset(train + "," + put("more", 3, labels(7, 7))), Error,
                "data: " + labels_of("more") + " has label 6, but the training labels of " + labels_of("train") +
                    " go up to 3; the test set must not have classes without training examples");
  EXPECT_THROWS(load_dataset(images_of("train") + "," + labels_of("more")), Error,
                images_of("train") + " has 9 images, but " + labels_of("more") + " has 7 labels");
}

TEST_F(DatasetPaths, WrongNumbersOfPathsAreRejected) {
  EXPECT_THROWS(load_dataset("a,b,c"), Error,
                "data: \"a,b,c\" has 3 paths; give IDX files as IMAGES,LABELS or "
                "TRAIN_IMAGES,TRAIN_LABELS,TEST_IMAGES,TEST_LABELS");
  EXPECT_THROWS(load_dataset("a,"), Error, "data: \"a,\" has 2 paths, some of them empty; give IDX files as");
  EXPECT_THROWS(load_dataset("a"), Error, "or give IDX files as IMAGES,LABELS or TRAIN_IMAGES,");
}

TEST_F(DatasetPaths, MissingFileIsReported) {
  const std::string missing = dir_.path() + "/missing";
  put("train", 1, labels(9, 4));
  EXPECT_THROWS(load_dataset(images_of("train") + "," + missing), IoError,
                "open " + missing + ": No such file or directory; check the path");
}

TEST_F(DatasetPaths, FolderIsRejected) {
  EXPECT_THROWS(load_dataset("a,b", {.dir = "/d"}), Error,
                "data: the data set a,b is given by paths, so the folder /d has no effect; remove the folder setting");
}

TEST(DefaultSources, SystemFoldersComeBeforeMirrors) {
  const TempDir dir;
  Digits digits;
  digits.write(dir.path(), true, [](std::string name) { return name + ".gz"; });
  digits.spec.folders = {dir.path()};
  digits.spec.mirrors = {"https://127.0.0.1:1/"};
  digits.spec.npm_package = "digits@1.0.0";
  const detail::DataSources sources = detail::default_sources(digits.spec, true);
  ASSERT_EQ(sources.size(), 3u);
  EXPECT_EQ(sources[0]->name(), "folder " + dir.path());
  EXPECT_EQ(sources[0]->fetch(digits.spec.files[0], [](int64_t, int64_t) {}).bytes, digits.files[0].bytes);
  EXPECT_EQ(sources[1]->name(), "https://127.0.0.1:1/");
  EXPECT_EQ(detail::default_sources(digits.spec, false).size(), 1u) << "folders are not downloads";
  EXPECT_EQ(detail::find_dataset("fashion-mnist").folders,
            (std::vector<std::string>{"/usr/share/datasets/fashion-mnist"}))
      << "the folder of Debian's package dataset-fashion-mnist";
}

}  // namespace
}  // namespace lockstep
