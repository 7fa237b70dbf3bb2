// KeyStore: a key-value store that the processes of a job share, for the rendezvous: addresses, secrets and failure
// causes. Each key is set once. Safe from any thread.
#pragma once

#include <chrono>
#include <string>

namespace lockstep {

class KeyStore {
 public:
  virtual ~KeyStore() = default;

  // Throws Error when the key is already set.
  virtual void set(const std::string& key, const std::string& value) = 0;

  // Waits until a process has set the key, and returns its value. Throws CommTimeout, which names the key, after
  // `timeout`.
  virtual std::string get(const std::string& key, std::chrono::nanoseconds timeout) = 0;
};

}  // namespace lockstep
