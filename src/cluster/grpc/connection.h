// gRPC settings and messages shared by the client and the server of the control plane. Thread-safe.
#pragma once

#include <grpc/support/log.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/os/environment.h"

namespace lockstep::detail {

// The only method. Its request and answer are the bytes of message_bytes.h. Some requests wait for other processes; the
// answer comes no later than the request's timeout.
inline constexpr const char* kAskMethod = "/lockstep.control.Control/Ask";

// Maximum size of an answer: a value or a directory, and overhead.
inline constexpr int kMaxMessageBytes = 40 << 20;
// Maximum size of a request: a value, and overhead.
inline constexpr int kMaxRequestBytes = 5 << 20;

// The metadata key of Security::call_secret.
inline constexpr const char* kSecretKey = "lockstep-secret";

// The gRPC channel argument that makes it send `CONNECT VALUE HTTP/1.0` first and wait for status 200, as through a
// proxy. gRPC's public headers do not declare it.
inline constexpr const char* kConnectArgument = "grpc.http_connect_server";

// Turns off gRPC's log on standard error, which repeats the status of calls. No effect if GRPC_VERBOSITY is set.
inline void silence_grpc() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (!environment_variable("GRPC_VERBOSITY")) gpr_set_log_function([](gpr_log_func_args*) {});
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

// gRPC's buffer with these bytes, which are not copied.
inline grpc::ByteBuffer to_buffer(std::string bytes) {
  auto* kept = new std::string(std::move(bytes));
  const grpc::Slice slice(
      kept->data(), kept->size(), [](void* text) { delete static_cast<std::string*>(text); }, kept);
  return grpc::ByteBuffer(&slice, 1);
}

// Calls read(bytes) with the bytes of a buffer.
template <class Read>
auto read_buffer(const grpc::ByteBuffer& buffer, const Read& read) {
  grpc::Slice slice;
  if (!buffer.DumpToSingleSlice(&slice).ok()) return read(std::string_view());
  return read(std::string_view(reinterpret_cast<const char*>(slice.begin()), slice.size()));
}

}  // namespace lockstep::detail
