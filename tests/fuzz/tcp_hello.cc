// The bytes of a stranger at the TCP listener of a rank: no handshake succeeds without the secret.
#include <sys/socket.h>

#include "base/os/descriptor.h"
#include "comm/tcp/handshake.h"
#include "fuzz/fuzz.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const detail::GroupSecret secret{.group = "group", .size = 4, .channels = 2, .key = detail::random_bytes32()};
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return 0;
  const Descriptor here(ends[0]), there(ends[1]);
  std::set<detail::Bytes32> seen;
  detail::Handshake listener = detail::Handshake::listener(secret, 1, seen);
  (void)!::send(there.get(), data, std::min<size_t>(size, 4096), MSG_NOSIGNAL | MSG_DONTWAIT);
  const detail::Handshake::State state = listener.advance(here.get());
  fuzz::require(state != detail::Handshake::State::done && !listener.peer_has_proved(), "a stranger is not a rank");
  return 0;
}
