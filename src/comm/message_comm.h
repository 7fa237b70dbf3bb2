// MessageComm: a Comm over any transport that sends messages between two ranks (Links). MessageCollectives does the
// operations. A KeyStore carries the information that must arrive even when messages no longer do. Keys, under the
// prefix of the group:
//
//   abort             why the group has failed; the first value set is the cause that all ranks report
//   timed_out         set by a rank whose wait timed out, before it closes its links
//   started/R         the number of the last operation that rank R has started, and whether it waits in one of them; set
//                     when its links break, or when it finds `timed_out`
//   split/NAME/R/I    the members of the I-th group called NAME that rank R splits off
//
// Failure. A rank that fails a group (by a timeout, a mismatch or abort()) sets `abort` and closes its links. The other
// ranks notice the closed links and read `abort`. A rank that times out first sets `timed_out` and closes its links,
// then collects `started/R` of all ranks, and so can name the ranks that have not started the operation. Where the network
// between the hosts is down, the others do not notice the closed links: a rank that has waited long also looks for
// `timed_out`. An operation in flight when its group fails throws, even when all ranks have started it.
//
// Results have the same bits as those of InProcessComm. Thread safety: as Comm.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/comm.h"
#include "comm/key_store.h"
#include "comm/links.h"

namespace lockstep {

struct MessageCommOptions {
  int rank = 0, size = 1;
  std::string name = "world";
  std::chrono::nanoseconds timeout = Comm::kDefaultTimeout;
  std::unique_ptr<Links> links;
  KeyStore* store = nullptr;  // outlives the Comm and all groups split from it
  std::string prefix;         // of the keys of this group: the same on all ranks, and never used before
  Links::Time deadline;       // for the first barrier of all ranks
};

// Returns when all ranks have called it. Throws as Comm::split() does.
std::unique_ptr<Comm> message_comm(MessageCommOptions options);

}  // namespace lockstep
