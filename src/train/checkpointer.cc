#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/start_thread.h"
#include "cluster/session.h"
#include "lane/memory.h"
#include "lane/trace.h"
#include "lockstep/checkpoint.h"
#include "plan/lanes.h"
#include "train/checkpoint_folder.h"
#include "train/checkpoint_io.h"
#include "train/collective_save.h"
#include "train/timed_files.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kPoll(100);  // between looks at the deadline
constexpr std::chrono::seconds kIdlePoll(1);     // every wait has a limit; correctness does not depend on it

// A save in progress: the contents, which refer to `memory`, a copy of the arrays.
struct SaveJob {
  detail::CheckpointContents contents;
  BufferPtr memory;
};

// Copies the arrays, using all cores.
SaveJob copy(detail::CheckpointContents contents) {
  constexpr int64_t kPiece = int64_t{1} << 20;
  struct Piece {
    const uint8_t* from;
    int64_t to, bytes;
  };
  std::vector<Piece> pieces;
  std::vector<int64_t> offsets;
  int64_t total = 0;
  for (const auto& sources : contents.data)
    for (const detail::CheckpointSource& source : sources) {
      const auto size = static_cast<int64_t>(source.bytes.size());
      offsets.push_back(total);
      for (int64_t at = 0; at < size; at += kPiece)
        pieces.push_back({source.bytes.data() + at, total + at, std::min(kPiece, size - at)});
      total += (size + kAlignment - 1) / kAlignment * kAlignment;
    }
  SaveJob job{std::move(contents), allocate(total)};
  auto* memory = job.memory->as<uint8_t>();
  const auto copy_piece = [&](int64_t i, int) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    std::memcpy(memory + piece.to, piece.from, static_cast<size_t>(piece.bytes));
  };
  Lanes::current().host_pool().parallel_for(static_cast<int64_t>(pieces.size()), copy_piece);
  auto offset = offsets.begin();
  for (auto& sources : job.contents.data)
    for (detail::CheckpointSource& source : sources) source.bytes = {memory + *offset++, source.bytes.size()};
  return job;
}

CheckpointerOptions checked(CheckpointerOptions options) {
  if (options.dir.empty()) throw_error("checkpointer: the folder name is empty; give one");
  if (options.keep_last < 0)
    throw_error("checkpointer: keep_last is {}; give the number of checkpoints to keep, or 0 for all",
                options.keep_last);
  if (options.shard_bytes < 1) throw_error("checkpointer: shard_bytes is {}; give at least 1", options.shard_bytes);
  if (options.deadline <= std::chrono::milliseconds(0))
    throw_error("checkpointer: the deadline is {} ms; give a positive time", options.deadline.count());
  return options;
}

}  // namespace

// Shared with the thread, which may outlive the Checkpointer.
struct Checkpointer::Impl {
  explicit Impl(CheckpointerOptions given)
      : options(checked(std::move(given))), files(options.files ? *options.files : FileSystem::real()) {}

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      while (!closing && !job) changed.wait_for(lock, kIdlePoll);
      if (!job) break;
      lock.unlock();
      run(std::move(*job));
      lock.lock();
      job.reset();
      changed.notify_all();
    }
    ended = true;
    changed.notify_all();
  }

  // Waits until `done`, under the lock, but no longer than the deadline for one operation on a file. Returns whether it
  // is done.
  template <class Done>
  bool wait_until(std::unique_lock<std::mutex>& lock, Done done) {
    while (!done()) {
      const auto now = detail::TimedFiles::Clock::now();
      const auto started = files.started().value_or(now);
      if (now - started >= options.deadline) return false;
      changed.wait_for(lock, std::min<detail::TimedFiles::Clock::duration>(kPoll, started + options.deadline - now),
                       done);
    }
    return true;
  }

  void run(SaveJob current) {
    detail::CheckpointContents& contents = current.contents;
    const int64_t step = contents.info.step;
    std::optional<double> metric;
    if (const auto at = contents.info.metrics.find(options.best_metric); at != contents.info.metrics.end())
      metric = at->second;
    try {
      const TracedScope scope(TraceSpan::Kind::checkpoint, "write checkpoint", TraceSpan::kWriter);
      for (const std::string& problem : write(std::move(contents)).problems)
        report("checkpoint of step {} is saved, but cleaning up failed: {}", step, problem);
    } catch (const std::exception& error) {
      report("checkpoint of step {} was not saved: {}", step, error.what());
      return;
    }
    {
      const std::lock_guard lock(mutex);
      saved.push_back(step);
    }
    if (process_index() > 0) return;  // the first process removes old checkpoints
    try {
      remove_old(step, metric);
    } catch (const std::exception& error) {
      report("checkpoint of step {} is saved, but listing older ones failed: {}", step, error.what());
    }
  }

  detail::WrittenCheckpoint write(detail::CheckpointContents contents) {
    if (contents.writer.count == 1)
      return detail::write_checkpoint(files, options.dir, std::move(contents), options.shard_bytes);
    const auto exchange = [](const std::string& own) { return current_session()->exchange("checkpoint", own); };
    return detail::write_collectively(files, options.dir, std::move(contents), options.shard_bytes, exchange);
  }

  template <class... Args>
  void report(fmt::format_string<Args...> format, Args&&... args) {
    const std::lock_guard lock(mutex);
    failures.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  // A complete checkpoint in the folder.
  struct ExistingCheckpoint {
    int64_t step;
    std::optional<double> metric;
  };

  bool better(const ExistingCheckpoint& a, const ExistingCheckpoint& b) const {
    return options.higher_is_better ? *a.metric >= *b.metric : *a.metric <= *b.metric;
  }

  // Removes checkpoints that are neither among the newest keep_last nor the best, after `step` was saved.
  void remove_old(int64_t step, std::optional<double> metric) {
    list_existing(step);
    std::erase_if(existing, [&](const ExistingCheckpoint& each) { return each.step == step; });
    existing.push_back({step, metric});
    const ExistingCheckpoint* best_existing = nullptr;
    for (const ExistingCheckpoint& each : existing)
      if (each.metric && !std::isnan(*each.metric) && (!best_existing || better(each, *best_existing)))
        best_existing = &each;
    const std::optional<int64_t> best_step = best_existing ? std::optional(best_existing->step) : std::nullopt;
    {
      const std::lock_guard lock(mutex);
      best = best_step;
    }
    if (options.keep_last == 0) return;
    const auto last = static_cast<size_t>(options.keep_last);
    std::vector<ExistingCheckpoint> remaining;
    for (size_t i = 0; i < existing.size(); ++i) {
      const bool keep = i + last >= existing.size() || existing[i].step == best_step;
      if (keep || !try_remove(existing[i].step, step)) remaining.push_back(existing[i]);
    }
    existing = std::move(remaining);
  }

  // Adds the checkpoints of earlier runs to `existing`, by step. Only the first call has an effect.
  void list_existing(int64_t saved_now) {
    if (listed) return;
    std::vector<ExistingCheckpoint> found;
    for (const int64_t step : detail::list_steps(files, options.dir)) {
      const bool skipped = options.resumed_step && step > *options.resumed_step;
      if (step == saved_now || skipped) continue;
      try {
        const CheckpointInfo info = detail::read_info(files, options.dir + "/" + detail::step_name(step), false);
        const auto at = info.metrics.find(options.best_metric);
        found.push_back({step, at == info.metrics.end() ? std::nullopt : std::optional(at->second)});
      } catch (const Error&) {  // incomplete or damaged: neither counted nor removed
      }
    }
    existing.insert(existing.begin(), found.begin(), found.end());
    listed = true;
  }

  bool try_remove(int64_t step, int64_t saved_now) {
    try {
      if (files.exists(options.dir + "/" + detail::step_name(step)))
        detail::remove_checkpoint(files, options.dir, step);
      return true;
    } catch (const IoError& error) {
      report("checkpoint of step {} is saved, but removing the one of step {} failed: {}", saved_now, step,
             error.what());
      return false;
    }
  }

  const CheckpointerOptions options;
  detail::TimedFiles files;

  // Used only by the thread.
  bool listed = false;
  std::vector<ExistingCheckpoint> existing;  // in the order in which they were written

  std::mutex mutex;  // guards the members below
  std::condition_variable changed;
  std::optional<SaveJob> job;  // the save in progress
  int64_t latest_step = 0;     // of the latest save
  bool closing = false;        // requests the thread to end after the current save
  bool ended = false;          // the thread no longer uses anything
  std::vector<std::string> failures;
  std::vector<int64_t> saved;
  std::optional<int64_t> best;
  std::thread thread;
};

Checkpointer::Checkpointer(CheckpointerOptions options) : impl_(std::make_shared<Impl>(std::move(options))) {
  impl_->thread = start_thread([impl = impl_] { impl->work(); });
}

Checkpointer::~Checkpointer() {
  std::unique_lock lock(impl_->mutex);
  impl_->closing = true;
  impl_->changed.notify_all();
  const bool ended = impl_->wait_until(lock, [this] { return impl_->ended; });
  lock.unlock();
  ended ? impl_->thread.join() : impl_->thread.detach();
}

void Checkpointer::save(Checkpoint checkpoint) {
  detail::CheckpointContents contents = detail::contents_of(checkpoint, {process_index(), process_count()});
  wait();  // at most one copy of the arrays exists
  std::optional<SaveJob> job;
  try {
    job = copy(std::move(contents));
  } catch (const OutOfMemory& error) {
    impl_->report("checkpoint of step {} was not saved: {}", checkpoint.step, error.what());
    return;
  }
  const std::lock_guard lock(impl_->mutex);
  impl_->latest_step = checkpoint.step;
  impl_->job = std::move(job);
  impl_->changed.notify_all();
}

void Checkpointer::wait() {
  std::unique_lock lock(impl_->mutex);
  if (!impl_->wait_until(lock, [this] { return !impl_->job.has_value(); }))
    throw IoError(fmt::format(
        "checkpoint of step {}: an operation on a file in {} has not returned for {} s; check the disk or network file "
        "system",
        impl_->latest_step, impl_->options.dir, std::chrono::duration<double>(impl_->options.deadline).count()));
}

std::vector<std::string> Checkpointer::failures() {
  const std::lock_guard lock(impl_->mutex);
  return std::exchange(impl_->failures, {});
}

std::vector<int64_t> Checkpointer::saved() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->saved;
}

std::optional<int64_t> Checkpointer::best() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->best;
}

}  // namespace lockstep
