// Rendezvous of the ranks of a group on one host, in the memory of a Segment. Safe from any thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/shared/segment.h"
#include "comm/shared/segment_view.h"

namespace lockstep::detail {

struct RendezvousOptions {
  std::shared_ptr<Segment> segment = {};  // of the group; not used by a group of one rank
  std::string name;                       // of the group
  std::string operation = "join";         // its name in messages
  int rank = 0, size = 1;
  std::chrono::nanoseconds timeout = {};
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();  // of the timeout
  uint64_t parent_split_version = 0;                                               // stored in this rank's RankState
  std::function<std::string(int)> label = {};                                      // the name of a rank in messages
  // Called repeatedly while waiting, with the view. Throws to stop waiting.
  std::function<void(const SegmentView&)> check = [](const SegmentView&) {};
};

// Joins the segment and returns this rank's view of it, once all ranks have joined. Throws CommTimeout, which names
// the missing ranks; CommAborted when another rank gave up or has ended; Error when the rank is in use, or ranks
// disagree on the size; OutOfMemory.
std::shared_ptr<SegmentView> join_segment(const RendezvousOptions& options);

}  // namespace lockstep::detail
