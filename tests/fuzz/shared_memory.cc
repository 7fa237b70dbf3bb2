// The shared memory segment of the ranks of one host, with arbitrary contents. First byte 0: attaches to a complete
// segment. Other values: runs a collective of two ranks after patches to the part of rank 1.
// A patch is a region, an offset, a length and bytes.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "comm/shared/group.h"
#include "fuzz/fuzz.h"

using namespace lockstep;
using detail::SegmentGeometry;
using detail::SegmentView;
using detail::SharedGroup;

namespace {

// Memory with one mapping per rank; each rank unmaps its own.
class Segment {
 public:
  explicit Segment(int64_t bytes) : bytes_(bytes), file_(memfd_create("fuzz", MFD_CLOEXEC)) {
    fuzz::require(file_ >= 0 && ftruncate(file_, bytes) == 0, "the segment can be allocated");
  }
  ~Segment() { close(file_); }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  void* map() const {
    void* memory = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    fuzz::require(memory != MAP_FAILED, "the segment can be allocated");
    return memory;
  }
  std::shared_ptr<SegmentView> view(int rank) const { return std::make_shared<SegmentView>(map(), bytes_, rank); }

 private:
  const int64_t bytes_;
  const int file_;
};

const SegmentGeometry kGeometry = SegmentGeometry::of(2, 8 * 8192);

void attach(std::span<const uint8_t> bytes) {
  const Segment segment(kGeometry.total_bytes());
  const auto view = segment.view(1);
  std::memcpy(static_cast<void*>(&view->header()), bytes.data(),
              std::min<size_t>(bytes.size(), static_cast<size_t>(kGeometry.total_bytes())));
  if (!fuzz::accepts([&] { view->load_geometry(); }) || view->size() < 2) return;
  view->failure();
  for (int rank = 0; rank < view->size(); ++rank) {
    view->rank_state(rank).registered.load();
    view->split_list(rank)[view->size() - 1].load();
    for (int64_t round = 0; round < view->geometry().slots; ++round)
      std::memset(view->slot(rank, static_cast<uint64_t>(round)), 0, static_cast<size_t>(view->geometry().slot_bytes));
  }
  view->wake_waiting();
}

void patch(const SegmentView& view, std::span<const uint8_t> bytes) {
  auto* const begin = reinterpret_cast<std::byte*>(&view.header());
  const std::array<std::byte*, 4> regions = {
      reinterpret_cast<std::byte*>(&view.rank_state(1)),
      view.slot(1, 0),
      reinterpret_cast<std::byte*>(view.split_list(0)) - 2048,  // the text of rank 1
      begin + offsetof(detail::SegmentHeader, all_joined),
  };
  while (bytes.size() >= 3) {
    std::byte* const region = regions[bytes[0] % regions.size()];
    const size_t offset = bytes[1], length = std::min<size_t>(bytes[2] % 64, bytes.size() - 3);
    std::memcpy(region + offset, bytes.data() + 3, length);
    bytes = bytes.subspan(3 + length);
  }
  // A rank that claims to have finished all possible rounds would keep the other one running for hours.
  detail::RankState& rank_state = view.rank_state(1);
  rank_state.rounds_written.store(std::min<uint64_t>(rank_state.rounds_written.load(), 1000));
}

struct Buffers {
  std::array<float, 64> in = {}, out = {};
  std::array<int64_t, 2> counts = {16, 16};
  std::array<Route, 2> routes = {Route{0, 1}, Route{1, 0}};

  Operation operation(int kind) {
    return {.kind = static_cast<Operation::Kind>(kind % 7),
            .in = in.data(),
            .out = out.data(),
            .count = 32,
            .counts = counts,
            .receive_counts = counts,
            .routes = routes};
  }
};

void operate(int kind, std::span<const uint8_t> patches) {
  const Segment segment(kGeometry.total_bytes());
  const std::array views = {segment.view(0), segment.view(1)};
  views[0]->initialize(kGeometry, "fuzz");
  for (const auto& view : views) view->load_geometry();
  std::array<Buffers, 2> buffers;
  SharedGroup first(views[0], "world", {}), second(views[1], "world", {});
  try {
    SharedGroup::PendingOperation* const theirs = second.start(buffers[1].operation(kind), true);
    patch(*views[1], patches);
    try {
      first.finish(first.start(buffers[0].operation(kind), true), std::chrono::nanoseconds(0));
    } catch (const CommError&) {
    } catch (const Error&) {
    }
    second.abandon(theirs, std::chrono::nanoseconds(0));
  } catch (const CommError&) {
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const uint8_t> bytes(data + 1, size - 1);
  if (data[0] == 0)
    attach(bytes);
  else
    operate(data[0] - 1, bytes);
  return 0;
}
