// HierarchicalComm: a Comm over several hosts, made of two levels. The inner group connects the ranks of one host. The
// outer group connects the leaders: the first rank of every host.
//
//        host 0            host 1
//      0 - 1 - 2         3 - 4 - 5        inner groups
//      |                 |
//      +-----------------+                outer group: the leaders 0 and 3
//
// The ranks of a host reduce their data in the inner group, the leaders exchange it in the outer group, and the inner
// groups distribute it. So data crosses the network once per host instead of once per rank.
//
// Results have the same bits on every rank and in every run: values are reduced in rank order on each host, then in the
// order of the hosts. 16-bit floats are rounded once on each level. A failure on one level reaches all ranks.
//
// Operations run one after another, on a worker thread while no thread waits for them (QueuedComm). The timeout of an
// operation begins when it is first in the queue. A wait that may be for a rank of another host is longer by a grace
// period. Thread safety: as Comm.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm.h"

namespace lockstep {

struct HierarchyOptions {
  // The ranks of every host. Each rank is on exactly one host, and no host is empty.
  std::vector<std::vector<int>> hosts = {};
  int host = 0;                      // the host of this rank
  std::unique_ptr<Comm> inner = {};  // the ranks of this host, in the order of hosts[host]

  // Creates a group of these ranks, one of each host. Called by all of them with the same key; every key is used once.
  // Also kept by groups that are split off. Throws as Comm::split() does.
  std::function<std::unique_ptr<Comm>(const std::vector<int>& ranks, const std::string& key)> connect = {};

  std::string name = "world";
  std::chrono::nanoseconds timeout = Comm::kDefaultTimeout;
};

// Called by all ranks; returns when both levels are connected. Throws Error when `hosts` and `inner` are inconsistent.
std::unique_ptr<Comm> hierarchical_comm(HierarchyOptions options);

}  // namespace lockstep
