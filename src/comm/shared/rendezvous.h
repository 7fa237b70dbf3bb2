// Where the ranks of a group on one host find their board: a segment of POSIX shared memory whose name is made from a
// key they all know. Rank 0 makes it, readable by its user only; the name goes as soon as all have come, so that
// nothing stays behind however they end. Safe from any thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/shared/board.h"

namespace lockstep::detail {

struct Rendezvous {
  std::string key;
  std::string name;                // of the group
  std::string operation = "join";  // what messages call it
  int rank = 0, size = 1;
  std::chrono::nanoseconds timeout = {};
  uint64_t came_from = 0;                      // what Place has under that name
  int64_t bytes_per_rank = 0;                  // of slots; 0: a moderate number
  std::function<std::string(int)> label = {};  // how messages call a rank
  // Called while waiting, with the board once it is found; throws where waiting has no point any more.
  std::function<void(const Board*)> check = [](const Board*) {};
};

// Returns when all ranks have come. Throws CommTimeout, naming who is missing; CommAborted when one of them gave up;
// Error when the key or a rank is in use, or ranks disagree on the size; IoError when there is no room.
std::shared_ptr<Board> meet(const Rendezvous& rendezvous);

// `/lockstep-USER-HASH`.
std::string segment_name(const std::string& key);
// Whether it is one of this user's.
bool is_segment_name(const std::string& name);

}  // namespace lockstep::detail
