// Attacks on the coordinator's port with hand-made HTTP/2 frames, for the program `stranger`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::http2 {

inline constexpr uint8_t kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kWindowUpdate = 8;
inline constexpr uint8_t kEndHeaders = 4;

inline std::string u32(uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xff);
  return out;
}

inline std::string frame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
  std::string out = u32(static_cast<uint32_t>(payload.size())).substr(1);
  out += static_cast<char>(type);
  out += static_cast<char>(flags);
  return out + u32(stream) + payload;
}

inline std::string preface() { return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(kSettings, 0, 0, ""); }

// A literal header that no table contains.
inline std::string literal(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name + static_cast<char>(value.size()) + value;
}

// The beginning of a call to the coordinator, without the token of the job.
inline std::string call_headers(uint32_t stream) {
  const std::string block = "\x83\x86" + literal(":path", "/lockstep.control.Control/Ask") +
                            literal(":authority", "localhost") + literal("content-type", "application/grpc") +
                            literal("te", "trailers");
  return frame(kHeaders, kEndHeaders, stream, block);
}

// The same call, reset immediately.
inline std::string call_and_reset(uint32_t stream) { return call_headers(stream) + frame(kReset, 0, stream, u32(8)); }

inline constexpr uint32_t kAnnounced = 4u << 20;

// Announces a message of 4 MiB on a stream, and sends its first bytes.
inline std::string call_with_endless_body(uint32_t stream, size_t bytes) {
  return call_headers(stream) +
         frame(kData, 0, stream, std::string(1, '\0') + u32(kAnnounced) + std::string(bytes, 'x'));
}

// The first bytes of a TLS client hello that never ends.
inline std::string unfinished_tls_hello() {
  return std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(32, 'r');
}

}  // namespace lockstep::http2
