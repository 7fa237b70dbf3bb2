// Ranks of shared_memory_comm() for tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/file_store.h"
#include "comm/processes.h"
#include "comm/shared/shared_memory.h"

namespace lockstep::conformance {

// Where rank 0 of a group puts the address of its memory; made before ranks are forked.
inline FileStore shared_memory_addresses;

// The memory of the group with this key: rank 0 creates it, the others open it. A small `bytes` makes operations take
// many rounds.
inline std::shared_ptr<detail::Segment> memory_of(int rank, int n, const std::string& key, int64_t bytes = 0) {
  if (rank > 0) return open_shared_memory(shared_memory_addresses.get(key, std::chrono::seconds(60)));
  std::shared_ptr<detail::Segment> memory = create_shared_memory(n, bytes);
  shared_memory_addresses.set(key, address_of(*memory));
  return memory;
}

inline std::unique_ptr<Comm> join_shared(int rank, int n, const std::string& key, int64_t bytes = 0) {
  return shared_memory_comm({.memory = memory_of(rank, n, key, bytes), .rank = rank, .size = n});
}

// Runs every rank as a thread of this process.
inline void on_shared_threads(int n, const std::function<void(Comm&)>& body, int64_t bytes = 0) {
  const std::string key = unique_key();
  std::vector<std::unique_ptr<Comm>> comms(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank)
    threads.emplace_back([&, rank] {
      std::unique_ptr<Comm>& comm = comms[static_cast<size_t>(rank)];
      try {
        comm = join_shared(rank, n, key, bytes);
        body(*comm);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        if (comm) comm->abort(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace lockstep::conformance
