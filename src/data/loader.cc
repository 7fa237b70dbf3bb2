#include "lockstep/loader.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "array/lane_memory.h"
#include "base/check.h"
#include "data/batch_order.h"
#include "data/image_stream.h"
#include "data/prefetch.h"
#include "sharding/device_table.h"

namespace lockstep {
namespace {

// Throws Error unless sizes and labels are consistent.
void check_set(const ImageDataset& set) {
  if (set.count < 1) throw_error("loader: the set has {} examples; give at least one", set.count);
  if (set.count > std::numeric_limits<int32_t>::max())
    throw_error(
        "loader: the set has {} examples, too many for the 32-bit row numbers of a set in memory; stream it from disk "
        "by passing ImageFiles",
        set.count);
  const Shape shape = {set.count, set.rows, set.cols};
  if (set.rows < 1 || set.cols < 1 || static_cast<int64_t>(set.images.size()) != count(shape))
    throw_error("loader: {} bytes of images for shape {}; give one byte per pixel", set.images.size(),
                to_string(shape));
  if (static_cast<int64_t>(set.labels.size()) != set.count)
    throw_error("loader: {} labels for {} images; each image needs one label", set.labels.size(), set.count);
  for (size_t i = 0; i < set.labels.size(); ++i)
    if (set.labels[i] >= set.classes)
      throw_error("loader: label {} at position {}, but the set has {} classes; labels are 0 to {}", set.labels[i], i,
                  set.classes, set.classes - 1);
}

// A new array with its buffer, so that its creator can fill it in.
struct NewArray {
  BufferPtr buffer;
  Array array;
};

NewArray new_array(const Type* interned) {
  BufferPtr buffer = allocate(interned->bytes());
  return {buffer, detail::concrete(interned, buffer)};
}

// The interned type of a batch's array. Caches the last type, because interning takes a lock and most batches have the
// same size.
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

// Reads consecutive batches of a stream, starting at a cursor.
class StreamedBatches {
 public:
  StreamedBatches(std::shared_ptr<const detail::ImageStream> stream, detail::BatchOrder order, const Cursor& at)
      : stream_(std::move(stream)),
        order_(std::move(order)),
        at_(at),
        images_type_(DType::u8, {stream_->rows(), stream_->cols()}),
        labels_type_(DType::u8, {}) {}

  LoaderBatch operator()() {
    LoaderBatch batch = order_.batch(at_);
    examples_.resize(static_cast<size_t>(batch.size));
    order_.rows(batch, examples_.data());
    NewArray images = new_array(images_type_.of(batch.size)), labels = new_array(labels_type_.of(batch.size));
    stream_->read(examples_, images.buffer->as<uint8_t>(), labels.buffer->as<uint8_t>());
    batch.images = std::move(images.array);
    batch.labels = std::move(labels.array);
    at_ = order_.after(batch);
    return batch;
  }

 private:
  std::shared_ptr<const detail::ImageStream> stream_;
  detail::BatchOrder order_;
  Cursor at_;
  BatchType images_type_, labels_type_;
  std::vector<int64_t> examples_;
};

}  // namespace

struct Loader::Impl {
  detail::BatchOrder order;
  LoaderOptions options;
  int64_t rows = 0, cols = 0, classes = 0;
  Cursor cursor = {};
  int64_t examples_read = 0;
  std::chrono::steady_clock::duration spent = {};

  // For a resident set.
  Array images = {}, labels = {};
  BatchType rows_type{DType::i32, {}};

  // For a streamed set. The first next() after a seek or a failure creates the prefetcher.
  std::shared_ptr<const detail::ImageStream> stream = nullptr;
  std::optional<detail::Prefetcher> prefetcher = std::nullopt;

  // If steps are computed asynchronously, a copy to the lane between two of them would delay the second one. So the row
  // numbers of many batches are uploaded with one copy: those in `uploaded` are on the lane, those in `computed` follow
  // with the next upload. Each call computes only a few of them, so that the lane does not wait for the host either.
  struct BatchRows {
    Cursor at;
    Array rows;
  };
  std::deque<BatchRows> uploaded = {}, computed = {};
  Cursor computed_end = {};  // the batch after the last of `computed`

  Array rows_of(const LoaderBatch& batch) {
    NewArray out = new_array(rows_type.of(batch.size));
    order.rows(batch, out.buffer->as<int32_t>());
    return std::move(out.array);
  }

  void compute_one() {
    const LoaderBatch batch = order.batch(computed_end);
    computed.push_back({computed_end, rows_of(batch)});
    computed_end = order.after(batch);
  }

  Array uploaded_rows() {
    constexpr size_t kMax = 64, kFirst = 4, kEach = 2;
    if (uploaded.empty() || uploaded.front().at != cursor) {
      if (computed.empty() || computed.front().at != cursor) {
        computed.clear();
        computed_end = cursor;
        while (computed.size() < kFirst) compute_one();
      }
      uploaded = std::exchange(computed, {});
      std::vector<Array> all;
      for (const BatchRows& each : uploaded) all.push_back(each.rows);
      detail::upload_in_one_copy(all);
    }
    Array own = std::move(uploaded.front().rows);
    uploaded.pop_front();
    for (size_t i = 0; i < kEach && computed.size() < kMax; ++i) compute_one();
    return own;
  }

  // Not before the first computation, because the platform may still change. Not for large batches, where the copy is
  // cheap compared to the step and keeping addresses constant for graph replay matters more.
  bool uploads_ahead() const {
    constexpr int64_t kMax = 16384;
    return options.batch_size <= kMax && detail::DeviceTable::current().used() && detail::computes_ahead();
  }

  LoaderBatch resident_batch() {
    LoaderBatch batch = order.batch(cursor);
    batch.rows = uploads_ahead() ? uploaded_rows() : rows_of(batch);
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
  if (options.prefetch < 1) throw_error("loader: prefetch is {}; give at least 1", options.prefetch);
  if (options.deadline <= std::chrono::milliseconds(0))
    throw_error("loader: the deadline is {} ms; give a positive time", options.deadline.count());
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
  impl_->cursor = impl_->order.normalized(cursor);
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
  LOCKSTEP_CHECK(resident() && n >= 1 && n <= full_batches_left(), "{} of {} batches", n, full_batches_left());
  const auto start = std::chrono::steady_clock::now();
  LoaderBatches out;
  const int64_t size = impl_->order.batch(impl_->cursor).size;
  NewArray rows = new_array(detail::intern({DType::i32, {n, size}}));
  for (int64_t i = 0; i < n; ++i) {
    LoaderBatch& batch = out.each.emplace_back(impl_->order.batch(impl_->cursor));
    int32_t* const all = rows.buffer->as<int32_t>() + i * size;
    impl_->order.rows(batch, all);
    NewArray own = new_array(impl_->rows_type.of(size));
    std::copy_n(all, size, own.buffer->as<int32_t>());
    batch.rows = std::move(own.array);
    impl_->cursor = impl_->order.after(batch);
  }
  if (impl_->uploads_ahead()) detail::upload_in_one_copy(std::span(&rows.array, 1));
  out.rows = std::move(rows.array);
  impl_->examples_read += n * size;
  impl_->spent += std::chrono::steady_clock::now() - start;
  return out;
}

int64_t Loader::examples_read() const { return impl_->examples_read; }
double Loader::seconds() const { return std::chrono::duration<double>(impl_->spent).count(); }

}  // namespace lockstep
