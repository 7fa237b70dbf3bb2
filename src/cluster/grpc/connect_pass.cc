#include "cluster/grpc/connect_pass.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/os/descriptor.h"
#include "cluster/token.h"

namespace lockstep {

namespace {

using ChallengeClock = std::chrono::steady_clock;

constexpr std::string_view kScheme = "lockstep/", kAskChallenge = "lockstep/challenge",
                           kChallengeHeader = "Lockstep-Challenge: ", kRequestEnd = "\r\n\r\n";
constexpr size_t kMaxAnswerBytes = 1024;

std::string proof_of(const std::string& key, std::string_view challenge, std::string_view nonce) {
  const std::string text = fmt::format("lockstep/connect/{}/{}", challenge, nonce);
  std::array<unsigned char, EVP_MAX_MD_SIZE> mac{};
  unsigned int length = 0;
  LOCKSTEP_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                      reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac.data(),
                      &length) != nullptr);
  std::string out;
  for (unsigned int i = 0; i < length; ++i) out += fmt::format("{:02x}", mac[i]);
  return out;
}

// The last part of `text` after a '/', which is removed.
std::string_view take_last(std::string_view& text) {
  const size_t slash = text.rfind('/');
  const std::string_view last = text.substr(slash == text.npos ? 0 : slash + 1);
  text = text.substr(0, slash == text.npos ? 0 : slash);
  return last;
}

[[noreturn]] void throw_unreachable(const std::string& why) { throw IoError(why); }

// Waits until the socket is ready, or throws.
void await_socket(int fd, short events, ChallengeClock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - ChallengeClock::now());
  pollfd polled{.fd = fd, .events = events, .revents = 0};
  if (left.count() <= 0 || ::poll(&polled, 1, static_cast<int>(left.count())) <= 0)
    throw_unreachable("no answer in time");
}

Descriptor connected_socket(const std::string& ip, int port, ChallengeClock::time_point deadline) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(ip.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    throw_unreachable(fmt::format("\"{}\" is not an address", ip));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  Descriptor socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw_unreachable(std::strerror(errno));
  if (::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0) {
    if (errno != EINPROGRESS) throw_unreachable(std::strerror(errno));
    await_socket(socket.get(), POLLOUT, deadline);
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) throw_unreachable(std::strerror(error));
  }
  return socket;
}

}  // namespace

std::string connect_argument(const Security& security, std::string_view challenge) {
  const std::string nonce = make_token();
  return fmt::format("{}{}/{}/{}/{}", kScheme, security.word, challenge, nonce,
                     proof_of(security.pass_key, challenge, nonce));
}

std::string ask_challenge(const std::string& ip, int port, std::chrono::milliseconds timeout) {
  const auto deadline = ChallengeClock::now() + timeout;
  const Descriptor socket = connected_socket(ip, port, deadline);
  const std::string request = fmt::format("CONNECT {} HTTP/1.0{}", kAskChallenge, kRequestEnd);
  if (::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size()))
    throw_unreachable(std::strerror(errno));
  std::string answer;
  while (answer.find(kRequestEnd) == answer.npos) {
    await_socket(socket.get(), POLLIN, deadline);
    std::array<char, kMaxAnswerBytes> bytes;
    const ssize_t count = ::recv(socket.get(), bytes.data(), bytes.size() - answer.size(), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count < 0) throw_unreachable(std::strerror(errno));
    if (count == 0) break;
    answer.append(bytes.data(), static_cast<size_t>(count));
  }
  const size_t begin = answer.find(kChallengeHeader), end = answer.find("\r\n", begin);
  if (begin == answer.npos || end == answer.npos)
    throw_unreachable(
        "the process that listens there does not answer as a coordinator: it is another program or another version");
  return answer.substr(begin + kChallengeHeader.size(), end - begin - kChallengeHeader.size());
}

ConnectGate::ConnectGate(Security security, size_t max_nonces)
    : security_(std::move(security)), max_nonces_(max_nonces), challenge_(make_token()) {}

int ConnectGate::judge(std::string_view request) {
  constexpr std::string_view kMethod = "CONNECT ", kVersion = " HTTP/1.";
  const std::string_view line = request.substr(0, request.find("\r\n"));
  const size_t end = line.rfind(kVersion);
  if (!line.starts_with(kMethod) || end == line.npos || end < kMethod.size()) return connect_status::kMalformed;
  std::string_view shown = line.substr(kMethod.size(), end - kMethod.size());
  if (shown == kAskChallenge) return connect_status::kChallenge;
  if (!shown.starts_with(kScheme)) return connect_status::kMalformed;
  const std::string_view proof = take_last(shown), nonce = take_last(shown), challenge = take_last(shown);
  if (shown.size() <= kScheme.size() || nonce.empty()) return connect_status::kMalformed;
  if (challenge != challenge_) return connect_status::kChallenge;
  if (!same_token(proof, proof_of(security_.pass_key, challenge, nonce))) return connect_status::kWrongToken;
  if (shown.substr(kScheme.size()) != security_.word) return connect_status::kOtherSecurity;
  if (!nonces_.emplace(nonce).second) return connect_status::kChallenge;
  if (nonces_.size() >= max_nonces_) {
    nonces_.clear();
    challenge_ = make_token();
  }
  return connect_status::kAdmitted;
}

std::string ConnectGate::answer(int status) const {
  const std::string_view reason = status == connect_status::kAdmitted        ? "OK"
                                  : status == connect_status::kMalformed     ? "Bad Request"
                                  : status == connect_status::kChallenge     ? "Unauthorized"
                                  : status == connect_status::kOtherSecurity ? "Conflict"
                                                                             : "Forbidden";
  const std::string header =
      status == connect_status::kChallenge ? fmt::format("{}{}\r\n", kChallengeHeader, challenge_) : "";
  return fmt::format("HTTP/1.0 {} {}\r\n{}\r\n", status, reason, header);
}

}  // namespace lockstep
