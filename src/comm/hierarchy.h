// A group over several hosts, made of a group on each host and one between the hosts: what the ranks of a host have
// is combined there first, the first ranks of the hosts exchange it, and it is spread on each host. So the way between
// hosts is used once per host instead of once per rank.
//
// Results are the same bits on every rank and in every run: values are combined in the order of the ranks of each host,
// then in the order of the hosts; 16-bit floats are rounded once on each level. A failure on one level reaches all
// ranks. Operations run one after another, on a thread of the group's own while nobody waits for them; the timeout of
// an operation counts from its turn, and is longer by a grace where the delay may be another host's.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm.h"

namespace lockstep {

struct HierarchyOptions {
  // The ranks of every host; no host is empty, and each rank is on one.
  std::vector<std::vector<int>> hosts = {};
  int host = 0;                      // this one
  std::unique_ptr<Comm> inner = {};  // the ranks of this host, in the order of hosts[host]

  // A group of these ranks, one of each host, called by all of them with the same key, and with another one each time.
  // Kept by the groups that are split off. Throws as Comm::split() does.
  std::function<std::unique_ptr<Comm>(const std::vector<int>& ranks, const std::string& key)> connect = {};

  std::string name = "world";
  std::chrono::nanoseconds timeout = Comm::kDefaultTimeout;
};

// Called by all ranks; returns when the levels are connected. Throws Error when the hosts and `inner` do not fit.
std::unique_ptr<Comm> hierarchical_comm(HierarchyOptions options);

}  // namespace lockstep
