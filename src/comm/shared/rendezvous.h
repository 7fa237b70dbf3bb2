// Rendezvous of the ranks of a group on one host. Rank 0 creates a Segment; the other ranks receive it from rank 0
// through a Unix socket whose name follows from a key that all ranks know. Only processes of the same user receive it.
// Safe from any thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/shared/segment.h"
#include "comm/shared/segment_view.h"

namespace lockstep::detail {

struct RendezvousOptions {
  std::string key;
  std::string name;                // of the group
  std::string operation = "join";  // its name in messages
  int rank = 0, size = 1;
  std::chrono::nanoseconds timeout = {};
  uint64_t parent_split_version = 0;           // stored in this rank's RankState
  int64_t bytes_per_rank = 0;                  // of slots; 0: a default size
  std::shared_ptr<Segment> segment = {};       // rank 0: from make_segment(); null: join_segment() creates it
  std::function<std::string(int)> label = {};  // the name of a rank in messages
  // Called repeatedly while waiting, with the view once this rank has it. Throws to stop waiting.
  std::function<void(const SegmentView*)> check = [](const SegmentView*) {};
};

// Joins the segment and returns this rank's view of it, once all ranks have joined. Throws CommTimeout, which names
// the missing ranks; CommAborted when another rank gave up; Error when the key or the rank is in use, or ranks disagree
// on the size; IoError when there is not enough memory.
std::shared_ptr<SegmentView> join_segment(const RendezvousOptions& options);

// Creates the segment for rank 0. Throws as Segment does.
std::shared_ptr<Segment> make_segment(const RendezvousOptions& options);

}  // namespace lockstep::detail
