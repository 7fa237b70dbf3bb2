#include "base/os/shared_descriptor.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

#include "base/file.h"

namespace lockstep {
namespace {

// What a link names; empty, with errno set, if it cannot be read. Longer targets are not those of pipes or memory.
std::string read_link(const std::string& path) {
  std::array<char, 256> text;
  const ssize_t length = ::readlink(path.c_str(), text.data(), text.size());
  return length < 0 ? std::string() : std::string(text.data(), static_cast<size_t>(length));
}

std::string own_link(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

// Removes a number and the colon after it from the text.
std::optional<int> take_number(std::string_view& text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || end == text.data() + text.size() || *end != ':') return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return number;
}

}  // namespace

std::string to_text(const DescriptorAddress& address) {
  return fmt::format("{}:{}:{}", address.pid, address.fd, address.target);
}

std::optional<DescriptorAddress> descriptor_address_from(std::string_view text) {
  const std::optional<int> pid = take_number(text), fd = pid ? take_number(text) : std::nullopt;
  if (!fd || *pid == 0 || text.empty()) return std::nullopt;
  return DescriptorAddress{*pid, *fd, std::string(text)};
}

// The pid that /proc shows, which may be mounted for another pid namespace than that of getpid().
DescriptorAddress address_of(const Descriptor& descriptor) {
  const std::string pid = read_link("/proc/self"), target = read_link(own_link(descriptor.get()));
  DescriptorAddress out{0, descriptor.get(), target};
  std::from_chars(pid.data(), pid.data() + pid.size(), out.pid);
  if (out.pid <= 0 || target.empty()) throw_io_error("read", "/proc/self", ENOENT);
  return out;
}

// Opening a device or a pipe of another process can have effects or block, in case the pid or the number has been used
// again. O_PATH has no effect on the file, so its identity is checked first.
Descriptor open_address(const DescriptorAddress& address, int flags) {
  Descriptor found(::open(fmt::format("/proc/{}/fd/{}", address.pid, address.fd).c_str(), O_PATH | O_CLOEXEC));
  if (!found) {
    if (errno == ESRCH) errno = ENOENT;
    return found;
  }
  const std::string link = own_link(found.get());
  const bool same = read_link(link) == address.target;
  Descriptor out(same ? ::open(link.c_str(), flags | O_CLOEXEC) : -1);
  const int error = same ? errno : ENOENT;
  found.close();
  errno = error;
  return out;
}

}  // namespace lockstep
