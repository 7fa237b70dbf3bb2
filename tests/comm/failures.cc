// Failures: missing ranks, aborts, ranks that disagree, and invalid arguments.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "base/throws.h"
#include "comm/conformance.h"
#include "lockstep/error.h"

namespace lockstep::conformance {
namespace {

using std::chrono::milliseconds;

// Long enough not to expire on a busy machine, short enough to end a test that hangs.
constexpr auto kLongTimeout = std::chrono::seconds(60);

std::vector<int> all_ranks(const Comm& comm) {
  std::vector<int> ranks(static_cast<size_t>(comm.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

bool contains(const std::string& message, const std::string& part) { return message.find(part) != std::string::npos; }

// Returns the message of the exception that the call throws, which must be an E.
template <class E>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "unexpected type: " << error.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

// The last rank never starts the operation. All others fail: at their own deadline, or at that of another rank.
void timeout_names_missing_rank(Comm& comm) {
  comm.set_timeout(milliseconds(100));
  const int missing = comm.size() - 1;
  if (comm.rank() == missing) return;
  int64_t value = 1;
  const std::string message = message_of<CommError>([&] { comm.all_reduce(&value, &value, 1, i64, Reduction::sum); });
  EXPECT_TRUE(contains(message, "all_reduce")) << message;
  EXPECT_TRUE(contains(message, "\"world\"")) << message;
  EXPECT_TRUE(contains(message, "waited 0.1 s for rank " + std::to_string(missing)) ||
              contains(message, "waited 0.1 s for ranks"))
      << message;  // `ranks`: other ranks had not started yet
  EXPECT_TRUE(contains(message, std::to_string(missing) + "; ")) << message;
  message_of<CommError>([&] { comm.barrier(); });
}

void split_timeout_names_missing_member(Comm& comm) {
  comm.set_timeout(kLongTimeout);
  comm.barrier();  // so that all others split at about the same time
  comm.set_timeout(milliseconds(300));
  if (comm.rank() == comm.size() - 1) return;
  const std::string message = message_of<CommError>([&] { comm.split(all_ranks(comm), "rows"); });
  EXPECT_TRUE(contains(message, "split 0 on \"rows\"")) << message;
  EXPECT_TRUE(
      contains(message, std::to_string(comm.size() - 1) + " (" + std::to_string(comm.size() - 1) + " of \"world\")"))
      << message;
}

void abort_reaches_all_ranks_with_first_reason(Comm& comm) {
  comm.set_timeout(kLongTimeout);
  const std::unique_ptr<Comm> group = comm.split(all_ranks(comm), "group");
  int64_t value = 1;
  // When rank 0 has passed this barrier, no rank is in the split any more. For other ranks the abort may end the
  // barrier itself: with some backends an operation in flight fails with its group.
  try {
    comm.barrier();
  } catch (const CommAborted&) {
    EXPECT_NE(comm.rank(), 0);
  }
  if (comm.rank() == 0) {
    comm.abort("the disk is full");
    comm.abort("something later");
  }
  // Some ranks wait in the aborted group, some in a group split from it. For late ranks the next call fails.
  Comm& mine = comm.rank() % 2 == 0 ? comm : *group;
  for (int again = 0; again < 2; ++again) {
    const std::string message =
        message_of<CommAborted>([&] { mine.all_reduce(&value, &value, 1, i64, Reduction::sum); });
    EXPECT_TRUE(contains(message, "first cause: rank 0: the disk is full")) << message;
    EXPECT_TRUE(contains(message, " on \"" + mine.name() + "\"")) << message;
  }
  message_of<CommAborted>([&] { comm.split({comm.rank()}, "late"); });
}

void abort_of_subgroup_does_not_affect_parent(Comm& comm) {
  comm.set_timeout(kLongTimeout);
  const std::unique_ptr<Comm> group = comm.split(all_ranks(comm), "group");
  comm.barrier();  // no rank is in the split any more
  if (comm.rank() == comm.size() - 1) group->abort("enough");
  const std::string message = message_of<CommAborted>([&] { group->barrier(); });
  EXPECT_TRUE(contains(message, "enough")) << message;
  comm.barrier();
}

// One rank requests something different. Each kind of difference uses a new group, which fails; the parent group stays
// usable.
void mismatch_is_reported_on_all_ranks(Comm& comm) {
  comm.set_timeout(kLongTimeout);
  const int n = comm.size(), odd_one = n / 2;
  const bool odd = comm.rank() == odd_one;
  const auto size = static_cast<size_t>(n);
  const std::vector<int64_t> ones(size, 1);
  std::vector<int64_t> twos(size, 1);
  twos[0] = 2;
  std::vector<float> in(2 * size), out(2 * size);
  const std::vector<Route> forth{{0, 1}}, back{{1, 0}};
  struct Difference {
    std::function<Work(Comm&)> others, mine;
    std::string others_text, my_text;
  };
  const auto reduce = [&](int64_t count, DType dtype, Reduction reduction) {
    return [&in, &out, count, dtype, reduction](Comm& group) {
      return group.start_all_reduce(in.data(), out.data(), count, dtype, reduction);
    };
  };
  const std::string list_of_ones = [&] {
    std::string text = "[1";
    for (int i = 1; i < n; ++i) text += ", 1";
    return text + "]";
  }();
  const std::vector<Difference> differences = {
      {reduce(2, f32, Reduction::sum), [](Comm& group) { return group.start_barrier(); }, "all_reduce of 2 f32 (sum)",
       "barrier"},
      {reduce(2, f32, Reduction::sum), reduce(1, f32, Reduction::sum), "all_reduce of 2 f32 (sum)",
       "all_reduce of 1 f32 (sum)"},
      {reduce(2, f32, Reduction::sum), reduce(2, i32, Reduction::sum), "all_reduce of 2 f32 (sum)",
       "all_reduce of 2 i32 (sum)"},
      {reduce(2, f32, Reduction::min), reduce(2, f32, Reduction::max), "(min)", "(max)"},
      {[&](Comm& group) { return group.start_broadcast(out.data(), 2, f32, 0); },
       [&](Comm& group) { return group.start_broadcast(out.data(), 2, f32, 1); }, "broadcast of 2 f32 from rank 0",
       "broadcast of 2 f32 from rank 1"},
      {[&](Comm& group) { return group.start_all_gather(in.data(), out.data(), ones, f32); },
       [&](Comm& group) { return group.start_all_gather(in.data(), out.data(), twos, f32); },
       "all_gather of " + list_of_ones + " f32", "2"},
      {[&](Comm& group) { return group.start_reduce_scatter(in.data(), out.data(), ones, f32, Reduction::sum); },
       [&](Comm& group) { return group.start_reduce_scatter(in.data(), out.data(), twos, f32, Reduction::sum); },
       "reduce_scatter of " + list_of_ones + " f32 (sum)", "2"},
      {[&](Comm& group) { return group.start_permute(in.data(), out.data(), 2, f32, forth); },
       [&](Comm& group) { return group.start_permute(in.data(), out.data(), 2, f32, back); }, "permute of 2 f32 (0->1)",
       "permute of 2 f32 (1->0)"},
      {[&](Comm& group) { return group.start_all_to_all(in.data(), out.data(), ones, ones, f32); },
       [&](Comm& group) { return group.start_all_to_all(in.data(), out.data(), twos, ones, f32); },
       "all_to_all of f32 (sends " + list_of_ones + ", receives " + list_of_ones + ")", "sends"},
  };
  for (const Difference& difference : differences) {
    const std::unique_ptr<Comm> group = comm.split(all_ranks(comm), "group");
    const std::string message = message_of<Error>([&] { (odd ? difference.mine : difference.others)(*group).wait(); });
    EXPECT_TRUE(contains(message, "operation 1 on \"group\"")) << message;
    EXPECT_TRUE(contains(message, "rank " + std::to_string(odd_one) + " ")) << message;
    EXPECT_TRUE(contains(message, difference.others_text)) << message;
    EXPECT_TRUE(contains(message, difference.my_text)) << message;
    message_of<Error>([&] { group->barrier(); });
    comm.barrier();
  }
}

void split_with_different_lists_is_rejected(Comm& comm) {
  comm.set_timeout(kLongTimeout);
  std::vector<int> other = all_ranks(comm);
  std::swap(other.front(), other.back());
  const std::string message =
      message_of<Error>([&] { comm.split(comm.rank() == 0 ? other : all_ranks(comm), "group"); });
  EXPECT_TRUE(contains(message, "the members of a group must give the same list")) << message;
  message_of<Error>([&] { comm.barrier(); });
}

// Invalid arguments throw immediately, and do not fail the group.
void invalid_arguments_are_rejected(Comm& comm) {
  const int n = comm.size();
  const auto size = static_cast<size_t>(n);
  std::vector<float> data(4 * size + 4);
  float* in = data.data();
  float* out = data.data() + 2 * size + 2;
  const std::vector<int64_t> ones(size, 1), twos(size, 2), negative(size, -1), too_many(size + 1, 1);
  EXPECT_THROWS(comm.all_reduce(in, out, -1, f32, Reduction::sum), Error,
                "all_reduce: invalid count of -1 elements; it must be 0 or more");
  EXPECT_THROWS(comm.all_reduce(in, out, 1, boolean, Reduction::sum), Error,
                "all_reduce: booleans have no sum; use max for \"any\", min for \"all\", or convert to i32 to count");
  EXPECT_THROWS(comm.reduce_scatter(in, out, ones, boolean, Reduction::sum), Error, "reduce_scatter: booleans");
  EXPECT_THROWS(
      comm.all_reduce(in, in + 1, 2, f32, Reduction::sum), Error,
      "all_reduce: the 2 input elements and the 2 output elements overlap; use the same memory for both, or memory "
      "that does not overlap");
  EXPECT_THROWS(comm.reduce_scatter(in, in + 2 * comm.rank() + 1, twos, f32, Reduction::sum), Error,
                "write to this rank's own piece of the input, or to other memory");
  EXPECT_THROWS(comm.all_gather(in, out, too_many, f32), Error, "counts for");
  EXPECT_THROWS(comm.all_gather(in, out, negative, f32), Error, "include a negative one; counts must be 0 or more");
  EXPECT_THROWS(comm.all_gather(in + comm.rank() * 2 + 1, in, twos, f32), Error,
                "read from this rank's own piece of the output, or from other memory");
  EXPECT_THROWS(comm.all_to_all(in, in, ones, ones, f32), Error, "this operation cannot be done in place");
  EXPECT_THROWS(comm.all_to_all(in, out, ones, twos, f32), Error, "sends 1 elements to itself and receives 2");
  EXPECT_THROWS(comm.permute(in, in, 1, f32, {}), Error, "this operation cannot be done in place");
  EXPECT_THROWS(comm.permute(in, out, 1, f32, std::vector<Route>{{0, n}}), Error,
                "is outside the group; its ranks are 0");
  EXPECT_THROWS(comm.permute(in, out, 1, f32, std::vector<Route>{{0, 0}, {0, n - 1}}), Error,
                "permute: rank 0 is a source twice in 0->0, 0->");
  if (n > 1)
    EXPECT_THROWS(comm.permute(in, out, 1, f32, std::vector<Route>{{0, 0}, {1, 0}}), Error,
                  "permute: rank 0 is a destination twice in 0->0, 1->0; a rank may send once and receive once");
  EXPECT_THROWS(comm.broadcast(in, 1, f32, n), Error, "is not in the group; its ranks are 0 to");
  EXPECT_THROWS(comm.split({comm.rank(), n}, "group"), Error, "has a rank outside \"world\"");
  EXPECT_THROWS(comm.split({comm.rank(), comm.rank()}, "group"), Error, "has a repeated rank; list each rank once");
  EXPECT_THROWS(comm.split({}, "group"), Error, "is not in []; only the members of a group may create it");
  EXPECT_THROWS(comm.set_timeout(milliseconds(0)), Error,
                "the timeout of \"world\" was set to 0 s; it must be positive");
  EXPECT_EQ(comm.timeout(), Comm::kDefaultTimeout);
  comm.barrier();
}

}  // namespace

std::vector<Check> failure_checks() {
  return {{"TimeoutNamesMissingRank", timeout_names_missing_rank, 2},
          {"SplitTimeoutNamesMissingMember", split_timeout_names_missing_member, 2},
          {"AbortReachesAllRanksWithFirstReason", abort_reaches_all_ranks_with_first_reason},
          {"AbortOfSubgroupDoesNotAffectParent", abort_of_subgroup_does_not_affect_parent},
          {"MismatchIsReportedOnAllRanks", mismatch_is_reported_on_all_ranks, 2},
          {"SplitWithDifferentListsIsRejected", split_with_different_lists_is_rejected, 2},
          {"InvalidArgumentsAreRejected", invalid_arguments_are_rejected}};
}

}  // namespace lockstep::conformance
