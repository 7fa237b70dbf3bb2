#include "lockstep/loader.h"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

#include "base/faulty_files.h"
#include "base/throws.h"
#include "data/digits.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// Images of 2 x 3 pixels that encode their own number.
ImageDataset numbered(int64_t n) {
  ImageDataset set{.images = {}, .labels = {}, .count = n, .rows = 2, .cols = 3, .classes = 7};
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t pixel = 0; pixel < 6; ++pixel) set.images.push_back(static_cast<uint8_t>(i >> (pixel * 4)));
    set.labels.push_back(static_cast<uint8_t>(i % 7));
  }
  set.labels[0] = 6;
  return set;
}

std::vector<int64_t> rows_of(const LoaderBatch& batch) { return batch.rows.to_vector<int64_t>(); }

// Moves through `batches` global batches with a loader per process, as a run does, and returns the examples in the
// global order.
std::vector<int64_t> walk(int64_t n, LoaderOptions options, Cursor& at, int64_t batches) {
  std::vector<Loader> loaders;
  for (options.process_index = 0; options.process_index < options.process_count; ++options.process_index)
    loaders.emplace_back(numbered(n), options).seek(at);
  std::vector<int64_t> examples;
  for (int64_t i = 0; i < batches; ++i) {
    int64_t global_size = -1, sum = 0;
    for (Loader& loader : loaders) {
      const LoaderBatch batch = loader.next();
      EXPECT_EQ(batch.at, at);
      EXPECT_TRUE(global_size == -1 || batch.global_size == global_size);
      global_size = batch.global_size;
      EXPECT_EQ(batch.rows.shape(), (Shape{batch.size}));
      EXPECT_EQ(batch.last_of_epoch, at.sample + global_size == n);
      sum += batch.size;
      const std::vector<int64_t> rows = rows_of(batch);
      examples.insert(examples.end(), rows.begin(), rows.end());
    }
    EXPECT_EQ(sum, global_size);
    for (const Loader& loader : loaders) EXPECT_EQ(loader.cursor(), loaders[0].cursor());
    at = loaders[0].cursor();
  }
  return examples;
}

TEST(Loader, EveryEpochHasEveryExampleOnceAtAnyProcessCount) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 60; ++trial) {
    const int64_t n = 1 + random() % 200;
    LoaderOptions options{
        .batch_size = static_cast<int64_t>(1 + random() % n), .seed = random(), .shuffle = trial % 4 != 0};
    const int64_t batches = (n + options.batch_size - 1) / options.batch_size;
    std::vector<int64_t> reference;
    for (const int processes : {1, 2, 3, 7, 16}) {
      options.process_count = processes;
      Cursor at;
      const std::vector<int64_t> examples = walk(n, options, at, 2 * batches);
      EXPECT_EQ(at, (Cursor{2, 0}));
      if (reference.empty()) reference = examples;
      ASSERT_EQ(examples, reference) << n << " " << options.batch_size << " " << processes;
    }
    std::vector<int64_t> all(static_cast<size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::vector<int64_t> one(reference.begin() + epoch * n, reference.begin() + (epoch + 1) * n);
      if (!options.shuffle) {
        EXPECT_EQ(one, all) << "unshuffled";
      }
      std::sort(one.begin(), one.end());
      ASSERT_EQ(one, all) << n << " " << options.batch_size;
    }
  }
}

TEST(Loader, ResumesAtAnyCursorWithAnotherProcessCountAndBatchSize) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 60; ++trial) {
    const int64_t n = 2 + random() % 150;
    LoaderOptions options{.batch_size = n, .seed = random()};
    Cursor from_start;
    const std::vector<int64_t> reference = walk(n, options, from_start, 3);  // three epochs, each one batch

    Cursor at;
    std::vector<int64_t> examples;
    while (static_cast<int64_t>(examples.size()) < 2 * n) {
      options.batch_size = static_cast<int64_t>(1 + random() % n);
      options.process_count = static_cast<int>(1 + random() % 5);
      const std::vector<int64_t> more = walk(n, options, at, static_cast<int64_t>(1 + random() % 4));
      examples.insert(examples.end(), more.begin(), more.end());
    }
    examples.resize(static_cast<size_t>(2 * n));
    ASSERT_EQ(examples, std::vector<int64_t>(reference.begin(), reference.begin() + 2 * n)) << n;
  }
}

TEST(Loader, LastBatchIsSmallerAndEpochsDoNotMix) {
  Loader loader(numbered(10), {.batch_size = 4});
  EXPECT_EQ(loader.batches_per_epoch(), 3);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<int64_t> sizes;
    for (int i = 0; i < 3; ++i) {
      const LoaderBatch batch = loader.next();
      EXPECT_EQ(batch.at, (Cursor{epoch, 4 * i}));
      EXPECT_EQ(batch.last_of_epoch, i == 2);
      sizes.push_back(batch.global_size);
    }
    EXPECT_EQ(sizes, (std::vector<int64_t>{4, 4, 2}));
  }
}

TEST(Loader, SeveralBatchesEqualConsecutiveSingleBatches) {
  Loader several(numbered(50), {.batch_size = 8, .seed = 3}), single(numbered(50), {.batch_size = 8, .seed = 3});
  EXPECT_EQ(several.batch_size(), 8);
  EXPECT_EQ(several.full_batches_left(), 6);
  for (const int64_t n : {4, 2}) {
    const LoaderBatches batches = several.next(n);
    ASSERT_EQ(batches.rows.shape(), (Shape{n, 8}));
    std::vector<int64_t> rows;
    for (const LoaderBatch& batch : batches.each) {
      const LoaderBatch one = single.next();
      EXPECT_EQ(batch.at, one.at);
      EXPECT_EQ(batch.size, one.size);
      EXPECT_EQ(batch.last_of_epoch, one.last_of_epoch);
      const std::vector<int64_t> own = rows_of(one);
      EXPECT_EQ(rows_of(batch), own);
      rows.insert(rows.end(), own.begin(), own.end());
    }
    EXPECT_EQ(batches.rows.to_vector<int64_t>(), rows);
    EXPECT_EQ(several.cursor(), single.cursor());
    EXPECT_EQ(several.examples_read(), single.examples_read());
  }
  EXPECT_EQ(several.full_batches_left(), 0);  // but a smaller one
  EXPECT_EQ(rows_of(several.next()), rows_of(single.next()));
  EXPECT_EQ(several.full_batches_left(), 6);
  several.seek({0, 43});
  EXPECT_EQ(several.full_batches_left(), 0);
}

TEST(Loader, ProcessesWithoutExamplesGetEmptyBatches) {
  Loader loader(numbered(4), {.batch_size = 2, .process_index = 2, .process_count = 3});
  const LoaderBatch batch = loader.next();
  EXPECT_EQ(batch.size, 0);
  EXPECT_EQ(batch.global_size, 2);
  EXPECT_EQ(batch.rows.shape(), (Shape{0}));
  EXPECT_EQ(loader.cursor(), (Cursor{0, 2}));
  EXPECT_EQ(loader.examples_read(), 0);
}

TEST(Loader, SeekToTheEndStartsTheNextEpoch) {
  Loader loader(numbered(10), {.batch_size = 4});
  loader.seek({3, 10});
  EXPECT_EQ(loader.cursor(), (Cursor{4, 0}));
  EXPECT_EQ(loader.next().at, (Cursor{4, 0}));
}

TEST(Loader, SeekOutsideOfTheSetThrowsAndKeepsTheCursor) {
  Loader loader(numbered(10), {.batch_size = 4});
  loader.seek({1, 5});
  EXPECT_THROWS(loader.seek({0, 11}), Error,
                "loader: sample 11 of epoch 0 does not exist; samples are numbered from 0 to 9, epochs from 0");
  EXPECT_THROWS(loader.seek({0, -1}), Error, "sample -1 of epoch 0 does not exist");
  EXPECT_THROWS(loader.seek({-1, 0}), Error, "sample 0 of epoch -1 does not exist");
  EXPECT_EQ(loader.cursor(), (Cursor{1, 5}));
}

TEST(Loader, ResidentSetIsNotCopied) {
  ImageDataset set = numbered(10);
  const std::vector<uint8_t> images = set.images, labels = set.labels;
  const uint8_t* const memory = set.images.data();
  Loader loader(std::move(set), {.batch_size = 4});
  EXPECT_TRUE(loader.resident());
  EXPECT_EQ(loader.source()->resident().at("images").data<uint8_t>().data(), memory) << "it was copied";
  EXPECT_EQ(loader.source()->resident().at("images").shape(), (Shape{10, 2, 3}));
  EXPECT_EQ(loader.source()->resident().at("images").to_vector<uint8_t>(), images);
  EXPECT_EQ(loader.source()->resident().at("labels").to_vector<uint8_t>(), labels);
  EXPECT_EQ(loader.count(), 10);
  const LoaderBatch batch = loader.next();
  EXPECT_EQ(batch.rows.dtype(), DType::i32);
  EXPECT_TRUE(batch.fields.empty());
  EXPECT_EQ(loader.examples_read(), 4);
  EXPECT_GT(loader.seconds(), 0);
}

TEST(Loader, BatchesKeepTheirRows) {
  Loader loader(numbered(100), {.batch_size = 10});
  const LoaderBatch first = loader.next();
  const std::vector<int64_t> rows = rows_of(first);
  for (int i = 0; i < 30; ++i) loader.next();
  EXPECT_EQ(rows_of(first), rows);
}

TEST(Loader, MovesWithItsCursor) {
  Loader loader(numbered(10), {.batch_size = 4});
  loader.next();
  Loader moved = std::move(loader);
  EXPECT_EQ(moved.next().at, (Cursor{0, 4}));
  moved = Loader(numbered(5), {.batch_size = 5});
  EXPECT_EQ(moved.count(), 5);
}

TEST(Loader, InvalidOptionsAreRejected) {
  const auto make = [](const LoaderOptions& options) { Loader loader(numbered(10), options); };
  EXPECT_THROWS(make({.batch_size = 0}), Error, "loader: the batch size is 0; give at least 1");
  EXPECT_THROWS(make({.batch_size = 11}), Error,
                "loader: the batch size is 11, but the set has 10 examples; use at most 10");
  for (const auto& [index, count] : {std::pair{2, 2}, std::pair{-1, 2}, std::pair{0, 0}})
    EXPECT_THROWS(make({.batch_size = 1, .process_index = index, .process_count = count}), Error,
                  "loader: process_index is " + std::to_string(index) + " and process_count " + std::to_string(count) +
                      "; give an index from 0 to the count minus 1");
}

TEST(Loader, ImagesMayHaveOneRowOrOneColumn) {
  ImageDataset flat = numbered(4), tall = flat;
  flat.rows = 1, flat.cols = 6;
  tall.rows = 6, tall.cols = 1;
  EXPECT_EQ(Loader(flat, {.batch_size = 2}).source()->resident().at("images").shape(), (Shape{4, 1, 6}));
  EXPECT_EQ(Loader(tall, {.batch_size = 2}).source()->resident().at("images").shape(), (Shape{4, 6, 1}));
}

TEST(Loader, PartsOutsideOfTheBatchAreRejected) {
  for (const Range range : {Range{-5, 3}, Range{3, 2}, Range{5, 50}}) {
    EXPECT_THROWS(
        {
          Loader loader(numbered(10), {.batch_size = 4, .part = [range](int64_t) { return range; }});
          loader.next();
        },
        Error,
        "loader: `part` returned the examples " + std::to_string(range.begin) + " to " + std::to_string(range.end) +
            " of a batch of 4; return a range within the batch");
  }
}

TEST(Loader, InconsistentSetsAreRejected) {
  const auto make = [](auto change) {
    ImageDataset set = numbered(10);
    change(set);
    Loader loader(std::move(set), {.batch_size = 1});
  };
  EXPECT_THROWS(make([](ImageDataset& set) { set = {}; }), Error, "loader: the set has 0 examples");
  EXPECT_THROWS(make([](ImageDataset& set) { set.count = int64_t{1} << 31; }), Error,
                "loader: the set has 2147483648 examples, too many for the 32-bit row numbers of a set in memory");
  EXPECT_THROWS(make([](ImageDataset& set) { set.rows = 3; }), Error,
                "loader: 60 bytes of images for shape [10, 3, 3]; give one byte per pixel");
  EXPECT_THROWS(make([](ImageDataset& set) { set.labels.pop_back(); }), Error,
                "loader: 9 labels for 10 images; each image needs one label");
  EXPECT_THROWS(make([](ImageDataset& set) { set.labels[3] = 7; }), Error,
                "loader: label 7 at position 3, but the set has 7 classes; labels are 0 to 6");
}

// Waits until another thread makes the condition true.
template <class Condition>
void wait_until(Condition condition) {
  while (!condition()) std::this_thread::yield();
}

// The real file system, but reads of one file can be blocked.
class SlowFiles final : public FileSystem {
 public:
  // Never destroyed, because a detached thread of a loader may still read from it.
  static SlowFiles& make(std::string slow) {
    static auto* all = new std::vector<std::unique_ptr<SlowFiles>>;
    return *all->emplace_back(new SlowFiles(std::move(slow)));
  }

  void hold(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  // The number of calls that are blocked now.
  int waiting() {
    const std::lock_guard lock(mutex_);
    return waiting_;
  }

  bool exists(const std::string& path) override { return real().exists(path); }
  int64_t size(const std::string& path) override { return real().size(path); }
  size_t read(const std::string& path, int64_t offset, std::span<uint8_t> out) override {
    if (path == slow_) {
      std::unique_lock lock(mutex_);
      ++waiting_;
      changed_.wait(lock, [&] { return !held_; });
      --waiting_;
    }
    return real().read(path, offset, out);
  }
  void write(const std::string&, std::span<const uint8_t>) override { FAIL(); }
  void append(const std::string&, std::span<const uint8_t>) override { FAIL(); }
  std::unique_ptr<FileWriter> create(const std::string&) override { return nullptr; }
  void rename(const std::string&, const std::string&) override { FAIL(); }
  void remove(const std::string&) override { FAIL(); }
  void remove_tree(const std::string&) override { FAIL(); }
  void make_dirs(const std::string&) override { FAIL(); }
  void sync_dir(const std::string&) override { FAIL(); }
  std::vector<std::string> list(const std::string&) override { return {}; }

 private:
  explicit SlowFiles(std::string slow) : slow_(std::move(slow)) {}

  const std::string slow_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  int waiting_ = 0;
};

class StreamedLoader : public testing::Test {
 protected:
  StreamedLoader() { put(numbered(kCount)); }

  void put(const ImageDataset& set) {
    FileSystem::real().write(files_.images_path, encode_idx({{set.count, set.rows, set.cols}, set.images}));
    FileSystem::real().write(files_.labels_path, encode_idx({{set.count}, set.labels}));
  }

  static constexpr int64_t kCount = 50;
  const TempDir dir_;
  const ImageFiles files_ = {dir_.path() + "/images", dir_.path() + "/labels"};
};

TEST_F(StreamedLoader, BatchesEqualThoseOfAResidentSet) {
  const ImageDataset set = numbered(kCount);
  for (const bool shuffle : {false, true}) {
    for (int process = 0; process < 3; ++process) {
      const LoaderOptions options{
          .batch_size = 8, .seed = 4, .shuffle = shuffle, .process_index = process, .process_count = 3};
      Loader streamed(files_, options), resident(set, options);
      EXPECT_FALSE(streamed.resident());
      EXPECT_EQ(streamed.count(), kCount);
      for (int i = 0; i < 20; ++i) {
        if (i == 12) streamed.seek({9, 33}), resident.seek({9, 33});
        const LoaderBatch got = streamed.next(), wanted = resident.next();
        EXPECT_EQ(got.at, wanted.at);
        EXPECT_EQ(got.global_size, wanted.global_size);
        EXPECT_EQ(got.last_of_epoch, wanted.last_of_epoch);
        EXPECT_FALSE(got.rows.defined());
        ASSERT_EQ(got.fields.at("images").shape(), (Shape{wanted.size, 2, 3}));
        std::vector<uint8_t> images, labels;
        for (const int64_t row : rows_of(wanted)) {
          images.insert(images.end(), set.images.begin() + row * 6, set.images.begin() + row * 6 + 6);
          labels.push_back(set.labels[static_cast<size_t>(row)]);
        }
        EXPECT_EQ(got.fields.at("images").to_vector<uint8_t>(), images);
        EXPECT_EQ(got.fields.at("labels").to_vector<uint8_t>(), labels);
        EXPECT_EQ(streamed.cursor(), resident.cursor());
      }
      EXPECT_EQ(streamed.examples_read(), resident.examples_read());
    }
  }
}

TEST_F(StreamedLoader, ProcessesWithoutExamplesGetEmptyBatches) {
  Loader loader(files_, {.batch_size = 1, .process_index = 1, .process_count = 2});
  const LoaderBatch batch = loader.next();
  EXPECT_EQ(batch.fields.at("images").shape(), (Shape{0, 2, 3}));
  EXPECT_EQ(batch.fields.at("labels").shape(), (Shape{0}));
}

TEST_F(StreamedLoader, ReadsAheadAtMostPrefetchBatches) {
  FaultyFiles files;
  Loader loader(image_source(files_, &files), {.batch_size = 5, .shuffle = false, .prefetch = 2});
  const int opened = files.count("read");
  for (int used = 1; used <= 4; ++used) {
    loader.next();
    // Without shuffling a batch is one read: the batches used, and two prefetched ones.
    wait_until([&] { return files.count("read") >= opened + used + 2; });
    EXPECT_EQ(files.count("read"), opened + used + 2);
  }
}

TEST_F(StreamedLoader, FailedReadIsThrownInOrderAndRetried) {
  FaultyFiles files;
  Loader loader(image_source(files_, &files), {.batch_size = 5, .shuffle = false, .prefetch = 2});
  loader.next();
  files.fail("read", EIO);
  // The batches read before the failure are returned first; then the cursor does not move.
  EXPECT_THROWS(for (int i = 0; i < 5; ++i) loader.next(), IoError,
                "read " + files_.images_path + ": Input/output error");
  const Cursor stuck = loader.cursor();
  EXPECT_THROWS(loader.next(), IoError, "Input/output error");
  EXPECT_EQ(loader.cursor(), stuck);
  files.fail("read", 0);
  EXPECT_EQ(loader.next().at, stuck);
}

TEST_F(StreamedLoader, ShrunkFileIsReported) {
  Loader loader(files_, {.batch_size = 10, .shuffle = false, .prefetch = 1});
  std::vector<uint8_t> bytes = FileSystem::real().read_file(files_.images_path);
  bytes.resize(bytes.size() - 1);
  FileSystem::real().write(files_.images_path, bytes);
  loader.seek({0, 40});
  EXPECT_THROWS(
      loader.next(), IoError,
      "read " + files_.images_path + ": it ends before image 49 of 50 although it was complete when opened; do not");
}

TEST_F(StreamedLoader, HangingReadThrowsAtTheDeadline) {
  SlowFiles& files = SlowFiles::make(files_.images_path);
  Loader loader(image_source(files_, &files), {.batch_size = 5, .deadline = 50ms});
  files.hold(true);
  EXPECT_THROWS(loader.next(), IoError,
                "loader: no batch of " + files_.images_path + " within 0.05 s; check the disk or network file system");
  EXPECT_EQ(loader.cursor(), (Cursor{0, 0}));
  files.hold(false);
  LoaderBatch batch;
  while (batch.global_size == 0) {  // a busy machine may need longer than the deadline
    try {
      batch = loader.next();
    } catch (const IoError&) {
    }
  }
  EXPECT_EQ(batch.at, (Cursor{0, 0})) << "the late batch is used";
}

TEST_F(StreamedLoader, DestructorDoesNotWaitForAHangingRead) {
  SlowFiles& files = SlowFiles::make(files_.images_path);
  {
    Loader loader(image_source(files_, &files), {.batch_size = 5, .deadline = 50ms});
    files.hold(true);
    EXPECT_THROWS(loader.next(), IoError, "no batch of ");
    wait_until([&] { return files.waiting() == 1; });
  }
  EXPECT_EQ(files.waiting(), 1) << "the loader has ended before the read";
  files.hold(false);
  wait_until([&] { return files.waiting() == 0; });
}

TEST_F(StreamedLoader, CanBeDestroyedOrMovedAtAnyTime) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    Loader loader(files_, {.batch_size = 7, .prefetch = 1 + trial % 3});
    for (unsigned i = random() % 4; i > 0; --i) {
      loader.next();
      if (random() % 2) loader.seek({trial, static_cast<int64_t>(random() % kCount)});
    }
  }
}

TEST_F(StreamedLoader, HeadersAreChecked) {
  const auto make = [&](const ImageFiles& files) { Loader loader(files, {.batch_size = 1}); };
  const std::string other = dir_.path() + "/other", missing = dir_.path() + "/missing";
  EXPECT_THROWS(make({missing, files_.labels_path}), IoError, missing + ": No such file or directory");
  EXPECT_THROWS(make({files_.labels_path, files_.labels_path}), Error,
                "loader: " + files_.labels_path + " has shape [50]; images have three dimensions");
  EXPECT_THROWS(make({files_.images_path, files_.images_path}), Error, "[50, 2, 3]; labels have one dimension");
  FileSystem::real().write(other, encode_idx({{49}, std::vector<uint8_t>(49)}));
  EXPECT_THROWS(make({files_.images_path, other}), Error,
                files_.images_path + " has 50 images, but " + other + " has 49 labels; each image needs one label");
  std::vector<uint8_t> bytes = FileSystem::real().read_file(files_.images_path);
  bytes.push_back(0);
  FileSystem::real().write(other, bytes);
  EXPECT_THROWS(make({other, files_.labels_path}), Error,
                "read " + other + ": there are bytes after the [50, 2, 3] = 300");
  bytes.resize(bytes.size() - 2);
  FileSystem::real().write(other, bytes);
  EXPECT_THROWS(make({other, files_.labels_path}), Error, "[50, 2, 3] = 300 bytes, but at most 299 follow");
}

TEST_F(StreamedLoader, CompressedFilesAreRejectedWithTheRemedy) {
  const auto make = [&](const ImageFiles& files) { Loader loader(files, {.batch_size = 1}); };
  for (const std::string& path : {files_.images_path, files_.labels_path})
    FileSystem::real().write(path + ".gz", gzip(FileSystem::real().read_file(path)));
  const auto message = [](const std::string& path) {
    return "read " + path + ": it is compressed, so it cannot be streamed; run `gunzip -k " + path +
           "` and use the raw file";
  };
  const std::string images = files_.images_path + ".gz", labels = files_.labels_path + ".gz";
  EXPECT_THROWS(make({images, files_.labels_path}), Error, message(images));
  EXPECT_THROWS(make({files_.images_path, labels}), Error, message(labels));
}

TEST_F(StreamedLoader, InvalidOptionsAreRejected) {
  const auto make = [&](const LoaderOptions& options) { Loader loader(files_, options); };
  EXPECT_THROWS(make({.batch_size = 51}), Error, "loader: the batch size is 51, but the set has 50 examples");
  EXPECT_THROWS(make({.batch_size = 1, .prefetch = 0}), Error, "loader: prefetch is 0; give at least 1");
  EXPECT_THROWS(make({.batch_size = 1, .deadline = 0ms}), Error, "loader: the deadline is 0 ms; give a positive time");
}

}  // namespace
}  // namespace lockstep
