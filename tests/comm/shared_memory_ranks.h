// Ranks of shared_memory_comm() for tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/processes.h"
#include "comm/shared/shared_memory.h"

namespace lockstep::conformance {

// A small `bytes` makes operations take many rounds.
inline std::unique_ptr<Comm> join_shared(int rank, int n, const std::string& key, int64_t bytes = 0) {
  return shared_memory_comm({.key = key, .rank = rank, .size = n, .bytes_per_rank = bytes});
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
