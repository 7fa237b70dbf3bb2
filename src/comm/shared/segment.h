// Segment: the shared memory of a group on one host. One process creates it, the others open it.
//
// It is an anonymous file (memfd). Processes open it by an address that its creator gives to them
// (base/os/shared_descriptor.h). There is no socket to which a process could connect and no name in a file system, so
// other users can neither read the memory nor delay those that open it. The kernel frees it when the last process that
// holds it ends, so nothing is left behind when processes are killed. The size of /dev/shm does not matter.
//
// Thread safety: immutable; safe from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/os/shared_descriptor.h"
#include "comm/shared/segment_view.h"

namespace lockstep::detail {

class Segment {
 public:
  // Allocates the memory and writes its header. `group` is the name of the group in messages. Throws IoError when there
  // is not enough memory, or the system has no memfd or no /proc.
  static std::shared_ptr<Segment> create(const std::string& group, const SegmentGeometry& geometry);

  // Opens the memory at an address. Null when its creator has ended or closed it. Throws IoError when this process is
  // not allowed to open it, and Error when it is not a segment.
  static std::shared_ptr<Segment> open(const std::string& group, const DescriptorAddress& address);

  // Where other processes open it while this object exists.
  DescriptorAddress address() const { return address_of(memory_); }

  // The mapping of a rank. Throws OutOfMemory; Error when the header is not that of a segment of this version and size.
  std::shared_ptr<SegmentView> map(int rank) const;

 private:
  Segment(std::string group, Descriptor memory, int64_t bytes);
  void allocate() const;
  void* map_bytes() const;

  const std::string group_;
  const Descriptor memory_;
  const int64_t bytes_;
};

// `4.2 MiB`.
std::string mebibytes(double bytes);

}  // namespace lockstep::detail
