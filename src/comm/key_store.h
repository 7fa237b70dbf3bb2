// KeyStore: where processes that have not met yet leave each other notes: addresses, mostly. Safe from any thread.
#pragma once

#include <chrono>
#include <string>

namespace lockstep {

class KeyStore {
 public:
  virtual ~KeyStore() = default;

  // Throws Error when the key is set already.
  virtual void set(const std::string& key, const std::string& value) = 0;

  // Waits until somebody has set it. Throws CommTimeout, naming the key, when nobody has in time.
  virtual std::string get(const std::string& key, std::chrono::nanoseconds timeout) = 0;
};

}  // namespace lockstep
