#include "lockstep/loader.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "array/lane_memory.h"
#include "base/check.h"
#include "data/batch_order.h"
#include "data/prefetch.h"
#include "sharding/device_table.h"

namespace lockstep {
namespace {

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

// Reads consecutive batches of a streamed source, starting at a cursor.
class StreamedBatches {
 public:
  StreamedBatches(SourcePtr source, detail::BatchOrder order, const Cursor& at)
      : source_(std::move(source)), order_(std::move(order)), at_(at) {
    for (const Field& field : source_->fields())
      fields_.push_back({field.name, BatchType(field.example.dtype, field.example.shape)});
  }

  LoaderBatch operator()() {
    LoaderBatch batch = order_.batch(at_);
    rows_.resize(static_cast<size_t>(batch.size));
    order_.rows(batch, *source_, rows_.data());
    std::vector<std::byte*> buffers;
    for (auto& [name, type] : fields_) {
      NewArray array = new_array(type.of(batch.size));
      buffers.push_back(array.buffer->as<std::byte>());
      batch.fields[name] = std::move(array.array);
    }
    source_->read(rows_, buffers);
    at_ = order_.after(batch);
    return batch;
  }

 private:
  SourcePtr source_;
  detail::BatchOrder order_;
  Cursor at_;
  std::vector<std::pair<std::string, BatchType>> fields_;
  std::vector<int64_t> rows_;
};

}  // namespace

struct Loader::Impl {
  SourcePtr source;
  detail::BatchOrder order;
  LoaderOptions options;
  bool resident = false;
  Cursor cursor = {};
  int64_t examples_read = 0;
  std::chrono::steady_clock::duration spent = {};

  BatchType rows_type{DType::i32, {}};  // for a resident source
  // For a streamed source. The first next() after a seek or a failure creates the prefetcher.
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
    order.rows(batch, *source, out.buffer->as<int32_t>());
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
          StreamedBatches(source, order, cursor),
          detail::PrefetchOptions{.depth = options.prefetch, .deadline = options.deadline, .source = source->name()});
    return prefetcher->next();
  }
};

Loader::Loader(SourcePtr source, const LoaderOptions& options) {
  LOCKSTEP_CHECK(source != nullptr, "the source is null");
  const bool resident = !source->resident().empty();
  if (!resident && options.prefetch < 1) throw_error("loader: prefetch is {}; give at least 1", options.prefetch);
  if (!resident && options.deadline <= std::chrono::milliseconds(0))
    throw_error("loader: the deadline is {} ms; give a positive time", options.deadline.count());
  const int64_t count = source->count();
  impl_.reset(
      new Impl{.source = std::move(source), .order = {count, options}, .options = options, .resident = resident});
}

Loader::Loader(ImageDataset set, const LoaderOptions& options) : Loader(image_source(std::move(set)), options) {}
Loader::Loader(const ImageFiles& files, const LoaderOptions& options) : Loader(image_source(files), options) {}

Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;

const SourcePtr& Loader::source() const { return impl_->source; }
int64_t Loader::count() const { return impl_->order.count(); }
int64_t Loader::batch_size() const { return impl_->options.batch_size; }
int64_t Loader::batches_per_epoch() const { return impl_->order.batches_per_epoch(); }

bool Loader::resident() const { return impl_->resident; }

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
    impl_->order.rows(batch, *impl_->source, all);
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
