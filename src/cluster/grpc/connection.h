// gRPC settings shared by the client and the server of the control plane. Thread-safe.
#pragma once

#include <grpc/support/log.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>

namespace lockstep::detail {

// The metadata key of Security::call_secret.
inline constexpr const char* kSecretKey = "lockstep-secret";

// The gRPC channel argument that makes it send `CONNECT VALUE HTTP/1.0` first and wait for status 200, as through a
// proxy. gRPC's public headers do not declare it.
inline constexpr const char* kConnectArgument = "grpc.http_connect_server";

// Turns off gRPC's log on standard error, which repeats the status of calls. No effect if GRPC_VERBOSITY is set.
inline void silence_grpc() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (!std::getenv("GRPC_VERBOSITY")) gpr_set_log_function([](gpr_log_func_args*) {});
  });
}

inline int milliseconds_within(std::chrono::nanoseconds duration) {
  constexpr int64_t kLeast = 20, kMost = 3'600'000;
  return static_cast<int>(
      std::clamp<int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count(), kLeast, kMost));
}

// When an idle connection is pinged, and how long the answer may take: together less than the heartbeat timeout.
inline int keepalive_time_ms(std::chrono::nanoseconds heartbeat_timeout) {
  return milliseconds_within(heartbeat_timeout / 2);
}
inline int keepalive_timeout_ms(std::chrono::nanoseconds heartbeat_timeout) {
  return milliseconds_within(heartbeat_timeout / 3);
}

}  // namespace lockstep::detail
