// The first bytes of a connection to the coordinator: a CONNECT request of a stranger, or of a process of the job with
// changes. `#` and `*` in the text stand for the listener's challenge and for a valid argument.
#include "cluster/grpc/connect_pass.h"

#include "fuzz/fuzz.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Security security = make_security({.token = "0123456789abcdef", .tls = false});
  ConnectGate gate(security);
  const std::string answer = gate.answer(connect_status::kChallenge);
  const size_t begin = answer.find(": ") + 2;
  const std::string challenge = answer.substr(begin, answer.find("\r\n", begin) - begin);
  const std::string valid = connect_argument(security, challenge);
  std::string text;
  for (const char c : fuzz::text_of(data, size).substr(0, 1024))
    text += c == '#' ? challenge : c == '*' ? valid : std::string(1, c);
  const int status = gate.judge(text);
  fuzz::require(status != connect_status::kAdmitted || text.starts_with("CONNECT " + valid + " HTTP/1."),
                "only the argument of a process of the job is admitted", text);
  fuzz::require(gate.judge(text) != connect_status::kAdmitted, "no request is admitted twice", text);
  return 0;
}
