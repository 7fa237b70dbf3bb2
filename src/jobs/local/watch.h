// FolderWatch: waits for changes in folders (inotify). Used by one thread.
#pragma once

#include <chrono>
#include <string>

#include "base/os/descriptor.h"

namespace lockstep {

class FolderWatch {
 public:
  // If the system has no inotify instances left, wait() only sleeps.
  FolderWatch();

  // Watches a folder for files created, renamed into it or deleted; with `contents`, also for changed files. Does
  // nothing if the folder does not exist.
  void add(const std::string& folder, bool contents = false);

  // Returns after a change since the last call, or after this time.
  void wait(std::chrono::milliseconds time);

 private:
  Descriptor watch_;
};

}  // namespace lockstep
