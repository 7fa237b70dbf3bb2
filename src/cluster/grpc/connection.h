// What both ends of a connection of the control plane agree on.
#pragma once

#include <grpc/support/log.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>

namespace lockstep::detail {

// The metadata that carries Security::call_secret.
inline constexpr const char* kSecretKey = "lockstep-secret";

// The argument of a gRPC channel that makes it send `CONNECT VALUE HTTP/1.0` first and wait for status 200, as through
// a proxy. gRPC's public headers do not name it.
inline constexpr const char* kConnectArgument = "grpc.http_connect_server";

// gRPC writes to standard error what comes back as a status anyhow. Nothing changes when GRPC_VERBOSITY asks for it.
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

// When a silent connection is pinged, and how long the answer may take: together shorter than the heartbeat timeout.
inline int keepalive_time_ms(std::chrono::nanoseconds heartbeat_timeout) {
  return milliseconds_within(heartbeat_timeout / 2);
}
inline int keepalive_timeout_ms(std::chrono::nanoseconds heartbeat_timeout) {
  return milliseconds_within(heartbeat_timeout / 3);
}

}  // namespace lockstep::detail
