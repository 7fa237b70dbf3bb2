// TlsHandshakes: the connections that the listener has handed to the gRPC server, and from which no call has arrived
// yet. So their number is bounded until their TLS handshake is over, whoever makes them. Thread-safe.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/descriptor.h"

namespace lockstep {

class TlsHandshakes {
 public:
  explicit TlsHandshakes(size_t limit) : limit_(limit) {}

  // Adds a connection from this address, whose descriptor is duplicated. Beyond the limit, ends the oldest connection of
  // the address with the most of them, and returns how many it has, with `ended` its address; 0: none was ended. False
  // positives are harmless: clients connect again. Throws nothing; a connection that cannot be duplicated is not added.
  size_t add(int fd, std::string address, int port, std::string& ended);

  // A call has arrived over the connection from this address and port.
  void mark_over(std::string_view address, int port);

  size_t count() const;

 private:
  struct Entry {
    Descriptor socket;
    std::string address;
    int port = 0;
    std::chrono::steady_clock::time_point end;
  };

  void remove_closed();

  const size_t limit_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  // the oldest first
};

}  // namespace lockstep
