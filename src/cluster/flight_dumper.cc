#include "cluster/flight_dumper.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/check.h"
#include "base/names.h"
#include "base/os/blocked_signals.h"
#include "base/start_thread.h"
#include "base/text_bytes.h"

namespace lockstep {
namespace {

std::atomic<int> listening{-1};  // eventfd of the FlightDumper that handles the signal

const std::string kFolderName = "lockstep-flight-";

std::filesystem::path temporary_folder() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::temp_directory_path(error);
  return error ? "/tmp" : path;
}

void wake(int event) {
  const uint64_t one = 1;
  // Fails only if the counter is full, and then the listener is about to wake up anyway.
  [[maybe_unused]] const ssize_t written = ::write(event, &one, sizeof one);
}

void on_signal(int) {
  const int error = errno;
  if (const int event = listening.load(); event >= 0) wake(event);
  errno = error;
}

}  // namespace

FlightDumper::FlightDumper(std::shared_ptr<const FlightRecorder> recorder, Options options)
    : recorder_(std::move(recorder)), options_(std::move(options)), folder_(options_.folder) {}

FlightDumper::~FlightDumper() {
  if (writer_.joinable()) writer_.join();
  if (!event_) return;
  struct sigaction current = {};
  if (::sigaction(SIGUSR2, nullptr, &current) == 0 && (current.sa_flags & SA_SIGINFO) == 0 &&
      current.sa_handler == on_signal)
    ::sigaction(SIGUSR2, &before_, nullptr);
  ending_ = true;
  wake(event_.get());
  listener_.join();
  listening = -1;
}

bool FlightDumper::handle_signal() {
  LOCKSTEP_CHECK(!event_, "handle_signal() was called twice");
  if (::sigaction(SIGUSR2, nullptr, &before_) != 0 || (before_.sa_flags & SA_SIGINFO) != 0 ||
      before_.sa_handler != SIG_DFL)
    return false;
  Descriptor event(::eventfd(0, EFD_CLOEXEC));
  if (int none = -1; !event || !listening.compare_exchange_strong(none, event.get())) return false;
  event_ = std::move(event);
  {
    const BlockedSignals blocked;
    listener_ = start_thread([this] {
      for (uint64_t times = 0;;) {
        if (::read(event_.get(), &times, sizeof times) < 0 && errno != EINTR) return;
        if (ending_) return;
        write(std::string(kDumpRequested));
      }
    });
  }
  struct sigaction own = {};
  own.sa_handler = on_signal;
  own.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR2, &own, nullptr);
  return true;
}

void FlightDumper::dump_failure(const std::string& reason, std::chrono::milliseconds timeout) noexcept {
  try {
    std::unique_lock lock(mutex_);
    if (!failed_) {
      failed_ = true;
      writer_ = start_thread([this, dump = take_dump(*recorder_, options_.origin, reason)] {
        {
          const std::lock_guard one(file_);
          write(dump);
        }
        const std::lock_guard done(mutex_);
        written_ = true;
        changed_.notify_all();
      });
    }
    changed_.wait_for(lock, timeout, [this] { return written_; });
  } catch (const std::exception& error) {
    {
      const std::lock_guard lock(mutex_);
      written_ = true;  // gives up: no memory, or no thread
    }
    log_write_error(error.what());
  }
}

void FlightDumper::set_folder(const std::string& folder) {
  const std::lock_guard one(file_);
  folder_ = folder;
}

void FlightDumper::write(const std::string& reason) noexcept {
  try {
    const std::lock_guard one(file_);
    {
      const std::lock_guard lock(mutex_);
      if (failed_) return;
    }
    write(take_dump(*recorder_, options_.origin, reason));
  } catch (const std::exception& error) {
    log_write_error(error.what());
  }
}

void FlightDumper::log_write_error(const char* why) const {
  if (options_.log)
    options_.log(fmt::format("the flight record of process {} could not be written: {}", options_.origin.process, why));
}

void FlightDumper::write(const FlightDump& dump) noexcept {
  // Never throws: the failure of the process matters more than that of its dump.
  try {
    const std::string path = folder_ + "/" + flight_file_name(dump);
    const std::string text = to_json(dump);
    options_.files->make_dirs(folder_);
    options_.files->write_atomic(path, text_bytes(text));
    // Before the first collective no process can be slow or missing: the error itself says why the job failed.
    if (options_.log && (!dump.records.empty() || dump.reason == kDumpRequested))
      options_.log(fmt::format(
          "flight record of process {} written to {} (last {}); run `lockstep blame {}` to find the slow or missing "
          "process",
          dump.process, path, counted(static_cast<int64_t>(dump.records.size()), "collective"), folder_));
  } catch (const std::exception& error) {
    log_write_error(error.what());
  }
}

std::string flight_folder(const std::optional<std::string>& chosen, const std::string& job) {
  if (chosen && !chosen->empty()) return *chosen;
  return (temporary_folder() / (kFolderName + job)).string();
}

std::string latest_flight_folder(std::string* others) {
  std::string found;
  std::filesystem::file_time_type newest;
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator(temporary_folder(), error)) {
    if (!each.path().filename().string().starts_with(kFolderName)) continue;
    // Any user can write to the temporary directory: do not follow links.
    if (each.symlink_status(error).type() != std::filesystem::file_type::directory) continue;
    if (!is_own_path(each.path().string())) {
      if (others) *others = each.path().string();
      continue;
    }
    const auto time = each.last_write_time(error);
    if (error || (!found.empty() && time <= newest)) continue;
    found = each.path().string();
    newest = time;
  }
  return found;
}

}  // namespace lockstep
