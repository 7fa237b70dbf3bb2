#include "comm/mpi/mpi.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "comm/message_comm.h"
#include "comm/mpi/mpi_links.h"
#include "comm/mpi/mpi_session.h"

namespace lockstep {

std::unique_ptr<Comm> mpi_comm(const MpiOptions& options) {
  static std::atomic<int> made = 0;
  MpiSession& session = MpiSession::instance();
  std::vector<int> members = options.processes;
  if (members.empty()) {
    members.resize(static_cast<size_t>(session.size()));
    std::iota(members.begin(), members.end(), 0);
  }
  const auto own = std::find(members.begin(), members.end(), session.rank());
  LOCKSTEP_CHECK(own != members.end(), "process {} is not one of {}", session.rank(), fmt::join(members, ", "));
  const int rank = static_cast<int>(own - members.begin()), size = static_cast<int>(members.size());
  const std::string prefix =
      options.processes.empty() ? fmt::format("mpi/{}", ++made) : fmt::format("mpi/some/{}", options.key);
  const auto deadline = std::chrono::steady_clock::now() +
                        std::min<std::chrono::nanoseconds>(options.timeout, std::chrono::hours(24 * 365));
  std::unique_ptr<Links> links;
  try {
    links = std::make_unique<MpiLinks>(session, std::move(members), rank, prefix, deadline);
  } catch (const LinkTimeout& late) {
    throw CommTimeout(
        fmt::format("connecting \"{}\": rank {} of {} waited {:.3g} s for rank {}; check that it is running",
                    options.name, rank, size, std::chrono::duration<double>(options.timeout).count(), late.peer));
  }
  return message_comm({.rank = rank,
                       .size = size,
                       .name = options.name,
                       .timeout = options.timeout,
                       .links = std::move(links),
                       .store = &session,
                       .prefix = prefix,
                       .deadline = deadline});
}

MpiRank mpi_rank() {
  const MpiSession& session = MpiSession::instance();
  return {session.rank(), session.size()};
}

void mpi_allow_finalize() { MpiSession::clear_failed(); }

void mpi_finalize() { MpiSession::finalize(); }

}  // namespace lockstep
