// Peers that never come, that give up, and that ask for something else; and arguments that make no sense.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "base/throws.h"
#include "comm/conformance.h"
#include "lockstep/error.h"

namespace lockstep::conformance {
namespace {

using std::chrono::milliseconds;

// Long enough never to pass on a busy machine, short enough to end a test that hangs.
constexpr auto kPatience = std::chrono::seconds(60);

std::vector<int> all_ranks(const Comm& comm) {
  std::vector<int> ranks(static_cast<size_t>(comm.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

bool has(const std::string& message, const std::string& part) { return message.find(part) != std::string::npos; }

// What the call throws, which must be of type E or derived from it.
template <class E>
std::string thrown(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another type: " << error.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

// The last rank never comes. Every other stops: by its own deadline, or told by one whose deadline came first.
void a_peer_that_never_comes_is_named(Comm& comm) {
  comm.set_timeout(milliseconds(100));
  const int missing = comm.size() - 1;
  if (comm.rank() == missing) return;
  int64_t value = 1;
  const std::string message = thrown<CommError>([&] { comm.all_reduce(&value, &value, 1, i64, Reduction::sum); });
  EXPECT_TRUE(has(message, "all_reduce")) << message;
  EXPECT_TRUE(has(message, "\"world\"")) << message;
  EXPECT_TRUE(has(message, "waited 0.1 s for rank " + std::to_string(missing)) ||
              has(message, "waited 0.1 s for ranks"))
      << message;  // ranks: others were still on their way
  EXPECT_TRUE(has(message, std::to_string(missing) + "; ")) << message;
  thrown<CommError>([&] { comm.barrier(); });
}

void a_member_that_never_splits_is_named(Comm& comm) {
  comm.set_timeout(kPatience);
  comm.barrier();  // all others come at about the same time
  comm.set_timeout(milliseconds(300));
  if (comm.rank() == comm.size() - 1) return;
  const std::string message = thrown<CommError>([&] { comm.split(all_ranks(comm), "rows"); });
  EXPECT_TRUE(has(message, "split 0 on \"rows\"")) << message;
  EXPECT_TRUE(has(message, std::to_string(comm.size() - 1) + " (" + std::to_string(comm.size() - 1) + " of \"world\")"))
      << message;
}

void abort_reaches_everybody_with_the_first_reason(Comm& comm) {
  comm.set_timeout(kPatience);
  const std::unique_ptr<Comm> group = comm.split(all_ranks(comm), "group");
  int64_t value = 1;
  // Nobody is in the split any more when rank 0 has seen all come here. The meeting itself may be cut short for others:
  // between processes an operation under way need not survive its group.
  try {
    comm.barrier();
  } catch (const CommAborted&) {
    EXPECT_NE(comm.rank(), 0);
  }
  if (comm.rank() == 0) {
    comm.abort("the disk is full");
    comm.abort("something later");
  }
  // Some wait in the group that is aborted, some in one split from it; for those who come late it is the next call.
  Comm& mine = comm.rank() % 2 == 0 ? comm : *group;
  for (int again = 0; again < 2; ++again) {
    const std::string message = thrown<CommAborted>([&] { mine.all_reduce(&value, &value, 1, i64, Reduction::sum); });
    EXPECT_TRUE(has(message, "first cause: rank 0: the disk is full")) << message;
    EXPECT_TRUE(has(message, " on \"" + mine.name() + "\"")) << message;
  }
  thrown<CommAborted>([&] { comm.split({comm.rank()}, "late"); });
}

void abort_of_a_group_leaves_the_whole_alone(Comm& comm) {
  comm.set_timeout(kPatience);
  const std::unique_ptr<Comm> group = comm.split(all_ranks(comm), "group");
  comm.barrier();  // nobody is in the split any more
  if (comm.rank() == comm.size() - 1) group->abort("enough");
  const std::string message = thrown<CommAborted>([&] { group->barrier(); });
  EXPECT_TRUE(has(message, "enough")) << message;
  comm.barrier();
}

// One rank asks for something else: each kind of difference in a group of its own, which it breaks. The whole goes on.
void ranks_that_disagree_all_hear_of_it(Comm& comm) {
  comm.set_timeout(kPatience);
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
    const std::string message = thrown<Error>([&] { (odd ? difference.mine : difference.others)(*group).wait(); });
    EXPECT_TRUE(has(message, "operation 1 on \"group\"")) << message;
    EXPECT_TRUE(has(message, "rank " + std::to_string(odd_one) + " ")) << message;
    EXPECT_TRUE(has(message, difference.others_text)) << message;
    EXPECT_TRUE(has(message, difference.my_text)) << message;
    thrown<Error>([&] { group->barrier(); });
    comm.barrier();
  }
}

void lists_of_a_split_that_differ_are_refused(Comm& comm) {
  comm.set_timeout(kPatience);
  std::vector<int> other = all_ranks(comm);
  std::swap(other.front(), other.back());
  const std::string message = thrown<Error>([&] { comm.split(comm.rank() == 0 ? other : all_ranks(comm), "group"); });
  EXPECT_TRUE(has(message, "the members of a group must give the same list")) << message;
  thrown<Error>([&] { comm.barrier(); });
}

// What makes no sense on its own is refused at once, and the group goes on.
void senseless_arguments_are_refused(Comm& comm) {
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
  return {{"APeerThatNeverComesIsNamed", a_peer_that_never_comes_is_named, 2},
          {"AMemberThatNeverSplitsIsNamed", a_member_that_never_splits_is_named, 2},
          {"AbortReachesEverybodyWithTheFirstReason", abort_reaches_everybody_with_the_first_reason},
          {"AbortOfAGroupLeavesTheWholeAlone", abort_of_a_group_leaves_the_whole_alone},
          {"RanksThatDisagreeAllHearOfIt", ranks_that_disagree_all_hear_of_it, 2},
          {"ListsOfASplitThatDifferAreRefused", lists_of_a_split_that_differ_are_refused, 2},
          {"SenselessArgumentsAreRefused", senseless_arguments_are_refused}};
}

}  // namespace lockstep::conformance
