// InFlight: the operations that one step of an execution plan has started and a later step waits for, by an id that the
// two steps share. Thread safety: belongs to one plan, and is used by the thread that runs it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "comm/comm.h"

namespace lockstep {

using Works = std::vector<Work>;

// Ends these operations without a wait(): destroys each Work, which makes its memory safe to use again.
inline void abandon(Works& works) noexcept {
  for (Work& work : works) work = Work();
}

class InFlight {
 public:
  // The operations with this id. The reference stays valid.
  Works& of(int64_t id) { return works_[id]; }

  void abandon() noexcept {
    for (auto& [id, works] : works_) lockstep::abandon(works);
  }

 private:
  std::map<int64_t, Works> works_;
};

}  // namespace lockstep
