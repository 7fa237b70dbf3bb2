// Uses only integer arithmetic, so that every machine generates the same images.
#include <algorithm>

#include "base/check.h"
#include "lockstep/data.h"

namespace lockstep {
namespace {

constexpr int64_t kExtent = 28, kPixels = kExtent * kExtent, kClasses = 10;

class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // From lo to hi, both included.
  int64_t between(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(((next() >> 32) * static_cast<uint64_t>(hi - lo + 1)) >> 32);
  }

 private:
  uint64_t state_;
};

// A smooth random pattern: a coarse grid of random numbers, interpolated and clamped so that about a third of the
// pixels are bright.
std::vector<int64_t> pattern(SplitMix64& numbers) {
  constexpr int64_t kCell = 4, kGrid = kExtent / kCell + 1;
  constexpr int64_t kFloor = 120, kGain = 3;
  std::vector<int64_t> grid(kGrid * kGrid), pixels(kPixels);
  for (int64_t& corner : grid) corner = numbers.between(0, 255);
  auto corner = [&](int64_t row, int64_t column) { return grid[static_cast<size_t>(row * kGrid + column)]; };
  for (int64_t y = 0; y < kExtent; ++y) {
    for (int64_t x = 0; x < kExtent; ++x) {
      const int64_t row = y / kCell, column = x / kCell, down = y % kCell, right = x % kCell;
      const int64_t above = corner(row, column) * (kCell - right) + corner(row, column + 1) * right;
      const int64_t below = corner(row + 1, column) * (kCell - right) + corner(row + 1, column + 1) * right;
      const int64_t value = (above * (kCell - down) + below * down) / (kCell * kCell);
      pixels[static_cast<size_t>(y * kExtent + x)] = std::clamp<int64_t>(kGain * (value - kFloor), 0, 255);
    }
  }
  return pixels;
}

ImageDataset draw(const std::vector<std::vector<int64_t>>& patterns, int64_t images, SplitMix64 numbers) {
  constexpr int64_t kShift = 2, kNoise = 48;
  ImageDataset set{.images = {}, .labels = {}, .count = images, .rows = kExtent, .cols = kExtent, .classes = kClasses};
  set.images.reserve(static_cast<size_t>(images * kPixels));
  set.labels.reserve(static_cast<size_t>(images));
  for (int64_t i = 0; i < images; ++i) {
    const int64_t label = numbers.between(0, kClasses - 1);
    const int64_t down = numbers.between(-kShift, kShift), right = numbers.between(-kShift, kShift);
    const int64_t contrast = numbers.between(128, 256);  // of 256
    set.labels.push_back(static_cast<uint8_t>(label));
    for (int64_t y = 0; y < kExtent; ++y) {
      for (int64_t x = 0; x < kExtent; ++x) {
        const int64_t from_y = y - down, from_x = x - right;
        const bool inside = from_y >= 0 && from_y < kExtent && from_x >= 0 && from_x < kExtent;
        const int64_t ink =
            inside ? patterns[static_cast<size_t>(label)][static_cast<size_t>(from_y * kExtent + from_x)] : 0;
        const int64_t value = ink * contrast / 256 + numbers.between(-kNoise, kNoise);
        set.images.push_back(static_cast<uint8_t>(std::clamp<int64_t>(value, 0, 255)));
      }
    }
  }
  return set;
}

}  // namespace

Dataset synthetic_digits(int64_t train, int64_t test, uint64_t seed) {
  if (train < 0 || test < 0)
    throw_error("synthetic_digits: {} training and {} test images; give numbers of at least 0", train, test);
  SplitMix64 numbers(seed);
  std::vector<std::vector<int64_t>> patterns;
  for (int64_t c = 0; c < kClasses; ++c) patterns.push_back(pattern(numbers));
  const SplitMix64 train_numbers(numbers.next()), test_numbers(numbers.next());
  return {.train = draw(patterns, train, train_numbers), .test = draw(patterns, test, test_numbers)};
}

}  // namespace lockstep
