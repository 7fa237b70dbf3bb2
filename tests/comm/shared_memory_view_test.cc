// A shared-memory segment in which another process has written invalid data.
#include "comm/shared/segment_view.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/throws.h"
#include "comm/shared/group.h"
#include "comm/shared/rendezvous.h"
#include "lockstep/error.h"

namespace lockstep::detail {
namespace {

const SegmentGeometry kGeometry = SegmentGeometry::of(2, 8 * 8192);

std::unique_ptr<SegmentView> new_view() {
  void* memory = mmap(nullptr, static_cast<size_t>(kGeometry.total_bytes()), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto view = std::make_unique<SegmentView>(memory, kGeometry.total_bytes(), 0);
  view->initialize(kGeometry, "test");
  return view;
}

TEST(SegmentView, RejectsAGeometryThatDoesNotFitTheSegment) {
  const auto with = [](const std::function<void(SegmentGeometry&)>& change) {
    const auto view = new_view();
    change(view->header().geometry);
    EXPECT_THROWS(view->load_geometry(), Error, "run the same lockstep version on all ranks");
  };
  with([](SegmentGeometry& g) { g.size = 0; });
  with([](SegmentGeometry& g) { g.size = -1; });
  with([](SegmentGeometry& g) { g.size = 1 << 30; });
  with([](SegmentGeometry& g) { g.slots = 0; });
  with([](SegmentGeometry& g) { g.slots = int64_t{1} << 62; });
  with([](SegmentGeometry& g) { g.slot_bytes = -4096; });
  with([](SegmentGeometry& g) { g.slot_bytes = int64_t{1} << 62; });
  with([](SegmentGeometry& g) { g.slot_bytes += 1; });
  for (const int size : {1, 2, 3, 17, 1024})
    for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1} << 20}) {
      const SegmentGeometry geometry = SegmentGeometry::of(size, bytes);
      EXPECT_TRUE(geometry.fits(geometry.total_bytes())) << size << " ranks, " << bytes << " bytes";
      EXPECT_FALSE(geometry.fits(geometry.total_bytes() - 4096));
    }
}

TEST(SegmentView, ReadsFailureTextsWithinTheSegment) {
  const auto view = new_view();
  view->load_geometry();
  view->header().failure.store(0x7fffffff);
  EXPECT_EQ(view->failure()->message, "the segment names a failed rank that does not exist");
  view->header().failure.store(0);
  ASSERT_TRUE(view->fail(FailureCause::mismatch, "why"));
  // The length is the second word of rank 0's failure text, which begins after the last RankState.
  auto* const text = reinterpret_cast<uint32_t*>(&view->rank_state(view->size()));
  ASSERT_EQ(text[1], 3u);
  text[1] = 0xffffffff;
  EXPECT_EQ(view->failure()->message.size(), 2040u);
}

TEST(SegmentView, ReadsAnUnterminatedIdWithinItsField) {
  const auto view = new_view();
  EXPECT_EQ(view->id(), "test");
  std::memset(view->header().id, 'x', sizeof view->header().id);
  EXPECT_EQ(view->id(), std::string(sizeof view->header().id, 'x'));
}

TEST(SharedGroup, InvalidRequestIsAMismatch) {
  // Offsets in the request of a slot: kind, element type, rounds, and the lengths of counts and routes.
  for (const auto& [offset, value] :
       std::vector<std::pair<int, int64_t>>{{8, 200}, {9, 200}, {24, -1}, {32, 1 << 30}, {40, 77}, {48, -1}}) {
    SCOPED_TRACE(offset);
    const std::shared_ptr<SegmentView> view = new_view();
    view->load_geometry();
    SharedGroup group(view, "world", {});
    float in = 1, out = 0;
    SharedGroup::PendingOperation* const pending =
        group.start({.kind = Operation::Kind::all_reduce, .in = &in, .out = &out, .count = 1}, true);
    std::memcpy(view->slot(1, 0), view->slot(0, 0), 64);
    std::memcpy(view->slot(1, 0) + offset, &value, offset < 16 ? 1 : sizeof value);
    view->rank_state(1).started.store(1);
    view->rank_state(1).rounds_written.store(1);
    EXPECT_THROWS(group.finish(pending, std::chrono::seconds(10)), Error,
                  "rank 0 requested all_reduce of 1 f32 (sum), rank 1 requested an invalid operation");
  }
}

}  // namespace
}  // namespace lockstep::detail
