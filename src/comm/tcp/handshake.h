// Handshake: two ranks of a group prove to each other, over a new connection, that both know the secret of the group.
// The higher rank dials, and is the caller; the lower one is the listener.
//
//   caller -> listener   hello:  magic, both ranks, channel, caller's nonce, MAC("hello")
//   listener -> caller   answer: listener's nonce, MAC("answer")
//   caller -> listener   proof:  MAC("proof")
//   listener -> caller   accept: MAC("accept")
//
// A MAC is the HMAC-SHA256, with the secret as key, of the message's name, the group's name, the protection of its data,
// both ranks, the channel and the nonces sent so far. The keys of the connection are derived from the secret and both
// nonces, one for each direction (record_cipher.h).
//
// A recorded handshake cannot be replayed: the listener rejects a hello that it has seen, and uses a new nonce each
// time. The caller waits for the accept, so that both sides agree on whether the connection is valid.
//
// Thread safety: a value, used by one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <span>
#include <string>

#include "comm/tcp/record_cipher.h"

namespace lockstep::detail {

// Throws CommError when the system provides no random numbers.
Bytes32 random_bytes32();

// The same on all ranks of the group; unknown to all other processes.
struct GroupSecret {
  std::string group;  // distinguishes groups that have the same key
  int size = 0;
  int channels = 1;  // connections between each pair of ranks
  LinkSecurity security = LinkSecurity::plain;
  Cipher cipher = Cipher::aes_128_gcm;
  Bytes32 key{};
};

// The keys of one connection, on one of its sides.
struct LinkKeys {
  Bytes32 send{}, receive{};
};

class Handshake {
 public:
  static constexpr size_t kHelloBytes = 84, kAnswerBytes = 64, kMacBytes = 32;

  // The listener's side. `seen` holds the nonces of the hellos that any handshake of this listener has verified. Both
  // references outlive the handshake.
  static Handshake listener(const GroupSecret& secret, int rank, std::set<Bytes32>& seen);
  // The caller's side.
  static Handshake caller(const GroupSecret& secret, int rank, int peer, int channel);

  enum class State : uint8_t { running, done, failed };

  // Reads and writes without blocking. Never reads beyond the handshake.
  State advance(int socket);

  bool wants_to_write() const { return !out_.empty(); }
  // For the listener: the rank whose hello was verified; -1 before that. For the caller: the rank that it dials.
  int peer() const { return peer_; }
  int channel() const { return channel_; }
  // Whether the other side has sent at least one valid MAC.
  bool peer_has_proved() const { return peer_has_proved_; }
  // Why it failed.
  const std::string& failure() const { return failure_; }
  // REQUIRES: the handshake is done. Throws CommError when OpenSSL fails.
  LinkKeys keys() const;

 private:
  enum class Step : uint8_t { hello, answer, proof, accept, over };

  Handshake(const GroupSecret& secret, Step step, size_t wanted) : secret_(&secret), step_(step), wanted_(wanted) {}

  State fail(std::string why);
  bool write(int socket);
  bool read(int socket);
  bool process_message();
  bool process_hello();
  bool process_answer();
  bool is_mac(const char* name, std::span<const uint8_t> mac) const;
  Bytes32 mac(const char* name) const;
  void append(std::span<const uint8_t> bytes) { out_.append(bytes.begin(), bytes.end()); }

  const GroupSecret* secret_;
  Step step_;                              // the message to read next
  size_t wanted_;                          // its length
  std::array<uint8_t, kHelloBytes> in_{};  // its first count_ bytes
  size_t count_ = 0;
  std::string out_;  // still to be written
  int rank_ = -1, peer_ = -1, channel_ = 0;
  bool is_caller_ = false, peer_has_proved_ = false;
  std::set<Bytes32>* seen_ = nullptr;
  Bytes32 caller_nonce_{}, listener_nonce_{};
  std::string failure_;
};

}  // namespace lockstep::detail
