// What a process gets to find the shared memory of its host: first byte 0, an address as text; other values, the
// contents of memory at a valid address, which it attaches to as rank 1, and whose offers it reads.
#include "comm/shared/rendezvous.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "comm/shared/shared_memory.h"
#include "fuzz/fuzz.h"

using namespace lockstep;

namespace {

void try_address(const std::string& text) {
  const auto address = descriptor_address_from(text);
  try {
    fuzz::require(!open_shared_memory(text), "no text is the address of memory");
  } catch (const Error&) {
  } catch (const IoError&) {
    fuzz::require(address.has_value(), "only an address can be opened");
  }
  if (address) fuzz::require(descriptor_address_from(to_text(*address)) == address, "an address reads back the same");
}

void try_memory(std::span<const uint8_t> bytes) {
  const Descriptor file(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int64_t size = detail::SegmentGeometry::of(2, 8 * 8192).total_bytes();
  bytes = bytes.first(std::min(bytes.size(), static_cast<size_t>(size)));
  fuzz::require(::ftruncate(file.get(), size) == 0, "the memory can be allocated");
  fuzz::require(::pwrite(file.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), "written");
  ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  fuzz::accepts([&] {
    const auto memory = detail::Segment::open("fuzz", address_of(file));
    const auto view = memory->map(1);
    for (int rank = 0; rank < view->size(); ++rank)
      if (const auto offered = view->offered_memory(rank, view->rank_state(rank).offer_key.load()))
        fuzz::require(offered->target.size() <= 64, "a target is within its field");
    try {
      detail::join_segment(
          {.segment = memory, .name = "fuzz", .rank = 1, .size = 2, .label = [](int) { return "rank"; }});
    } catch (const CommError&) {
    }
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  if (data[0] == 0)
    try_address(std::string(fuzz::text_of(data + 1, size - 1)));
  else
    try_memory({data + 1, size - 1});
  return 0;
}
