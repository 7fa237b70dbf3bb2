#include "lockstep/source.h"

#include <limits>
#include <utility>

#include "base/check.h"
#include "lockstep/indexing.h"

namespace lockstep {

const BatchArrays& Source::resident() const {
  static const BatchArrays none;
  return none;
}

BatchArrays Source::gather(const BatchArrays& data, const Array& rows) const {
  BatchArrays out;
  for (const auto& [field, array] : data) out[field] = take(array, rows);
  return out;
}

void Source::read(std::span<const int64_t>, std::span<std::byte* const>) const {
  LOCKSTEP_CHECK(false, "{} is in memory: its rows are gathered, not read", name());
}

namespace {

class ArraySource final : public Source {
 public:
  ArraySource(BatchArrays arrays, std::string name, std::map<std::string, std::string> origins)
      : arrays_(std::move(arrays)), name_(std::move(name)), origins_(std::move(origins)) {
    if (arrays_.empty()) throw_error("array_source: {} has no arrays; give at least one", name_);
    const auto& [first, array] = *arrays_.begin();
    for (const auto& [field, other] : arrays_) {
      if (other.rank() < 1) throw_error("array_source: {} is a scalar; give arrays with one row per example", field);
      if (other.shape(0) != array.shape(0))
        throw_error("array_source: {} has {} rows, but {} has {}; give one row per example in each", first,
                    array.shape(0), field, other.shape(0));
    }
    count_ = array.shape(0);
    if (count_ < 1) throw_error("array_source: {} has no examples; give at least one", name_);
    if (count_ > std::numeric_limits<int32_t>::max())
      throw_error("array_source: {} has {} examples, too many for 32-bit row numbers; stream it from disk", name_,
                  count_);
  }

  std::string name() const override { return name_; }
  std::string origin(const std::string& field) const override {
    const auto at = origins_.find(field);
    return at == origins_.end() ? "" : at->second;
  }
  int64_t count() const override { return count_; }
  std::vector<Field> fields() const override {
    std::vector<Field> out;
    for (const auto& [field, array] : arrays_)
      out.push_back({field, {array.dtype(), Shape(array.shape().begin() + 1, array.shape().end())}});
    return out;
  }
  const BatchArrays& resident() const override { return arrays_; }

 private:
  BatchArrays arrays_;
  std::string name_;
  std::map<std::string, std::string> origins_;
  int64_t count_ = 0;
};

class PartSource final : public Source {
 public:
  PartSource(SourcePtr whole, int64_t begin, int64_t end) : whole_(std::move(whole)), begin_(begin), end_(end) {
    if (begin < 0 || end <= begin || end > whole_->count())
      throw_error("part_of: rows {} to {} of {} examples of {}; give a range of at least one example", begin, end,
                  whole_->count(), whole_->name());
  }

  std::string name() const override { return whole_->name(); }
  std::string origin(const std::string& field) const override { return whole_->origin(field); }
  int64_t count() const override { return end_ - begin_; }
  std::vector<Field> fields() const override { return whole_->fields(); }
  int64_t row(int64_t epoch, int64_t example) const override { return whole_->row(epoch, begin_ + example); }
  const BatchArrays& resident() const override { return whole_->resident(); }
  BatchArrays gather(const BatchArrays& data, const Array& rows) const override { return whole_->gather(data, rows); }
  void read(std::span<const int64_t> rows, std::span<std::byte* const> buffers) const override {
    whole_->read(rows, buffers);
  }

 private:
  SourcePtr whole_;
  int64_t begin_, end_;
};

}  // namespace

SourcePtr array_source(BatchArrays arrays, std::string name, std::map<std::string, std::string> origins) {
  return std::make_shared<ArraySource>(std::move(arrays), std::move(name), std::move(origins));
}

SourcePtr part_of(SourcePtr source, int64_t begin, int64_t end) {
  return std::make_shared<PartSource>(std::move(source), begin, end);
}

}  // namespace lockstep
