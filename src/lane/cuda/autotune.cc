#include "lane/cuda/autotune.h"

#include <fmt/format.h>

#include <chrono>
#include <span>

#include "base/digest.h"
#include "base/file.h"
#include "base/text_bytes.h"
#include "lane/cuda/code.h"

namespace lockstep {
namespace {}  // namespace

TimedGraph::TimedGraph(CudaStream& lane, const std::function<void()>& work, int times) : lane_(lane) {
  work();  // also key is prepared on first use
  graph_ = lane.capture([&] {
    for (int i = 0; i < times; ++i) work();
  });
}

TimedGraph::~TimedGraph() {
  const CudaStream::UncountedWaits uncounted;
  lane_.destroy_graph(graph_);
}

double TimedGraph::seconds() const {
  return measure_seconds(lane_, [&] { lane_.replay(graph_); });
}

double measure_seconds(CudaStream& lane, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  const CudaStream::UncountedWaits uncounted;
  lane.wait();
  const Clock::time_point start = Clock::now();
  work();
  lane.wait();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool is_clearly_faster(const TimedGraph& one, const TimedGraph& other) {
  constexpr int kRounds = 12, kExceptions = 1;
  int wins = 0;
  for (const TimedGraph* each : {&one, &other}) each->seconds();
  for (int round = 0; round < kRounds; ++round) {
    const bool reversed = round % 2 != 0;
    const double before = (reversed ? other : one).seconds(), after = (reversed ? one : other).seconds();
    wins += reversed ? after < before : before < after;
  }
  return wins >= kRounds - kExceptions;
}

std::string AutotuneCache::file_of(const std::string& key) const {
  const std::string folder = cuda_cache_folder();
  return folder.empty() ? "" : fmt::format("{}/{}.{}", folder, md5_hex(text_bytes(key)), kind_);
}

std::string AutotuneCache::find(const std::string& key, const std::function<bool(const std::string&)>& is_valid) {
  const std::lock_guard lock(mutex_);
  if (const auto at = choices_.find(key); at != choices_.end()) return is_valid(at->second) ? at->second : "";
  const std::string path = file_of(key);
  try {
    FileSystem& files = FileSystem::real();
    if (path.empty() || !files.exists(path)) return "";
    std::string text(static_cast<size_t>(files.size(path)), '\0');
    files.read(path, 0, std::span(reinterpret_cast<uint8_t*>(text.data()), text.size()));
    return is_valid(text) ? choices_[key] = text : "";
  } catch (const IoError&) {
    return "";
  }
}

std::string AutotuneCache::store(const std::string& key, const std::string& choice) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_first] = choices_.emplace(key, choice);
  const std::string path = file_of(key);
  if (!is_first || path.empty()) return at->second;
  try {
    FileSystem::real().make_dirs(parent_dir(path));
    FileSystem::real().write_atomic(path, text_bytes(choice));
  } catch (const IoError&) {  // the next run autotunes again
  }
  return choice;
}

void AutotuneCache::clear() {
  const std::lock_guard lock(mutex_);
  choices_.clear();
}

}  // namespace lockstep
