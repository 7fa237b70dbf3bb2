// Results of every operation: every element type, empty, odd and large buffers, in place and not, uneven pieces.
#include "comm/values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/dispatch.h"
#include "comm/conformance.h"

namespace lockstep::conformance {
namespace {

constexpr int64_t kLarge = 1 << 20;

// Calls f.template operator()<T>() for every element type with arithmetic.
template <class F>
void every_dtype(F&& f) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (const auto dtype = static_cast<DType>(i); !is_float8(dtype) && !is_complex(dtype)) with_dtype(dtype, f);
}

std::vector<Reduction> reductions(DType dtype) {
  if (dtype == DType::boolean) return {Reduction::max, Reduction::min};
  return {Reduction::sum, Reduction::max, Reduction::min};
}

int64_t reduced(DType dtype, Reduction reduction, int ranks, int64_t i) {
  int64_t result = input(dtype, 0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const int64_t value = input(dtype, rank, i);
    result = reduction == Reduction::sum   ? result + value
             : reduction == Reduction::max ? std::max(result, value)
                                           : std::min(result, value);
  }
  return result;
}

// Uneven counts, some of them 0. A large `scale` makes some pieces span several tiles or chunks of every backend.
std::vector<int64_t> uneven(int ranks, int64_t scale) {
  std::vector<int64_t> counts;
  for (int rank = 0; rank < ranks; ++rank) counts.push_back(rank % 3 == 1 ? 0 : 5 + rank * scale);
  return counts;
}

int64_t total(const std::vector<int64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
int64_t before(const std::vector<int64_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
}

template <class T>
void all_reduce_of(Comm& comm, int64_t count, Reduction reduction) {
  const DType dtype = dtype_of<T>;
  const auto expected = fill<T>(count, [&](int64_t i) { return reduced(dtype, reduction, comm.size(), i); });
  const auto in = input<T>(comm.rank(), count);
  std::vector<Stored<T>> out(in.size());
  comm.all_reduce(in.data(), out.data(), count, dtype, reduction);
  EXPECT_TRUE(same_bits(out, expected)) << name(dtype) << " " << name(reduction) << " " << count;
  EXPECT_TRUE(same_bits(in, input<T>(comm.rank(), count)));
  out = in;
  comm.all_reduce(out.data(), out.data(), count, dtype, reduction);
  EXPECT_TRUE(same_bits(out, expected)) << "in place: " << name(dtype) << " " << name(reduction) << " " << count;
}

void all_reduce(Comm& comm) {
  every_dtype([&]<class T>() {
    for (const Reduction reduction : reductions(dtype_of<T>))
      for (const int64_t count : {0, 1, 3, 1021}) all_reduce_of<T>(comm, count, reduction);
  });
  all_reduce_of<float>(comm, kLarge, Reduction::sum);
  all_reduce_of<BFloat16>(comm, kLarge - 3, Reduction::max);
}

// Even ranks reduce in place, odd ranks do not.
void all_reduce_with_some_ranks_in_place(Comm& comm) {
  for (const int64_t count : {5, 100003}) {
    std::vector<int32_t> in = input<int32_t>(comm.rank(), count), apart(in.size());
    std::vector<int32_t>& out = comm.rank() % 2 == 0 ? in : apart;
    comm.all_reduce(in.data(), out.data(), count, i32, Reduction::sum);
    EXPECT_TRUE(
        same_bits(out, fill<int32_t>(count, [&](int64_t i) { return reduced(i32, Reduction::sum, comm.size(), i); })));
  }
}

// The sum of these terms depends on their order: every rank must still get the same bits, every time.
void sums_have_the_same_bits_on_all_ranks(Comm& comm) {
  constexpr int64_t kCount = 1021;
  std::vector<float> in(kCount), first(kCount), out(kCount);
  for (int64_t i = 0; i < kCount; ++i)
    in[static_cast<size_t>(i)] = std::sin(static_cast<float>(i * 17 + comm.rank() * 101)) *
                                 std::exp2(static_cast<float>((i + comm.rank() * 7) % 24));
  comm.all_reduce(in.data(), first.data(), kCount, f32, Reduction::sum);
  std::vector<float> all(kCount * static_cast<size_t>(comm.size()));
  comm.all_gather(first.data(), all.data(), std::vector<int64_t>(static_cast<size_t>(comm.size()), kCount), f32);
  for (int rank = 0; rank < comm.size(); ++rank)
    EXPECT_EQ(std::memcmp(all.data() + rank * kCount, first.data(), kCount * sizeof(float)), 0) << "rank " << rank;
  for (int round = 0; round < 10; ++round) {
    comm.all_reduce(in.data(), out.data(), kCount, f32, Reduction::sum);
    EXPECT_TRUE(same_bits(out, first));
  }
}

void reductions_propagate_nan(Comm& comm) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int where = 0; where < comm.size(); ++where)
    for (const Reduction reduction : reductions(f32)) {
      float value = comm.rank() == where ? nan : static_cast<float>(comm.rank());
      comm.all_reduce(&value, &value, 1, f32, reduction);
      EXPECT_TRUE(std::isnan(value)) << name(reduction) << ", from rank " << where;
    }
}

void integer_sums_wrap(Comm& comm) {
  int32_t value = std::numeric_limits<int32_t>::max();
  uint8_t byte = 255;
  comm.all_reduce(&value, &value, 1, i32, Reduction::sum);
  comm.all_reduce(&byte, &byte, 1, u8, Reduction::sum);
  const auto n = static_cast<uint32_t>(comm.size());
  EXPECT_EQ(static_cast<uint32_t>(value), 0x7fffffffu * n);
  EXPECT_EQ(byte, static_cast<uint8_t>(0u - n));
}

template <class T>
void reduce_scatter_of(Comm& comm, const std::vector<int64_t>& counts, Reduction reduction) {
  const int64_t all = total(counts), mine = counts[static_cast<size_t>(comm.rank())],
                offset = before(counts, comm.rank());
  const auto expected =
      fill<T>(mine, [&](int64_t i) { return reduced(dtype_of<T>, reduction, comm.size(), offset + i); });
  auto in = input<T>(comm.rank(), all);
  std::vector<Stored<T>> out(static_cast<size_t>(mine));
  comm.reduce_scatter(in.data(), out.data(), counts, dtype_of<T>, reduction);
  EXPECT_TRUE(same_bits(out, expected)) << name(dtype_of<T>) << " " << name(reduction);
  auto after = input<T>(comm.rank(), all);
  EXPECT_TRUE(same_bits(in, after));
  comm.reduce_scatter(in.data(), in.data() + offset, counts, dtype_of<T>, reduction);
  std::ranges::copy(expected, after.begin() + offset);
  EXPECT_TRUE(same_bits(in, after)) << "in place: " << name(dtype_of<T>) << " " << name(reduction);
}

void reduce_scatter(Comm& comm) {
  every_dtype([&]<class T>() {
    for (const Reduction reduction : reductions(dtype_of<T>))
      reduce_scatter_of<T>(comm, uneven(comm.size(), 3), reduction);
  });
  const auto size = static_cast<size_t>(comm.size());
  reduce_scatter_of<float>(comm, uneven(comm.size(), 30011), Reduction::sum);
  reduce_scatter_of<int64_t>(comm, std::vector<int64_t>(size, 1000), Reduction::min);
  reduce_scatter_of<float>(comm, std::vector<int64_t>(size, 0), Reduction::sum);
}

template <class T>
void all_gather_of(Comm& comm, const std::vector<int64_t>& counts) {
  const int64_t mine = counts[static_cast<size_t>(comm.rank())], offset = before(counts, comm.rank());
  std::vector<Stored<T>> expected;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto piece = input<T>(rank, counts[static_cast<size_t>(rank)]);
    expected.insert(expected.end(), piece.begin(), piece.end());
  }
  const auto in = input<T>(comm.rank(), mine);
  std::vector<Stored<T>> out(expected.size());
  comm.all_gather(in.data(), out.data(), counts, dtype_of<T>);
  EXPECT_TRUE(same_bits(out, expected)) << name(dtype_of<T>);
  std::ranges::fill(out, Stored<T>{});
  std::ranges::copy(in, out.begin() + offset);
  comm.all_gather(out.data() + offset, out.data(), counts, dtype_of<T>);
  EXPECT_TRUE(same_bits(out, expected)) << "in place: " << name(dtype_of<T>);
}

void all_gather(Comm& comm) {
  every_dtype([&]<class T>() { all_gather_of<T>(comm, uneven(comm.size(), 7)); });
  const auto size = static_cast<size_t>(comm.size());
  all_gather_of<float>(comm, uneven(comm.size(), 30011));
  all_gather_of<uint8_t>(comm, std::vector<int64_t>(size, 1021));
  all_gather_of<float>(comm, std::vector<int64_t>(size, 0));
}

// Rank s sends `count(s, d)` elements to rank d. Their values identify s and d.
template <class T, class Count>
void all_to_all_of(Comm& comm, Count count) {
  std::vector<int64_t> sent, received;
  std::vector<Stored<T>> in, expected;
  const auto add = [](std::vector<Stored<T>>& to, int64_t n, int source, int destination) {
    for (int64_t i = 0; i < n; ++i)
      to.push_back(convert<Stored<T>>(dtype_of<T> == boolean ? (source + destination + i) % 2
                                                             : 10 * source + destination + i % 5));
  };
  for (int other = 0; other < comm.size(); ++other) {
    sent.push_back(count(comm.rank(), other));
    received.push_back(count(other, comm.rank()));
    add(in, sent.back(), comm.rank(), other);
    add(expected, received.back(), other, comm.rank());
  }
  std::vector<Stored<T>> out(expected.size());
  comm.all_to_all(in.data(), out.data(), sent, received, dtype_of<T>);
  EXPECT_TRUE(same_bits(out, expected)) << name(dtype_of<T>);
}

void all_to_all(Comm& comm) {
  every_dtype([&]<class T>() {
    all_to_all_of<T>(comm, [](int, int) { return 3; });
    all_to_all_of<T>(comm, [](int source, int destination) { return (source * 3 + destination) % 4; });
  });
  all_to_all_of<float>(comm, [](int source, int destination) { return source == 0 ? 0 : 7001 * destination; });
  all_to_all_of<float>(comm, [](int, int) { return 0; });
}

template <class T>
void permute_of(Comm& comm, int64_t count, const std::vector<Route>& routes) {
  const auto in = input<T>(comm.rank(), count);
  std::vector<Stored<T>> out(in.size(), convert<Stored<T>>(1));
  std::vector<Stored<T>> expected(in.size());
  for (const auto& [source, destination] : routes)
    if (destination == comm.rank()) expected = input<T>(source, count);
  comm.permute(in.data(), out.data(), count, dtype_of<T>, routes);
  EXPECT_TRUE(same_bits(out, expected)) << name(dtype_of<T>) << " " << count;
}

void permute(Comm& comm) {
  const int n = comm.size();
  std::vector<Route> ring, shift, reverse, itself;
  for (int rank = 0; rank < n; ++rank) {
    ring.push_back({rank, (rank + 1) % n});
    if (rank + 1 < n) shift.push_back({rank, rank + 1});  // rank 0 receives nothing
    reverse.push_back({rank, n - 1 - rank});
  }
  itself.push_back({n - 1, n - 1});
  every_dtype([&]<class T>() {
    for (const auto& routes : {ring, shift, reverse, itself, {}}) permute_of<T>(comm, 37, routes);
  });
  for (const int64_t count : {0, 1, 1021, 200003}) permute_of<float>(comm, count, shift);
}

void broadcast(Comm& comm) {
  every_dtype([&]<class T>() {
    for (int root = 0; root < comm.size(); ++root) {
      auto data = input<T>(comm.rank(), 1021);
      comm.broadcast(data.data(), 1021, dtype_of<T>, root);
      EXPECT_TRUE(same_bits(data, input<T>(root, 1021))) << name(dtype_of<T>) << " from " << root;
    }
  });
  for (const int64_t count : {int64_t{0}, int64_t{1}, kLarge}) {
    auto data = input<float>(comm.rank(), count);
    comm.broadcast(data.data(), count, f32, comm.size() - 1);
    EXPECT_TRUE(same_bits(data, input<float>(comm.size() - 1, count)));
  }
}

// Back ends over messages send payloads up to a limit, about 32 KiB divided by the ranks, with the requests.
void payloads_around_a_limit(Comm& comm) {
  const int64_t limit = std::max<int64_t>((32 << 10) / std::max(comm.size(), 2), 256);
  for (int64_t count = limit - 17; count <= limit + 9; ++count) {
    all_reduce_of<uint8_t>(comm, count, Reduction::max);
    auto data = input<uint8_t>(comm.rank(), count);
    comm.broadcast(data.data(), count, u8, comm.size() - 1);
    EXPECT_TRUE(same_bits(data, input<uint8_t>(comm.size() - 1, count))) << count << " bytes";
  }
}

}  // namespace

std::vector<Check> value_checks() {
  return {{"AllReduce", all_reduce},
          {"AllReduceWithSomeRanksInPlace", all_reduce_with_some_ranks_in_place},
          {"SumsHaveTheSameBitsOnAllRanks", sums_have_the_same_bits_on_all_ranks},
          {"ReductionsPropagateNan", reductions_propagate_nan},
          {"IntegerSumsWrap", integer_sums_wrap},
          {"ReduceScatter", reduce_scatter},
          {"AllGather", all_gather},
          {"AllToAll", all_to_all},
          {"Permute", permute},
          {"Broadcast", broadcast},
          {"PayloadsAroundALimit", payloads_around_a_limit}};
}

}  // namespace lockstep::conformance
