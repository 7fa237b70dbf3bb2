// FlightWatch: writes the dump of this process's flight recorder when it fails, and whenever it receives SIGUSR2.
// Safe from any thread. One at a time listens to the signal.
#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "cluster/flight.h"

namespace lockstep {

class FlightWatch {
 public:
  struct Options {
    FlightOrigin origin;
    std::string folder = ".";  // made when there is none
    std::function<void(const std::string& line)> log = {};
    FileSystem* files = &FileSystem::real();
  };

  FlightWatch(std::shared_ptr<const FlightRecorder> recorder, Options options);
  // Stops listening; the signal is as it was before.
  ~FlightWatch();
  FlightWatch(const FlightWatch&) = delete;
  FlightWatch& operator=(const FlightWatch&) = delete;

  // From now on SIGUSR2 writes a dump. Returns false, and does nothing, where the program handles or ignores that
  // signal.
  bool listen();

  // This process, or another, has failed. What is recorded now is kept; only the first call counts. The file is
  // written by write_kept(), so that the news need not wait for a disk.
  void keep(const std::string& reason);
  void write_kept() noexcept;

  // Writes what is recorded now, unless a failure has been kept: that says more.
  void write(const std::string& reason) noexcept;

 private:
  void write(const FlightDump& dump) noexcept;

  const std::shared_ptr<const FlightRecorder> recorder_;
  const Options options_;
  std::mutex mutex_;
  bool failed_ = false;
  std::optional<FlightDump> kept_;  // until it is written

  int event_ = -1;
  std::atomic<bool> ending_{false};
  struct sigaction before_ = {};
  std::thread listener_;
};

// Where dumps go: what LOCKSTEP_FLIGHT_DIR says, or the current folder.
std::string flight_folder(const char* variable);

}  // namespace lockstep
