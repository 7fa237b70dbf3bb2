// InFlight: operations that one step of a plan has started and another will wait for, by the id the two share. Belongs
// to one plan, and to the thread that runs it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "comm/comm.h"

namespace lockstep {

using Works = std::vector<Work>;

// Nobody will wait for them: makes their memory safe.
inline void abandon(Works& works) noexcept {
  for (Work& work : works) work = Work();
}

class InFlight {
 public:
  // The operations of that id. Stays where it is.
  Works& of(int64_t id) { return works_[id]; }

  void abandon() noexcept {
    for (auto& [id, works] : works_) lockstep::abandon(works);
  }

 private:
  std::map<int64_t, Works> works_;
};

}  // namespace lockstep
