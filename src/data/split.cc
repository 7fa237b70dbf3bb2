#include "lockstep/split.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "lockstep/loader.h"

namespace lockstep {
namespace {

// Another source in a fixed random order.
class ShuffledSource final : public Source {
 public:
  ShuffledSource(SourcePtr whole, uint64_t seed) : whole_(std::move(whole)), order_(whole_->count(), seed, 0) {}

  std::string name() const override { return whole_->name(); }
  std::string origin(const std::string& field) const override { return whole_->origin(field); }
  int64_t count() const override { return whole_->count(); }
  std::vector<Field> fields() const override { return whole_->fields(); }
  int64_t row(int64_t epoch, int64_t example) const override { return whole_->row(epoch, order_(example)); }
  const BatchArrays& resident() const override { return whole_->resident(); }
  BatchArrays gather(const BatchArrays& data, const Array& rows) const override { return whole_->gather(data, rows); }
  void read(std::span<const int64_t> rows, std::span<std::byte* const> buffers) const override {
    whole_->read(rows, buffers);
  }

 private:
  SourcePtr whole_;
  Shuffle order_;
};

}  // namespace

SourceSplit hold_out(const SourcePtr& source, double share, uint64_t seed) {
  if (!(share > 0 && share < 1))
    throw_error("hold_out: the share is {}; it must be greater than 0 and less than 1", share);
  const int64_t count = source->count();
  if (count < 2) throw_error("hold_out: {} has one example; a part can be held out of two or more", source->name());
  const int64_t held = std::clamp<int64_t>(std::llround(share * static_cast<double>(count)), 1, count - 1);
  const auto shuffled = std::make_shared<ShuffledSource>(source, seed);
  return {part_of(shuffled, 0, count - held), part_of(shuffled, count - held, count)};
}

}  // namespace lockstep
