// LinkedComm: a Comm over any transport that can send messages between two ranks (Links), with a KeyStore for what must
// be known when messages no longer arrive: why a group has failed, who had come, and who makes a new group with whom.
//
// A rank that fails a group (a timeout, a mismatch, abort()) leaves the reason in the store and closes its links; the
// others see that, and look there. The first reason left is the one that everybody gets. Whoever waits too long asks
// all others, through the store, how far they have come, and so can say who has not. An operation that was under way
// when its group failed throws, also where all ranks had started it.
//
// Results have the same bits as between the lanes of one process. Thread safety: as Comm.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/comm.h"
#include "comm/key_store.h"
#include "comm/links.h"

namespace lockstep {

struct LinkedOptions {
  int rank = 0, size = 1;
  std::string name = "world";
  std::chrono::nanoseconds timeout = Comm::kDefaultTimeout;
  std::unique_ptr<Links> links;
  KeyStore* store = nullptr;  // outlives the Comm and those split from it
  std::string prefix;         // of the keys of this group: the same on all ranks, and never used before
  Links::Time deadline;       // for the first meeting of all ranks
};

// Returns when all ranks have called it. Throws as Comm::split() does.
std::unique_ptr<Comm> linked_comm(LinkedOptions options);

}  // namespace lockstep
