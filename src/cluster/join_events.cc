#include "cluster/join_events.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/os/environment.h"
#include "base/os/shared_descriptor.h"

namespace lockstep {
namespace {

constexpr std::string_view kJoining = "joining ", kJoined = "joined ";
constexpr size_t kMaxEventBytes = 64;
constexpr int kMaxWaitMs = 1000;  // for a launcher that does not read

std::optional<JoinEvent> join_event_from(std::string_view line) {
  JoinEvent event;
  event.joined = line.starts_with(kJoined);
  if (!event.joined && !line.starts_with(kJoining)) return std::nullopt;
  line.remove_prefix(event.joined ? kJoined.size() : kJoining.size());
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), event.process);
  if (error != std::errc() || end != line.data() + line.size()) return std::nullopt;
  return event;
}

}  // namespace

void notify_launcher(const JoinEvent& event) {
  const std::optional<std::string> text = environment_variable(kLauncherVariable);
  const auto address = text ? descriptor_address_from(*text) : std::nullopt;
  if (!address) return;
  // Also for reading: a pipe without a reader would raise SIGPIPE.
  const Descriptor pipe = open_address(*address, O_RDWR | O_NONBLOCK);
  if (!pipe) return;
  pollfd ready = {pipe.get(), POLLOUT, 0};
  if (::poll(&ready, 1, kMaxWaitMs) <= 0) return;
  const std::string line = fmt::format("{}{}\n", event.joined ? kJoined : kJoining, event.process);
  [[maybe_unused]] const ssize_t sent = ::write(pipe.get(), line.data(), line.size());  // at once: below PIPE_BUF
}

JoinEventReceiver::JoinEventReceiver()
    : pipe_(make_pipe(O_NONBLOCK)), address_(to_text(lockstep::address_of(pipe_.writer))) {}

std::vector<JoinEvent> JoinEventReceiver::receive() {
  std::array<char, 65536> bytes;
  const ssize_t count = ::read(fd(), bytes.data(), bytes.size());
  if (count > 0) rest_.append(bytes.data(), static_cast<size_t>(count));
  std::vector<JoinEvent> out;
  size_t begin = 0;
  for (size_t end; (end = rest_.find('\n', begin)) != rest_.npos; begin = end + 1)
    if (const auto event = join_event_from(std::string_view(rest_).substr(begin, end - begin))) out.push_back(*event);
  rest_.erase(0, begin);
  if (rest_.size() > kMaxEventBytes) rest_.clear();
  return out;
}

}  // namespace lockstep
