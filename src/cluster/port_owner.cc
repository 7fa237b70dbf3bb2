// /proc/net/tcp lists sockets with their inodes; /proc/PID/fd, where readable, shows which process holds them.
#include "cluster/port_owner.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace lockstep::detail {

namespace {

namespace fs = std::filesystem;

struct Listener {
  std::string inode, user;
};

Listener find_listener(const char* table, int port) {
  constexpr const char* kListen = "0A";
  std::ifstream in(table);
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    std::string number, local, remote, state, queues, timer, retransmits, user, probes, inode;
    if (!(fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> probes >> inode))
      continue;
    const size_t colon = local.rfind(':');
    if (state == kListen && colon != std::string::npos && local.substr(colon + 1) == fmt::format("{:04X}", port))
      return {inode, user};
  }
  return {};
}

bool has_socket(const fs::path& process, const std::string& link) {
  std::error_code error;
  for (fs::directory_iterator file(process / "fd", error), end; !error && file != end; file.increment(error)) {
    std::error_code unreadable;
    if (fs::read_symlink(file->path(), unreadable) == link) return true;
  }
  return false;
}

}  // namespace

std::string port_owner(int port) {
  Listener listener = find_listener("/proc/net/tcp", port);
  if (listener.inode.empty()) listener = find_listener("/proc/net/tcp6", port);
  if (listener.inode.empty()) return "";
  const std::string link = fmt::format("socket:[{}]", listener.inode);
  std::error_code error;
  for (fs::directory_iterator process("/proc", error), end; !error && process != end; process.increment(error)) {
    const std::string pid = process->path().filename();
    if (!std::ranges::all_of(pid, [](char c) { return c >= '0' && c <= '9'; }) || !has_socket(process->path(), link))
      continue;
    std::ifstream in(process->path() / "comm");
    std::string name;
    std::getline(in, name);
    return fmt::format("pid {} ({})", pid, name);
  }
  return fmt::format("a process of user {}", listener.user);
}

}  // namespace lockstep::detail
