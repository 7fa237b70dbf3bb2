#include "comm/hierarchy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/throws.h"
#include "comm/conformance.h"
#include "comm/in_process.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using Hosts = std::vector<std::vector<int>>;

// Creates the groups between hosts, by their keys.
class OuterGroups {
 public:
  std::unique_ptr<Comm> connect(const std::vector<int>& ranks, int rank, const std::string& key) {
    const std::lock_guard lock(mutex_);
    auto& comms = groups_[key];
    if (comms.empty()) comms = in_process_comms(static_cast<int>(ranks.size()), "between");
    return std::move(comms[static_cast<size_t>(std::ranges::find(ranks, rank) - ranks.begin())]);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<std::unique_ptr<Comm>>> groups_;
};

// Hosts of these sizes, with ranks numbered host by host, or round-robin over the hosts.
Hosts hosts_of(const std::vector<int>& sizes, bool round_robin) {
  Hosts hosts(sizes.size());
  int rank = 0;
  const int all = std::accumulate(sizes.begin(), sizes.end(), 0);
  for (size_t host = 0; rank < all; host = (host + 1) % sizes.size())
    while (hosts[host].size() < static_cast<size_t>(sizes[host])) {
      hosts[host].push_back(rank++);
      if (round_robin) break;
    }
  return hosts;
}

void on_hosts(const Hosts& hosts, const std::function<void(Comm&)>& body) {
  OuterGroups outer_groups;
  std::vector<std::vector<std::unique_ptr<Comm>>> inner;
  size_t all = 0;
  for (const auto& host : hosts) {
    inner.push_back(in_process_comms(static_cast<int>(host.size()), "host"));
    all += host.size();
  }
  std::vector<std::unique_ptr<Comm>> comms(all);
  std::vector<std::thread> threads;
  for (size_t host = 0; host < hosts.size(); ++host)
    for (size_t i = 0; i < hosts[host].size(); ++i)
      threads.emplace_back([&, host, i] {
        const int rank = hosts[host][i];
        std::unique_ptr<Comm>& comm = comms[static_cast<size_t>(rank)];
        try {
          comm = hierarchical_comm(
              {.hosts = hosts,
               .host = static_cast<int>(host),
               .inner = std::move(inner[host][i]),
               .connect = [&outer_groups, rank](const std::vector<int>& ranks, const std::string& key) {
                 return outer_groups.connect(ranks, rank, key);
               }});
          EXPECT_EQ(comm->rank(), rank);
          body(*comm);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
          if (comm) comm->abort(error.what());
        }
      });
  for (std::thread& thread : threads) thread.join();
}

conformance::Backend backend(const std::string& name, const std::map<int, std::vector<int>>& layouts,
                             bool round_robin) {
  return {name,
          [=](int n, const std::function<void(Comm&)>& body) { on_hosts(hosts_of(layouts.at(n), round_robin), body); }};
}

INSTANTIATE_TEST_SUITE_P(
    Hierarchy, CommConformance,
    conformance::cases(backend("two levels",
                               {{1, {1}}, {2, {1, 1}}, {3, {2, 1}}, {4, {2, 2}}, {7, {1, 2, 4}}, {8, {4, 4}}}, false)),
    conformance::name_of);
INSTANTIATE_TEST_SUITE_P(
    HierarchyRoundRobin, CommConformance,
    conformance::cases(backend("two levels, round-robin ranks",
                               {{1, {1}}, {2, {2}}, {3, {1, 2}}, {4, {3, 1}}, {7, {1, 2, 4}}, {8, {3, 3, 2}}}, true)),
    conformance::name_of);

// A failure on one host reaches waiting ranks of another host, even when no rank of the first host is in an operation.
TEST(HierarchicalComm, AbortReachesOtherHostsWhileNoLocalRankWaits) {
  on_hosts({{0, 1}, {2, 3}}, [](Comm& comm) {
    comm.barrier();
    if (comm.rank() == 1) comm.abort("the disk is full");
    if (comm.rank() < 2) return;
    EXPECT_THROWS(comm.barrier(), CommAborted,
                  "barrier 2 on \"world\": rank " + std::to_string(comm.rank()) +
                      " of 4 stops; first cause: rank 1: the disk is full");
  });
}

TEST(HierarchicalComm, LargeSumsAreReducedInPieces) {
  on_hosts({{0, 1}, {2}}, [](Comm& comm) {
    constexpr int64_t kCount = 3'000'001;
    std::vector<int32_t> values(kCount, comm.rank() + 1);
    Work work = comm.start_all_reduce(values.data(), values.data(), kCount, i32, Reduction::sum);
    work.wait();
    EXPECT_EQ(values, std::vector<int32_t>(kCount, 6));
  });
}

TEST(HierarchicalComm, InconsistentHostsAreRejected) {
  EXPECT_THROWS(
      hierarchical_comm({.hosts = {{0, 1}, {1}}, .host = 0}), Error,
      "hierarchical_comm: invalid host 0 of 2 with the ranks [0, 1, 1]; list each rank, from 0, on exactly one host");
  EXPECT_THROWS(
      hierarchical_comm({.hosts = {{0, 1}}, .host = 0, .inner = std::move(in_process_comms(1)[0])}), Error,
      "hierarchical_comm: host 0 has 2 ranks but its inner group has 1; give an inner group of all its ranks");
}

}  // namespace
}  // namespace lockstep
