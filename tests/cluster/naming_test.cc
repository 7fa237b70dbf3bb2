#include "cluster/naming.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

const std::vector<Peer> kPeers = {{"a", "", 10}, {"b", "", 20}};

TEST(Naming, OmitsUnknownValues) {
  EXPECT_EQ(process_label(1, "n07", 4842), "process 1 (host n07, pid 4842)");
  EXPECT_EQ(process_label(1, "n07", 0), "process 1 (host n07)");
  EXPECT_EQ(process_label(1, "", 4842), "process 1 (pid 4842)");
  EXPECT_EQ(process_label(1, "", 0), "process 1");
}

TEST(Naming, ReplacesRanksWithProcesses) {
  const auto named = [](const std::string& text, int lanes) {
    return replace_ranks_with_processes(text, kPeers, lanes);
  };
  EXPECT_EQ(named("rank 1 (process 20) is gone", 1), "process 1 (host b, pid 20) is gone");
  EXPECT_EQ(named("rank 2 (process 20) is gone", 2), "process 1 (host b, pid 20) is gone");
  EXPECT_EQ(
      named("all_reduce 3 on \"world\": rank 0 of 4 waited 5 s for ranks 2, 3; see there", 2),
      "all_reduce 3 on \"world\": process 0 (host a, pid 10) waited 5 s for process 1 (host b, pid 20); see there");
  EXPECT_EQ(named("waited for ranks 0, 1", 1), "waited for process 0 (host a, pid 10), process 1 (host b, pid 20)");
  EXPECT_EQ(named("rank 0 lost its connection to rank 1: reset", 1),
            "process 0 (host a, pid 10) lost its connection to process 1 (host b, pid 20): reset");
  // In a subgroup, the rank in the whole group counts.
  EXPECT_EQ(named("rank 0 (3 of \"world\") (process 20) is gone", 2), "process 1 (host b, pid 20) is gone");
  EXPECT_EQ(named("rank 0 (1 of \"world\") has left the group", 1), "process 1 (host b, pid 20) has left the group");
}

TEST(Naming, LeavesOtherTextUnchanged) {
  for (const std::string text : {"", "no rank at all", "rank", "rank x", "frank 1", "rank 7 is no process",
                                 "process 1 (host b): lost", "a matrix of rank -1"})
    EXPECT_EQ(replace_ranks_with_processes(text, kPeers, 1), text);
}

TEST(Naming, SplitsCauseAndOperation) {
  const auto cut = [](const std::string& text) {
    const CommCause found = split_cause(text);
    return found.operation + "|" + found.cause;
  };
  EXPECT_EQ(cut("all_reduce 3 on \"world\": rank 0 of 2 stops; first cause: rank 1 (process 20) is gone"),
            "all_reduce 3 on \"world\"|rank 1 (process 20) is gone");
  // The rank that passed it on is not the cause.
  EXPECT_EQ(cut("all_reduce 3 on \"w\": rank 0 of 2 stops; first cause: rank 0: process 1 (host b): lost"),
            "all_reduce 3 on \"w\"|process 1 (host b): lost");
  EXPECT_EQ(
      cut("split 0 on \"w\": rank 0 (2 of \"x\") of 2 stops; first cause: rank 0 (2 of \"x\"): process 1 (host b)"),
      "split 0 on \"w\"|process 1 (host b)");
  EXPECT_EQ(cut("all_reduce 3 on \"w\": rank 0 of 2 stops; first cause: rank 1: std::bad_alloc"),
            "all_reduce 3 on \"w\"|rank 1: std::bad_alloc");
  EXPECT_EQ(cut("all_reduce 3 on \"w\": rank 0 of 2 waited 5 s for rank 1"),
            "|all_reduce 3 on \"w\": rank 0 of 2 waited 5 s for rank 1");
  EXPECT_EQ(cut(""), "|");
}

}  // namespace
}  // namespace lockstep
