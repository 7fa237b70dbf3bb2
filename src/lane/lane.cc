#include "lane/lane.h"

namespace lockstep {

CpuLane& CpuLane::local() {
  static CpuLane* lane = new CpuLane;
  return *lane;
}

}  // namespace lockstep
