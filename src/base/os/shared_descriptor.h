// The address of an open file, by which other processes of the same user open it: `PID:FD:TARGET`, for a file without a
// name, such as a pipe or anonymous memory.
//
// A process opens it as /proc/PID/fd/FD. The kernel allows that to processes of the same user and the same pid and user
// namespaces (ptrace(2), PTRACE_MODE_READ) and to root. So nothing listens, and other users have nothing to connect to.
// TARGET is what the link in /proc names, such as `pipe:[4711]`: it tells whether PID and FD still stand for that file.
// Safe from any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/os/descriptor.h"

namespace lockstep {

struct DescriptorAddress {
  int pid = 0, fd = 0;
  std::string target = {};

  bool operator==(const DescriptorAddress&) const = default;
};
std::string to_text(const DescriptorAddress& address);
// nullopt: the text is not an address.
std::optional<DescriptorAddress> descriptor_address_from(std::string_view text);

// The address of a descriptor of this process. It is valid while the descriptor is open. Throws IoError if /proc is not
// mounted.
DescriptorAddress address_of(const Descriptor& descriptor);

// Opens the file with `flags` of open(2). If it cannot, returns a descriptor that is not open and sets errno: ENOENT if
// the process has ended or closed the file, EACCES or EPERM for a process of another user or user namespace.
Descriptor open_address(const DescriptorAddress& address, int flags);

}  // namespace lockstep
