#include "lane/cuda/measured.h"

#include <fmt/format.h>

#include <chrono>
#include <span>

#include "base/file.h"
#include "base/md5.h"
#include "lane/cuda/code.h"

namespace lockstep {
namespace {

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

Timed::Timed(CudaLane& lane, const std::function<void()>& work, int times) : lane_(lane) {
  work();  // also what is prepared on first use
  graph_ = lane.record([&] {
    for (int i = 0; i < times; ++i) work();
  });
}

Timed::~Timed() {
  const CudaLane::WaitsOnce once;
  lane_.forget(graph_);
}

double Timed::seconds() const {
  return seconds_of(lane_, [&] { lane_.replay(graph_); });
}

double seconds_of(CudaLane& lane, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  const CudaLane::WaitsOnce once;
  lane.wait();
  const Clock::time_point start = Clock::now();
  work();
  lane.wait();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool is_clearly_faster(const Timed& one, const Timed& other) {
  constexpr int kRounds = 12, kExceptions = 1;
  int first = 0;
  for (const Timed* each : {&one, &other}) each->seconds();
  for (int round = 0; round < kRounds; ++round) {
    const bool turned = round % 2 != 0;
    const double before = (turned ? other : one).seconds(), after = (turned ? one : other).seconds();
    first += turned ? after < before : before < after;
  }
  return first >= kRounds - kExceptions;
}

std::string Choices::file_of(const std::string& what) const {
  const std::string folder = cuda_cache_folder();
  return folder.empty() ? "" : fmt::format("{}/{}.{}", folder, md5_hex(bytes_of(what)), kind_);
}

std::string Choices::find(const std::string& what, const std::function<bool(const std::string&)>& is_choice) {
  const std::lock_guard lock(mutex_);
  if (const auto at = chosen_.find(what); at != chosen_.end()) return is_choice(at->second) ? at->second : "";
  const std::string path = file_of(what);
  try {
    FileSystem& files = FileSystem::real();
    if (path.empty() || !files.exists(path)) return "";
    std::string text(static_cast<size_t>(files.size(path)), '\0');
    files.read(path, 0, std::span(reinterpret_cast<uint8_t*>(text.data()), text.size()));
    return is_choice(text) ? chosen_[what] = text : "";
  } catch (const IoError&) {
    return "";
  }
}

std::string Choices::keep(const std::string& what, const std::string& choice) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_first] = chosen_.emplace(what, choice);
  const std::string path = file_of(what);
  if (!is_first || path.empty()) return at->second;
  try {
    FileSystem::real().make_dirs(parent_dir(path));
    FileSystem::real().write_atomic(path, bytes_of(choice));
  } catch (const IoError&) {  // the next run measures again
  }
  return choice;
}

void Choices::forget() {
  const std::lock_guard lock(mutex_);
  chosen_.clear();
}

}  // namespace lockstep
