// Messages of the control plane as processes of other versions send them, for tests.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "cluster/message_bytes.h"
#include "cluster/messages.h"
#include "lockstep/version.h"

namespace lockstep {

struct SentVersion {
  uint64_t protocol = 0;
  std::string version = {};
};

inline const SentVersion kOwnVersion{kControlProtocol, LOCKSTEP_VERSION};
inline const std::array kOtherVersions = {SentVersion{kControlProtocol + 1, LOCKSTEP_VERSION},
                                          SentVersion{kControlProtocol, "99.1"}, SentVersion{1000, "99.1-rc"},
                                          SentVersion{0, ""}};

// A number in a message: eight bytes, little endian.
inline std::string number_bytes(uint64_t value) {
  std::string out;
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(value >> shift & 0xff);
  return out;
}

// A message of this version with the prefix of another one. The layout of the prefix never changes: a test that needs an
// update here breaks the message that processes of different versions print.
inline std::string sent_by(const SentVersion& sender, const std::string& bytes) {
  return "lockstep" + number_bytes(sender.protocol) + number_bytes(sender.version.size()) + sender.version +
         bytes.substr(message_prefix().size());
}

inline std::string version_sentence(const SentVersion& process, const SentVersion& coordinator) {
  const auto name = [](const SentVersion& each) {
    return "lockstep " + each.version + " (protocol " + std::to_string(each.protocol) + ")";
  };
  return "this is " + name(process) + ", the coordinator is " + name(coordinator) + "; use the same version everywhere";
}

}  // namespace lockstep
