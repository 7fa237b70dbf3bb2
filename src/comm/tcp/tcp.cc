#include "comm/tcp/tcp.h"

#include <algorithm>

#include "base/check.h"
#include "comm/message_comm.h"
#include "comm/tcp/local_address.h"
#include "comm/tcp/tcp_links.h"

namespace lockstep {

std::unique_ptr<Comm> tcp_comm(const TcpOptions& options) {
  const int rank = options.rank, size = options.size;
  if (rank < 0 || rank >= size)
    throw_error("tcp: rank {} of {} does not exist; ranks are 0 to {}", rank, size, size - 1);
  const auto deadline = std::chrono::steady_clock::now() +
                        std::min<std::chrono::nanoseconds>(options.timeout, std::chrono::hours(24 * 365));
  std::unique_ptr<Links> links;
  try {
    detail::LocalAddress here = detail::local_address(options.address, options.interface);
    here.ports = options.ports;
    links = std::make_unique<TcpLinks>(
        TcpLinks::Settings{
            .here = here, .store = options.store, .security = options.security, .cipher = options.cipher},
        rank, size, options.prefix, deadline);
  } catch (const LinkTimeout& late) {
    throw CommTimeout(
        fmt::format("connecting \"{}\": rank {} of {} waited {:.3g} s for rank {}; check that it is running, and the "
                    "network between the hosts: its address must be reachable from this host",
                    options.name, rank, size, std::chrono::duration<double>(options.timeout).count(), late.peer));
  } catch (const LinkBroken& broken) {
    throw CommError(fmt::format("connecting \"{}\": rank {} of {} cannot connect to rank {}: {}", options.name, rank,
                                size, broken.peer, broken.what));
  }
  return message_comm({.rank = rank,
                       .size = size,
                       .name = options.name,
                       .timeout = options.timeout,
                       .links = std::move(links),
                       .store = &options.store,
                       .prefix = options.prefix,
                       .deadline = deadline});
}

}  // namespace lockstep
