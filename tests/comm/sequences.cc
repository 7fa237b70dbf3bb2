// Sequences of operations: many in flight, waited for in any order, on several groups, and random ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include "comm/conformance.h"
#include "comm/values.h"

namespace lockstep::conformance {
namespace {

std::vector<int> every_rank(const Comm& comm) {
  std::vector<int> ranks(static_cast<size_t>(comm.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// 0 + 1 + ... + (n - 1)
int64_t sum_of_ranks(int n) { return int64_t{n} * (n - 1) / 2; }

// The sum of `value + rank` over the group.
void expect_sum(Comm& comm, int64_t value) {
  int64_t sum = value + comm.rank();
  comm.all_reduce(&sum, &sum, 1, i64, Reduction::sum);
  EXPECT_EQ(sum, comm.size() * value + sum_of_ranks(comm.size())) << comm.name();
}

void barriers_and_sums_can_alternate(Comm& comm) {
  for (int64_t round = 0; round < 200; ++round) {
    comm.barrier();
    expect_sum(comm, round);
  }
}

void many_operations_can_be_in_flight(Comm& comm) {
  constexpr int64_t kMany = 100;
  for (int round = 0; round < 3; ++round) {
    std::vector<int64_t> values(kMany);
    std::vector<Work> works;
    for (int64_t i = 0; i < kMany; ++i) {
      int64_t& value = values[static_cast<size_t>(i)];
      value = i + comm.rank();
      works.push_back(comm.start_all_reduce(&value, &value, 1, i64, Reduction::sum));
    }
    // Each rank waits in a different order.
    std::vector<size_t> order(kMany);
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(round * 100 + comm.rank())));
    for (const size_t i : order) {
      EXPECT_TRUE(works[i]);
      works[i].wait();
      EXPECT_FALSE(works[i]);
      works[i].wait();  // already waited for: returns immediately
      EXPECT_EQ(values[i], comm.size() * static_cast<int64_t>(i) + sum_of_ranks(comm.size()));
    }
  }
}

// Large operations, which even and odd ranks wait for in opposite orders.
void ranks_may_wait_in_opposite_orders(Comm& comm) {
  constexpr int64_t kCount = 100000;
  std::vector<std::vector<int32_t>> data(4);
  std::vector<Work> works;
  for (size_t i = 0; i < data.size(); ++i) {
    data[i].assign(kCount, static_cast<int32_t>(i) + comm.rank());
    works.push_back(comm.start_all_reduce(data[i].data(), data[i].data(), kCount, i32, Reduction::sum));
  }
  if (comm.rank() % 2 != 0) std::ranges::reverse(works);
  for (Work& work : works) work.wait();
  for (size_t i = 0; i < data.size(); ++i)
    EXPECT_EQ(std::ranges::count(data[i],
                                 static_cast<int32_t>(comm.size() * static_cast<int>(i) + sum_of_ranks(comm.size()))),
              kCount);
}

// A grid of ranks, with operations of rows, columns and all ranks in flight at the same time.
void row_and_column_groups_work_concurrently(Comm& comm) {
  const int columns = comm.size() % 4 == 0 ? 4 : comm.size() % 2 == 0 ? 2 : 1, rows = comm.size() / columns;
  const int row = comm.rank() / columns, column = comm.rank() % columns;
  std::vector<int> in_row, in_column;
  for (int i = 0; i < columns; ++i) in_row.push_back(row * columns + i);
  for (int i = 0; i < rows; ++i) in_column.push_back(i * columns + column);
  const std::unique_ptr<Comm> across = comm.split(in_row, "x"), down = comm.split(in_column, "y");
  EXPECT_EQ(across->name(), "x");
  EXPECT_EQ(across->size(), columns);
  EXPECT_EQ(across->rank(), column);
  EXPECT_EQ(down->size(), rows);
  EXPECT_EQ(down->rank(), row);
  for (int64_t round = 0; round < 50; ++round) {
    int64_t a = comm.rank() + round, b = a, c = a;
    Work of_row = across->start_all_reduce(&a, &a, 1, i64, Reduction::sum);
    Work of_column = down->start_all_reduce(&b, &b, 1, i64, Reduction::sum);
    Work of_all = comm.start_all_reduce(&c, &c, 1, i64, Reduction::max);
    of_all.wait();
    of_column.wait();
    of_row.wait();
    EXPECT_EQ(a, columns * (row * columns + round) + sum_of_ranks(columns));
    EXPECT_EQ(b, rows * (column + round) + columns * sum_of_ranks(rows));
    EXPECT_EQ(c, comm.size() - 1 + round);
  }
}

void split_numbers_members_in_list_order(Comm& comm) {
  std::vector<int> reversed = every_rank(comm);
  std::ranges::reverse(reversed);
  comm.set_timeout(std::chrono::seconds(50));
  const std::unique_ptr<Comm> group = comm.split(reversed, "reversed");
  EXPECT_EQ(group->rank(), comm.size() - 1 - comm.rank());
  EXPECT_EQ(group->timeout(), std::chrono::seconds(50));
  int32_t root = comm.rank();
  group->broadcast(&root, 1, i32, 0);
  EXPECT_EQ(root, comm.size() - 1);
  // The same list and name again create another, independent group.
  const std::unique_ptr<Comm> again = comm.split(reversed, "reversed");
  int64_t a = 1, b = 2;
  Work first = group->start_all_reduce(&a, &a, 1, i64, Reduction::sum);
  again->all_reduce(&b, &b, 1, i64, Reduction::sum);
  first.wait();
  EXPECT_EQ(a, comm.size());
  EXPECT_EQ(b, 2 * comm.size());
  // A group of one rank, and a group split from a group.
  expect_sum(*comm.split({comm.rank()}, "single"), 3);
  if (group->rank() > 0 || group->size() == 1) {
    std::vector<int> rest = every_rank(*group);
    if (rest.size() > 1) rest.erase(rest.begin());
    expect_sum(*group->split(rest, "rest"), 4);
  }
}

// One operation of a random sequence, with its memory and its expected result.
struct Step {
  std::vector<int32_t> in, out, expected;
  std::vector<int64_t> counts, receive_counts;
  std::vector<Route> routes;
  Work work;
};

// Starts one random operation. All ranks make the same random choices.
class RandomStep {
 public:
  RandomStep(Comm& comm, std::mt19937& random)
      : comm_(comm), random_(random), base_(static_cast<int32_t>(up_to(1000))) {}

  std::unique_ptr<Step> start() {
    const int64_t count = up_to(9) == 0 ? up_to(40000) : up_to(40);
    switch (up_to(6)) {
      case 0:
        all_reduce(count);
        break;
      case 1:
        reduce_scatter();
        break;
      case 2:
        all_gather();
        break;
      case 3:
        all_to_all();
        break;
      case 4:
        permute(count);
        break;
      case 5:
        broadcast(count);
        break;
      default:
        step_->work = comm_.start_barrier();
    }
    return std::move(step_);
  }

 private:
  void all_reduce(int64_t count) {
    Step& s = *step_;
    s.in = piece(me_, 0, count);
    s.out.resize(s.in.size());
    s.expected = fill<int32_t>(count, [&](int64_t i) { return n_ * value(0, i) + 7 * sum_of_ranks(n_); });
    s.work = comm_.start_all_reduce(s.in.data(), s.out.data(), count, i32, Reduction::sum);
  }

  void reduce_scatter() {
    Step& s = *step_;
    for (int r = 0; r < n_; ++r) s.counts.push_back(up_to(30));
    const int64_t from = std::accumulate(s.counts.begin(), s.counts.begin() + me_, int64_t{0});
    s.in = piece(me_, 0, std::accumulate(s.counts.begin(), s.counts.end(), int64_t{0}));
    s.expected = piece(n_ - 1, from, s.counts[static_cast<size_t>(me_)]);
    s.out.resize(s.expected.size());
    s.work = comm_.start_reduce_scatter(s.in.data(), s.out.data(), s.counts, i32, Reduction::max);
  }

  void all_gather() {
    Step& s = *step_;
    for (int r = 0; r < n_; ++r) {
      s.counts.push_back(up_to(30));
      append(s.expected, piece(r, 0, s.counts.back()));
    }
    s.in = piece(me_, 0, s.counts[static_cast<size_t>(me_)]);
    s.out.resize(s.expected.size());
    s.work = comm_.start_all_gather(s.in.data(), s.out.data(), s.counts, i32);
  }

  void all_to_all() {
    Step& s = *step_;
    for (int source = 0; source < n_; ++source)
      for (int destination = 0; destination < n_; ++destination) {
        const int64_t count = up_to(20);
        const std::vector<int32_t> part = piece(source, destination, count);
        if (source == me_) {
          s.counts.push_back(count);
          append(s.in, part);
        }
        if (destination == me_) {
          s.receive_counts.push_back(count);
          append(s.expected, part);
        }
      }
    s.out.resize(s.expected.size());
    s.work = comm_.start_all_to_all(s.in.data(), s.out.data(), s.counts, s.receive_counts, i32);
  }

  void permute(int64_t count) {
    Step& s = *step_;
    const auto shift = static_cast<int>(up_to(n_ - 1));
    for (int r = 0; r + shift < n_; ++r) s.routes.push_back({r, r + shift});
    s.in = piece(me_, 0, count);
    s.out.assign(s.in.size(), -1);
    s.expected = me_ >= shift ? piece(me_ - shift, 0, count) : std::vector<int32_t>(s.in.size());
    s.work = comm_.start_permute(s.in.data(), s.out.data(), count, i32, s.routes);
  }

  void broadcast(int64_t count) {
    Step& s = *step_;
    const auto root = static_cast<int>(up_to(n_ - 1));
    s.out = piece(me_, 0, count);
    s.expected = piece(root, 0, count);
    s.work = comm_.start_broadcast(s.out.data(), count, i32, root);
  }

  int64_t up_to(int64_t most) { return static_cast<int64_t>(random_() % static_cast<unsigned>(most + 1)); }

  // The input of rank r at index i.
  int32_t value(int r, int64_t i) const { return base_ + static_cast<int32_t>(r * 7 + i % 13); }

  std::vector<int32_t> piece(int r, int64_t from, int64_t count) const {
    return fill<int32_t>(count, [&](int64_t i) { return value(r, from + i); });
  }

  static void append(std::vector<int32_t>& to, const std::vector<int32_t>& part) {
    to.insert(to.end(), part.begin(), part.end());
  }

  Comm& comm_;
  std::mt19937& random_;
  const int32_t base_;
  const int n_ = comm_.size(), me_ = comm_.rank();
  std::unique_ptr<Step> step_ = std::make_unique<Step>();
};

void random_sequences_complete(Comm& comm) {
  std::mt19937 shared(7);                                    // the same on all ranks: which operations are started
  std::mt19937 own(static_cast<unsigned>(comm.rank() + 1));  // different on each rank: which operation is waited for
  std::vector<std::unique_ptr<Step>> in_flight;
  const auto finish = [&](size_t i) {
    in_flight[i]->work.wait();
    EXPECT_EQ(in_flight[i]->out, in_flight[i]->expected);
    in_flight.erase(in_flight.begin() + static_cast<std::ptrdiff_t>(i));
  };
  for (int i = 0; i < 300; ++i) {
    in_flight.push_back(RandomStep(comm, shared).start());
    while (!in_flight.empty() && (in_flight.size() > 12 || own() % 3 == 0)) finish(own() % in_flight.size());
  }
  while (!in_flight.empty()) finish(in_flight.size() - 1);
}

}  // namespace

std::vector<Check> sequence_checks() {
  return {{"BarriersAndSumsCanAlternate", barriers_and_sums_can_alternate},
          {"ManyOperationsCanBeInFlight", many_operations_can_be_in_flight},
          {"RanksMayWaitInOppositeOrders", ranks_may_wait_in_opposite_orders},
          {"RowAndColumnGroupsWorkConcurrently", row_and_column_groups_work_concurrently},
          {"SplitNumbersMembersInListOrder", split_numbers_members_in_list_order},
          {"RandomSequencesComplete", random_sequences_complete}};
}

}  // namespace lockstep::conformance
