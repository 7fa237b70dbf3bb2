#include "jobs/local/watch.h"

#include <poll.h>
#include <sys/inotify.h>

#include <array>

namespace lockstep {

FolderWatch::FolderWatch() : watch_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {}

void FolderWatch::add(const std::string& folder, bool contents) {
  if (!watch_) return;
  constexpr uint32_t kNames = IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_DELETE_SELF;
  ::inotify_add_watch(watch_.get(), folder.c_str(), kNames | (contents ? IN_MODIFY : 0));
}

void FolderWatch::wait(std::chrono::milliseconds time) {
  pollfd ready = {watch_.get(), POLLIN, 0};
  ::poll(&ready, 1, static_cast<int>(time.count()));
  std::array<char, 65536> bytes;
  while (::read(watch_.get(), bytes.data(), bytes.size()) != -1) continue;
}

}  // namespace lockstep
