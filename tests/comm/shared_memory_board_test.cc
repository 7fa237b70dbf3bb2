// A segment of shared memory in which another process has written what makes no sense.
#include "comm/shared/board.h"

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

const Geometry kGeometry = Geometry::of(2, 8 * 8192);

std::unique_ptr<Board> new_board() {
  void* memory = mmap(nullptr, static_cast<size_t>(kGeometry.total_bytes()), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto board = std::make_unique<Board>(memory, kGeometry.total_bytes(), 0);
  board->initialise(kGeometry, "test");
  return board;
}

TEST(SharedBoard, RefusesAGeometryThatTheSegmentCannotHave) {
  const auto with = [](const std::function<void(Geometry&)>& change) {
    const auto board = new_board();
    change(board->control().geometry);
    EXPECT_THROWS(board->locate(), Error, "run the same lockstep on all ranks");
  };
  with([](Geometry& g) { g.size = 0; });
  with([](Geometry& g) { g.size = -1; });
  with([](Geometry& g) { g.size = 1 << 30; });
  with([](Geometry& g) { g.slots = 0; });
  with([](Geometry& g) { g.slots = int64_t{1} << 62; });
  with([](Geometry& g) { g.slot_bytes = -4096; });
  with([](Geometry& g) { g.slot_bytes = int64_t{1} << 62; });
  with([](Geometry& g) { g.slot_bytes += 1; });
  for (const int size : {1, 2, 3, 17, 1024})
    for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1} << 20}) {
      const Geometry geometry = Geometry::of(size, bytes);
      EXPECT_TRUE(geometry.fits(geometry.total_bytes())) << size << " ranks, " << bytes << " bytes";
      EXPECT_FALSE(geometry.fits(geometry.total_bytes() - 4096));
    }
}

TEST(SharedBoard, ReadsAFailureWithinTheSegment) {
  const auto board = new_board();
  board->locate();
  board->control().failure.store(0x7fffffff);
  EXPECT_EQ(board->failure()->message, "a rank that does not exist failed");
  board->control().failure.store(0);
  ASSERT_TRUE(board->fail(Cause::mismatch, "why"));
  // Its length is the second word of the first rank's text, which begins where the places end.
  auto* const text = reinterpret_cast<uint32_t*>(&board->place(board->size()));
  ASSERT_EQ(text[1], 3u);
  text[1] = 0xffffffff;
  EXPECT_EQ(board->failure()->message.size(), 2040u);
}

TEST(SharedBoard, AnIdThatDoesNotEndIsReadWithinItsField) {
  const auto board = new_board();
  EXPECT_EQ(board->id(), "test");
  std::memset(board->control().id, 'x', sizeof board->control().id);
  EXPECT_EQ(board->id(), std::string(sizeof board->control().id, 'x'));
}

TEST(SharedGroup, ARequestThatMakesNoSenseIsAMismatch) {
  // Offsets in the head of a slot: kind, element type, rounds, and how many counts and routes follow.
  for (const auto& [offset, value] :
       std::vector<std::pair<int, int64_t>>{{8, 200}, {9, 200}, {24, -1}, {32, 1 << 30}, {40, 77}, {48, -1}}) {
    SCOPED_TRACE(offset);
    const std::shared_ptr<Board> board = new_board();
    board->locate();
    SharedGroup group(board, "world", {});
    float in = 1, out = 0;
    SharedGroup::Pending* const pending =
        group.start({.kind = Operation::Kind::all_reduce, .in = &in, .out = &out, .count = 1}, true);
    std::memcpy(board->slot(1, 0), board->slot(0, 0), 64);
    std::memcpy(board->slot(1, 0) + offset, &value, offset < 16 ? 1 : sizeof value);
    board->place(1).started.store(1);
    board->place(1).arrived.store(1);
    EXPECT_THROWS(group.finish(pending, std::chrono::seconds(10)), Error,
                  "rank 0 asked for all_reduce of 1 f32 (sum), rank 1 asked for something unknown");
  }
}

}  // namespace
}  // namespace lockstep::detail
