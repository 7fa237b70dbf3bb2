// FolderWatch: waits until something is made, replaced or removed in folders. Used by one thread.
#pragma once

#include <chrono>
#include <string>

#include "jobs/descriptor.h"

namespace lockstep {

class FolderWatch {
 public:
  // Also, where the system gives no more watches, an object that only waits.
  FolderWatch();

  // From now on, until it is gone. A folder that is not there is nothing. With `contents`, also when its files grow.
  void add(const std::string& folder, bool contents = false);

  // Returns when something happened since the last call, or after this time.
  void wait(std::chrono::milliseconds time);

 private:
  Descriptor watch_;
};

}  // namespace lockstep
