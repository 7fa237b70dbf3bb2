#include "large/large.h"

#include <algorithm>
#include <fstream>
#include <set>

#include "lane/buffer.h"
#include "lane/memory.h"
#include "support/long_tests.h"
#include "support/sanitizers.h"

namespace lockstep {
namespace {

struct Numbers {
  int64_t n = 0;
  Array array;
};
Numbers& kept_numbers() {
  static Numbers* const kept = new Numbers;  // never destroyed: arrays must not outlive their runtime
  return *kept;
}

int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  int64_t kilobytes = 0;
  while (file >> name >> kilobytes) {
    if (name == "MemAvailable:") return std::min(kilobytes << 10, machine_memory());
    std::getline(file, unit);
  }
  return machine_memory();
}

}  // namespace

const Array& numbers(int64_t n) {
  Numbers& kept = kept_numbers();
  if (kept.n == n) return kept.array;
  free_memory();
  std::vector<uint8_t> all(static_cast<size_t>(n));
  // A whole number of periods at a time.
  const size_t piece = std::min<size_t>(all.size(), 251 * 4096);
  for (size_t i = 0; i < piece; ++i) all[i] = static_cast<uint8_t>(number_at(static_cast<int64_t>(i)));
  for (size_t i = piece; i < all.size(); i += piece)
    std::copy_n(all.begin(), std::min(piece, all.size() - i), all.begin() + static_cast<std::ptrdiff_t>(i));
  kept = {n, Array::from(std::move(all), {n})};
  return kept.array;
}

void free_memory() {
  kept_numbers() = {};
  Allocator::host().trim();
}

std::string missing_memory(int64_t bytes, int64_t n) {
  const int64_t needed = platform() == Platform::cuda ? 3 * n : bytes, available = available_memory();
  if (kSanitized) return "sanitizers take several times the memory of the arrays";
  if (available >= needed) return "";
  return fmt::format("{:.1f} GB of memory are available, and the test needs {:.1f} GB",
                     static_cast<double>(available) / 1e9, static_cast<double>(needed) / 1e9);
}

std::vector<int64_t> interesting_places(int64_t n) {
  std::set<int64_t> places;
  for (const int64_t around : {int64_t{0}, n / 2, int64_t{1} << 31, int64_t{1} << 32, n})
    for (int64_t i = std::max<int64_t>(around - 3, 0); i < std::min(around + 3, n); ++i) places.insert(i);
  return {places.begin(), places.end()};
}

void expect_elements(const Array& y, const std::function<int64_t(int64_t)>& f, const std::vector<int64_t>& more) {
  std::vector<int64_t> places = interesting_places(y.size());
  for (const int64_t i : more)
    if (i >= 0 && i < y.size()) places.push_back(i);
  for (const int64_t i : places)
    EXPECT_EQ(slice(y, {i}, {i + 1}).to_vector<int64_t>()[0], f(i)) << "element " << i << " of " << y.size();
}

Array index_array(const std::vector<int64_t>& values, DType dtype) {
  return astype(Array::from(values, {static_cast<int64_t>(values.size())}), dtype);
}

void LargeArrays::SetUp() {
  if (n() > kAbove31 && platform() != Platform::cuda && !long_tests())
    GTEST_SKIP() << "runs on a GPU, or with LOCKSTEP_LONG_TESTS=1";
  const std::string reason = missing_memory(4 * n() + (int64_t{1} << 29), n());
  if (!reason.empty()) GTEST_SKIP() << reason;
}

void LargeArrays::TearDown() { Allocator::host().trim(); }

}  // namespace lockstep
