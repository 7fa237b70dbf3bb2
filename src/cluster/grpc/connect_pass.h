// The HTTP CONNECT request by which a gRPC client shows the coordinator's listener that it knows the job's token. gRPC
// sends a fixed request at the beginning of every connection, so the client asks for the listener's challenge before:
//
//   client                                           listener
//   CONNECT lockstep/challenge                  ->
//                                               <-   401 and its challenge, a random number; closes the connection
//   CONNECT lockstep/tls/CHALLENGE/NONCE/PROOF  ->   on a new connection, which gRPC makes
//                                               <-   200, or 400, 401, 403, 409 and closes it
//
// PROOF is the HMAC-SHA256 of the challenge and of the client's nonce, with a key that is derived from the token with
// scrypt. The listener accepts a nonce once, so a recorded request cannot be replayed: not at this listener, and not at
// another one, which has another challenge. A guess of the token costs as much as before: one scrypt.
#pragma once

#include <chrono>
#include <set>
#include <string>
#include <string_view>

#include "cluster/security.h"

namespace lockstep {

// HTTP status codes of the answers to CONNECT.
namespace connect_status {
inline constexpr int kAdmitted = 200, kMalformed = 400, kChallenge = 401, kWrongToken = 403, kOtherSecurity = 409;
}

// The argument of CONNECT, with a new nonce. Throws IoError when the system provides no random numbers.
std::string connect_argument(const Security& security, std::string_view challenge);

// Asks the listener at this address for its challenge. Throws IoError when it does not answer within `timeout`.
std::string ask_challenge(const std::string& ip, int port, std::chrono::milliseconds timeout);

// The listener's side. One thread at a time.
class ConnectGate {
 public:
  // Throws IoError when the system provides no random numbers.
  explicit ConnectGate(Security security, size_t max_nonces = 65536);

  // Judges a request (`CONNECT ARGUMENT HTTP/1.0` and headers). Returns the status of the answer: kChallenge when it
  // asks for the challenge, and when its proof was used before or is for another challenge.
  int judge(std::string_view request);
  // The answer with that status.
  std::string answer(int status) const;

 private:
  const Security security_;
  const size_t max_nonces_;  // after as many, there is a new challenge
  std::string challenge_;
  std::set<std::string, std::less<>> nonces_;
};

}  // namespace lockstep
