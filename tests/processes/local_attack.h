// Attacks on a job by what processes of one host may share: Unix sockets, named pipes and files, and the descriptors
// of processes in /proc. For the hostile process of tests.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep::local_attack {

// The names of all Unix sockets: `@name` in the abstract namespace, or a path.
inline std::set<std::string> unix_sockets() {
  std::ifstream table("/proc/net/unix");
  std::set<std::string> out;
  std::string line;
  for (std::getline(table, line); std::getline(table, line);)
    if (const size_t at = line.find_first_of("@/"); at != line.npos) out.insert(line.substr(at));
  return out;
}

inline std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> out;
  DIR* const all = ::opendir(folder.c_str());
  if (!all) return out;
  while (const dirent* const one = ::readdir(all))
    if (one->d_name[0] != '.') out.push_back(folder + "/" + one->d_name);
  ::closedir(all);
  return out;
}

// What is in the folders that all users share, two levels deep.
inline std::set<std::string> shared_files() {
  std::set<std::string> out;
  for (const char* const top : {"/tmp", "/dev/shm", "/var/tmp", "/run/lock"})
    for (const std::string& entry : entries_of(top)) {
      out.insert(entry);
      for (std::string& below : entries_of(entry)) out.insert(std::move(below));
    }
  return out;
}

// Connects to a socket as often as its queue permits, and sends a message. Returns the number of connections.
inline long flood_socket(const std::string& name, int type, int times) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const bool abstract = name[0] == '@';
  if (name.size() >= sizeof address.sun_path) return 0;
  std::memcpy(address.sun_path, name.data(), name.size());
  if (abstract) address.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + (abstract ? 0 : 1));
  long made = 0;
  for (int i = 0; i < times; ++i) {
    const int fd = ::socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const bool connected = fd >= 0 && ::connect(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0;
    const int error = errno;
    if (connected) {
      ++made;
      [[maybe_unused]] const ssize_t sent = ::send(fd, "joined 0\n", 9, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    if (fd >= 0) ::close(fd);
    if (!connected && error != EAGAIN) break;
  }
  return made;
}

// Opens the descriptors of all processes of a user. Returns how many it could open.
inline long open_descriptors(long uid) {
  long opened = 0;
  for (const std::string& process : entries_of("/proc")) {
    struct stat info = {};
    if (std::atoi(process.c_str() + 6) == 0 || ::stat(process.c_str(), &info) != 0) continue;
    if (static_cast<long>(info.st_uid) != uid) continue;
    for (int fd = 3; fd < 64; ++fd) {
      const int got = ::open((process + "/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
      if (got >= 0) ++opened, ::close(got);
      if (got < 0 && errno == EACCES) break;
    }
  }
  return opened;
}

// Attacks all sockets that did not exist when it was made. Returns the connections to those with `lockstep` in a name:
// other programs may make sockets, too.
class SocketFlood {
 public:
  long operator()() const {
    long made = 0;
    for (const std::string& name : unix_sockets()) {
      if (before_.contains(name)) continue;
      for (const int type : {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET})
        if (const long more = flood_socket(name, type, 1000); name.find("lockstep") != name.npos) made += more;
    }
    return made;
  }

 private:
  const std::set<std::string> before_ = unix_sockets();
};

// Opens and locks all files that did not exist when it was made.
class FileFlood {
 public:
  long operator()() const {
    long opened = 0;
    for (const std::string& path : shared_files()) {
      if (before_.contains(path)) continue;
      const int fd = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
      if (fd < 0) continue;
      ++opened;
      flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0, .l_pid = 0};
      ::fcntl(fd, F_SETLK, &all);
      ::close(fd);
    }
    return opened;
  }

 private:
  const std::set<std::string> before_ = shared_files();
};

}  // namespace lockstep::local_attack
