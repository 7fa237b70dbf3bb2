#include "lockstep/loader.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "array/gpu_memory.h"
#include "base/check.h"
#include "data/image_stream.h"
#include "data/order.h"
#include "data/prefetch.h"
#include "sharding/device_table.h"

namespace lockstep {
namespace {

// Throws unless sizes and labels agree with each other.
void check_set(const ImageDataset& set) {
  if (set.count < 1) throw_error("loader: a set of {} examples; there must be at least one", set.count);
  if (set.count > std::numeric_limits<int32_t>::max())
    throw_error(
        "loader: a set of {} examples in memory, where row numbers have 32 bits; leave it on the disk and pass "
        "ImageFiles",
        set.count);
  const Shape shape = {set.count, set.rows, set.cols};
  if (set.rows < 1 || set.cols < 1 || static_cast<int64_t>(set.images.size()) != count(shape))
    throw_error("loader: {} bytes of images for the shape {}; there must be one for each pixel", set.images.size(),
                to_string(shape));
  if (static_cast<int64_t>(set.labels.size()) != set.count)
    throw_error("loader: {} labels for {} images; each image needs one label", set.labels.size(), set.count);
  for (size_t i = 0; i < set.labels.size(); ++i)
    if (set.labels[i] >= set.classes)
      throw_error("loader: label {} at position {} of a set of {} classes; labels are 0 to {}", set.labels[i], i,
                  set.classes, set.classes - 1);
}

// An array whose elements are yet to be written, once, by its maker.
struct Fresh {
  BufferPtr buffer;
  Array array;
};

Fresh fresh(const Type* interned) {
  BufferPtr buffer = allocate(interned->bytes());
  return {buffer, detail::concrete(interned, buffer)};
}

// The type of a batch's array; batches but for the last of an epoch have one size, and looking it up takes a lock.
class BatchType {
 public:
  BatchType(DType dtype, Shape example) : dtype_(dtype), example_(std::move(example)) {}
  const Type* of(int64_t size) {
    if (size != size_) {
      Shape shape = {size};
      shape.insert(shape.end(), example_.begin(), example_.end());
      interned_ = detail::intern({dtype_, shape});
      size_ = size;
    }
    return interned_;
  }

 private:
  DType dtype_;
  Shape example_;
  int64_t size_ = -1;
  const Type* interned_ = nullptr;
};

// Makes the batches of a stream, one after the other from a cursor on.
class StreamedBatches {
 public:
  StreamedBatches(std::shared_ptr<const detail::ImageStream> stream, detail::Order order, const Cursor& at)
      : stream_(std::move(stream)),
        order_(std::move(order)),
        at_(at),
        images_type_(DType::u8, {stream_->rows(), stream_->cols()}),
        labels_type_(DType::u8, {}) {}

  LoaderBatch operator()() {
    LoaderBatch batch = order_.batch(at_);
    examples_.resize(static_cast<size_t>(batch.size));
    order_.rows(batch, examples_.data());
    Fresh images = fresh(images_type_.of(batch.size)), labels = fresh(labels_type_.of(batch.size));
    stream_->read(examples_, images.buffer->as<uint8_t>(), labels.buffer->as<uint8_t>());
    batch.images = std::move(images.array);
    batch.labels = std::move(labels.array);
    at_ = order_.after(batch);
    return batch;
  }

 private:
  std::shared_ptr<const detail::ImageStream> stream_;
  detail::Order order_;
  Cursor at_;
  BatchType images_type_, labels_type_;
  std::vector<int64_t> examples_;
};

}  // namespace

struct Loader::Impl {
  detail::Order order;
  LoaderOptions options;
  int64_t rows = 0, cols = 0, classes = 0;
  Cursor cursor = {};
  int64_t examples_read = 0;
  std::chrono::steady_clock::duration spent = {};

  // Resident.
  Array images = {}, labels = {};
  BatchType rows_type{DType::i32, {}};

  // On the disk. The prefetcher is made by the first next() after a seek or a failure.
  std::shared_ptr<const detail::ImageStream> stream = nullptr;
  std::optional<detail::Prefetcher> prefetcher = std::nullopt;

  // On a GPU, where a copy between two steps would have the second wait for the first: the row numbers of batches to
  // come, which were brought there together, and of those after them, which will be. They are computed a few at a time,
  // so that the GPU does not wait for them either.
  struct Upcoming {
    Cursor at;
    Array rows;
  };
  std::deque<Upcoming> upcoming = {}, later = {};
  Cursor later_end = {};  // the batch after the last of `later`

  Array rows_of(const LoaderBatch& batch) {
    Fresh fresh_rows = fresh(rows_type.of(batch.size));
    order.rows(batch, fresh_rows.buffer->as<int32_t>());
    return std::move(fresh_rows.array);
  }

  void prepare_one() {
    const LoaderBatch batch = order.batch(later_end);
    later.push_back({later_end, rows_of(batch)});
    later_end = order.after(batch);
  }

  Array rows_ahead() {
    constexpr size_t kMost = 64, kFirst = 4, kEach = 2;
    if (upcoming.empty() || upcoming.front().at != cursor) {
      if (later.empty() || later.front().at != cursor) {
        later.clear();
        later_end = cursor;
        while (later.size() < kFirst) prepare_one();
      }
      upcoming = std::exchange(later, {});
      std::vector<Array> all;
      for (const Upcoming& each : upcoming) all.push_back(each.rows);
      detail::upload_in_one_copy(all);
    }
    Array own = std::move(upcoming.front().rows);
    upcoming.pop_front();
    for (size_t i = 0; i < kEach && later.size() < kMost; ++i) prepare_one();
    return own;
  }

  // Where nothing has been computed yet, it is not decided where that will be. Of long lists a copy is no great matter,
  // and programs are recorded by where they lie.
  bool looks_ahead() const {
    constexpr int64_t kMost = 16384;
    return options.batch_size <= kMost && detail::DeviceTable::instance().used() && detail::one_gpu_in_use();
  }

  LoaderBatch resident_batch() {
    LoaderBatch batch = order.batch(cursor);
    batch.rows = looks_ahead() ? rows_ahead() : rows_of(batch);
    return batch;
  }

  LoaderBatch streamed_batch() {
    if (!prefetcher || prefetcher->failed())
      prefetcher.emplace(
          StreamedBatches(stream, order, cursor),
          detail::PrefetchOptions{.depth = options.prefetch, .deadline = options.deadline, .source = stream->path()});
    return prefetcher->next();
  }
};

Loader::Loader(ImageDataset set, const LoaderOptions& options) {
  check_set(set);
  impl_.reset(new Impl{
      .order = {set.count, options}, .options = options, .rows = set.rows, .cols = set.cols, .classes = set.classes});
  impl_->images = Array::from(std::move(set.images), {set.count, set.rows, set.cols});
  impl_->labels = Array::from(std::move(set.labels), {set.count});
}

Loader::Loader(const ImageFiles& files, const LoaderOptions& options) {
  if (options.prefetch < 1) throw_error("loader: {} batches read ahead; prefetch must be at least 1", options.prefetch);
  if (options.deadline <= std::chrono::milliseconds(0))
    throw_error("loader: a deadline of {} ms; it must be positive", options.deadline.count());
  auto stream = std::make_shared<const detail::ImageStream>(files, options.files ? *options.files : FileSystem::real());
  impl_.reset(new Impl{.order = {stream->count(), options},
                       .options = options,
                       .rows = stream->rows(),
                       .cols = stream->cols(),
                       .classes = stream->classes()});
  impl_->stream = std::move(stream);
}

Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;

int64_t Loader::count() const { return impl_->order.count(); }
int64_t Loader::rows() const { return impl_->rows; }
int64_t Loader::cols() const { return impl_->cols; }
int64_t Loader::classes() const { return impl_->classes; }
int64_t Loader::batch_size() const { return impl_->options.batch_size; }
int64_t Loader::batches_per_epoch() const { return impl_->order.batches_per_epoch(); }

bool Loader::resident() const { return impl_->stream == nullptr; }

const Array& Loader::images() const {
  LOCKSTEP_CHECK(resident(), "the images of {} are not in memory", impl_->stream->path());
  return impl_->images;
}

const Array& Loader::labels() const {
  LOCKSTEP_CHECK(resident(), "the labels of {} are not in an array", impl_->stream->path());
  return impl_->labels;
}

const Cursor& Loader::cursor() const { return impl_->cursor; }

void Loader::seek(const Cursor& cursor) {
  impl_->cursor = impl_->order.normalised(cursor);
  impl_->prefetcher.reset();
}

LoaderBatch Loader::next() {
  const auto start = std::chrono::steady_clock::now();
  LoaderBatch batch = resident() ? impl_->resident_batch() : impl_->streamed_batch();
  impl_->cursor = impl_->order.after(batch);
  impl_->examples_read += batch.size;
  impl_->spent += std::chrono::steady_clock::now() - start;
  return batch;
}

int64_t Loader::full_batches_left() const {
  return (impl_->order.count() - impl_->cursor.sample) / impl_->options.batch_size;
}

LoaderBatches Loader::next(int64_t n) {
  LOCKSTEP_CHECK(resident() && n >= 1 && n <= full_batches_left(), "{} of {} batches at once", n, full_batches_left());
  const auto start = std::chrono::steady_clock::now();
  LoaderBatches out;
  const int64_t size = impl_->order.batch(impl_->cursor).size;
  Fresh rows = fresh(detail::intern({DType::i32, {n, size}}));
  for (int64_t i = 0; i < n; ++i) {
    LoaderBatch& batch = out.each.emplace_back(impl_->order.batch(impl_->cursor));
    int32_t* const all = rows.buffer->as<int32_t>() + i * size;
    impl_->order.rows(batch, all);
    Fresh own = fresh(impl_->rows_type.of(size));
    std::copy_n(all, size, own.buffer->as<int32_t>());
    batch.rows = std::move(own.array);
    impl_->cursor = impl_->order.after(batch);
  }
  if (impl_->looks_ahead()) detail::upload_in_one_copy(std::span(&rows.array, 1));
  out.rows = std::move(rows.array);
  impl_->examples_read += n * size;
  impl_->spent += std::chrono::steady_clock::now() - start;
  return out;
}

int64_t Loader::examples_read() const { return impl_->examples_read; }
double Loader::seconds() const { return std::chrono::duration<double>(impl_->spent).count(); }

}  // namespace lockstep
