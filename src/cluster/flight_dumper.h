// FlightDumper: writes this process's flight record when the job fails, and whenever the process receives SIGUSR2.
// Thread-safe. At most one FlightDumper of a process handles the signal.
#pragma once

#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/os/descriptor.h"
#include "cluster/flight.h"

namespace lockstep {

class FlightDumper {
 public:
  struct Options {
    FlightOrigin origin;
    std::string folder;  // created if missing
    std::function<void(const std::string& line)> log = {};
    FileSystem* files = &FileSystem::real();
  };

  FlightDumper(std::shared_ptr<const FlightRecorder> recorder, Options options);
  // Restores the previous disposition of the signal.
  ~FlightDumper();
  FlightDumper(const FlightDumper&) = delete;
  FlightDumper& operator=(const FlightDumper&) = delete;

  // Installs a handler: from now on SIGUSR2 writes a dump. Returns false, without effect, if the program or another
  // FlightDumper already handles the signal, or the program ignores it.
  bool handle_signal();

  // Writes a dump because the job has failed. Only the first call writes, on its own thread; every caller waits for it,
  // but at most `timeout`: the process may end after this returns, and a hanging disk must not delay the report.
  void dump_failure(const std::string& reason, std::chrono::milliseconds timeout = std::chrono::seconds(2)) noexcept;

  // Sets the folder of later dumps.
  void set_folder(const std::string& folder);

  // Writes a dump now, unless a failure was dumped: that record is more useful.
  void write(const std::string& reason) noexcept;

 private:
  void write(const FlightDump& dump) noexcept;
  void log_write_error(const char* why) const;

  const std::shared_ptr<const FlightRecorder> recorder_;
  const Options options_;
  std::string folder_;  // guarded by file_
  std::mutex file_;     // held while a file is written; locked before mutex_
  std::mutex mutex_;    // guards the members below
  std::condition_variable changed_;
  bool failed_ = false, written_ = false;
  std::thread writer_;

  Descriptor event_;  // eventfd
  std::atomic<bool> ending_{false};
  struct sigaction before_ = {};
  std::thread listener_;
};

// The folder for dumps: `chosen` (LOCKSTEP_FLIGHT_DIR) unless it is empty, else a folder of this job in the temporary
// directory.
std::string flight_folder(const std::optional<std::string>& chosen, const std::string& job);
// The most recently modified folder of dumps in the temporary directory; empty if there is none. Ignores folders of
// other users (except root), and sets `others` to one of them, if any.
std::string latest_flight_folder(std::string* others = nullptr);

}  // namespace lockstep
