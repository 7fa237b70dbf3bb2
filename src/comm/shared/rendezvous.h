// Where the ranks of a group on one host find their board: a Segment, which rank 0 makes and the others receive from it
// by a key that all of them know. Only processes of the same user receive it. Safe from any thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/shared/board.h"
#include "comm/shared/segment.h"

namespace lockstep::detail {

struct Rendezvous {
  std::string key;
  std::string name;                // of the group
  std::string operation = "join";  // what messages call it
  int rank = 0, size = 1;
  std::chrono::nanoseconds timeout = {};
  uint64_t came_from = 0;                      // what Place has under that name
  int64_t bytes_per_rank = 0;                  // of slots; 0: a moderate number
  std::shared_ptr<Segment> segment = {};       // of rank 0: made before, by make_segment(); null: made by meet()
  std::function<std::string(int)> label = {};  // how messages call a rank
  // Called while waiting, with the board once it is found; throws where waiting has no point any more.
  std::function<void(const Board*)> check = [](const Board*) {};
};

// Returns when all ranks have come. Throws CommTimeout, naming who is missing; CommAborted when one of them gave up;
// Error when the key or a rank is in use, or ranks disagree on the size; IoError when there is no room.
std::shared_ptr<Board> meet(const Rendezvous& rendezvous);

// What rank 0 of it needs. Throws as Segment does.
std::shared_ptr<Segment> make_segment(const Rendezvous& rendezvous);

}  // namespace lockstep::detail
