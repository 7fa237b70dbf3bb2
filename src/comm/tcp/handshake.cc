#include "comm/tcp/handshake.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "lockstep/error.h"

namespace lockstep::detail {

namespace {

constexpr std::array<uint8_t, 8> kMagic{'L', 'O', 'C', 'K', 'S', 'T', 'P', '1'};
// Only ranks of the group send valid hellos, a few each. A listener that has seen more clears its list.
constexpr size_t kMaxSeen = 65536;

void append_u32(std::string& out, uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(value >> shift & 0xff);
}

uint32_t u32_at(const uint8_t* bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value |= static_cast<uint32_t>(bytes[i]) << 8 * i;
  return value;
}

Bytes32 bytes32_at(const uint8_t* bytes) {
  Bytes32 out;
  std::copy_n(bytes, out.size(), out.begin());
  return out;
}

}  // namespace

Bytes32 random_bytes32() {
  Bytes32 bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw CommError(fmt::format("getrandom: {}", std::strerror(errno)));
  return bytes;
}

Handshake Handshake::listener(const GroupSecret& secret, int rank, std::set<Bytes32>& seen) {
  Handshake one(secret, Step::hello, kHelloBytes);
  one.rank_ = rank;
  one.seen_ = &seen;
  return one;
}

Handshake Handshake::caller(const GroupSecret& secret, int rank, int peer, int channel) {
  Handshake one(secret, Step::answer, kAnswerBytes);
  one.is_caller_ = true;
  one.rank_ = rank;
  one.peer_ = peer;
  one.channel_ = channel;
  one.caller_nonce_ = random_bytes32();
  one.append(kMagic);
  append_u32(one.out_, static_cast<uint32_t>(rank));
  append_u32(one.out_, static_cast<uint32_t>(peer));
  append_u32(one.out_, static_cast<uint32_t>(channel));
  one.append(one.caller_nonce_);
  one.append(one.mac("hello"));
  return one;
}

Bytes32 Handshake::mac(const char* name) const {
  std::string text = fmt::format("lockstep/{}/{}:{}/{}/{}/", name, secret_->group.size(), secret_->group,
                                 lockstep::name(secret_->security), detail::name(secret_->cipher));
  append_u32(text, static_cast<uint32_t>(is_caller_ ? rank_ : peer_));
  append_u32(text, static_cast<uint32_t>(is_caller_ ? peer_ : rank_));
  append_u32(text, static_cast<uint32_t>(channel_));
  text.append(caller_nonce_.begin(), caller_nonce_.end());
  text.append(listener_nonce_.begin(), listener_nonce_.end());  // zeros until the listener has sent its nonce
  Bytes32 out{};
  unsigned int length = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  LOCKSTEP_CHECK(HMAC(EVP_sha256(), secret_->key.data(), static_cast<int>(secret_->key.size()), bytes, text.size(),
                      out.data(), &length) != nullptr &&
                 length == out.size());
  return out;
}

LinkKeys Handshake::keys() const {
  std::array<uint8_t, 64> nonces{};
  std::ranges::copy(caller_nonce_, nonces.begin());
  std::ranges::copy(listener_nonce_, nonces.begin() + caller_nonce_.size());
  const auto key = [&](std::string_view sender) {
    return derive_key(secret_->key, nonces,
                      fmt::format("lockstep/data/{}/{}:{}/{}/{}/{}", sender, secret_->group.size(), secret_->group,
                                  is_caller_ ? rank_ : peer_, is_caller_ ? peer_ : rank_, channel_));
  };
  const Bytes32 of_caller = key("caller"), of_listener = key("listener");
  return is_caller_ ? LinkKeys{of_caller, of_listener} : LinkKeys{of_listener, of_caller};
}

bool Handshake::is_mac(const char* name, std::span<const uint8_t> found) const {
  const Bytes32 wanted = mac(name);
  return found.size() == wanted.size() && CRYPTO_memcmp(wanted.data(), found.data(), wanted.size()) == 0;
}

Handshake::State Handshake::fail(std::string why) {
  failure_ = std::move(why);
  step_ = Step::over;
  return State::failed;
}

Handshake::State Handshake::advance(int socket) {
  if (!failure_.empty()) return State::failed;
  while (true) {
    if (!write(socket)) return failure_.empty() ? State::running : State::failed;
    if (step_ == Step::over) return State::done;
    if (!read(socket)) return failure_.empty() ? State::running : State::failed;
    if (!process_message()) return State::failed;
  }
}

// True when everything is written.
bool Handshake::write(int socket) {
  while (!out_.empty()) {
    const ssize_t count = ::send(socket, out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (count < 0) {
      fail(fmt::format("write: {}", std::strerror(errno)));
      return false;
    }
    out_.erase(0, static_cast<size_t>(count));
  }
  return true;
}

// True when the message is complete.
bool Handshake::read(int socket) {
  while (count_ < wanted_) {
    const ssize_t count = ::recv(socket, in_.data() + count_, wanted_ - count_, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (count < 0) fail(fmt::format("read: {}", std::strerror(errno)));
    if (count == 0) fail("the other side closed the connection");
    if (count <= 0) return false;
    count_ += static_cast<size_t>(count);
    // Reject other protocols after their first bytes.
    if (step_ == Step::hello &&
        !std::equal(kMagic.begin(), kMagic.begin() + std::min(count_, kMagic.size()), in_.begin())) {
      fail("it does not speak this protocol");
      return false;
    }
  }
  count_ = 0;
  return true;
}

bool Handshake::process_message() {
  const std::span<const uint8_t> message(in_.data(), wanted_);
  switch (step_) {
    case Step::hello:
      return process_hello();
    case Step::answer:
      return process_answer();
    case Step::proof:
      if (!is_mac("proof", message)) break;
      append(mac("accept"));
      step_ = Step::over;
      return true;
    case Step::accept:
      if (!is_mac("accept", message)) break;
      step_ = Step::over;
      return true;
    case Step::over:
      return true;
  }
  fail("it does not know the secret of the group");
  return false;
}

bool Handshake::process_hello() {
  const uint32_t from = u32_at(in_.data() + 8), to = u32_at(in_.data() + 12), channel = u32_at(in_.data() + 16);
  caller_nonce_ = bytes32_at(in_.data() + 20);
  const Bytes32 found = bytes32_at(in_.data() + 52);
  if (from >= static_cast<uint32_t>(secret_->size) || to != static_cast<uint32_t>(rank_) || from <= to ||
      channel >= static_cast<uint32_t>(secret_->channels)) {
    fail("it names ranks that do not match");
    return false;
  }
  peer_ = static_cast<int>(from);
  channel_ = static_cast<int>(channel);
  if (!is_mac("hello", found)) {
    peer_ = -1;
    fail("it does not know the secret of the group");
    return false;
  }
  if (seen_->size() >= kMaxSeen) seen_->clear();
  if (!seen_->insert(caller_nonce_).second) {
    peer_ = -1;
    fail("it repeats an earlier handshake");
    return false;
  }
  peer_has_proved_ = true;
  listener_nonce_ = random_bytes32();
  append(listener_nonce_);
  append(mac("answer"));
  step_ = Step::proof;
  wanted_ = kMacBytes;
  return true;
}

bool Handshake::process_answer() {
  listener_nonce_ = bytes32_at(in_.data());
  if (!is_mac("answer", bytes32_at(in_.data() + 32))) {
    fail("it does not know the secret of the group");
    return false;
  }
  peer_has_proved_ = true;
  append(mac("proof"));
  step_ = Step::accept;
  wanted_ = kMacBytes;
  return true;
}

}  // namespace lockstep::detail
