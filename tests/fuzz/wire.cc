// Protobuf messages of the control plane, as the coordinator receives them from the network and handles them.
// Each message is preceded by its length, two bytes.
#include "cluster/grpc/wire.h"

#include "cluster/coordinator.h"
#include "cluster/message_bytes.h"
#include "fuzz/fuzz.h"

using namespace lockstep;

namespace {

// The requests of a job of two processes, in order.
void try_requests(const std::vector<std::string>& messages) {
  using namespace std::chrono_literals;
  Coordinator::Time now{};
  Coordinator coordinator({.process_count = 2, .version = "0.1"}, now);
  uint64_t call = 1;
  for (const std::string& message : messages) {
    control::Request in;
    if (!in.ParseFromString(message)) continue;
    const std::optional<Request> request = detail::from_wire(in);
    if (!request) continue;
    control::Request out;
    detail::to_wire(*request, out);
    const std::optional<Request> again = detail::from_wire(out);
    fuzz::require(again && to_bytes(*again) == to_bytes(*request), "a request reads back the same");
    coordinator.handle(call++, *request, "10.0.0.1", now);
    coordinator.tick(now += 1s);
    for (const Answer& answer : coordinator.take_answers()) {
      control::Answer sent;
      detail::to_wire(answer, sent);
      Answer back = detail::from_wire(sent);
      back.call = answer.call;
      fuzz::require(to_bytes(back) == to_bytes(answer), "an answer reads back the same");
    }
  }
  coordinator.tick(now + 1h);
  coordinator.close("the end");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::string> messages;
  for (std::string_view rest = fuzz::text_of(data, size); rest.size() > 2 && messages.size() < 16;) {
    const size_t length = static_cast<unsigned char>(rest[0]) + size_t{256} * static_cast<unsigned char>(rest[1]);
    rest.remove_prefix(2);
    messages.emplace_back(rest.substr(0, length));
    rest.remove_prefix(std::min(length, rest.size()));
  }
  try_requests(messages);
  control::Answer answer;
  if (!messages.empty() && answer.ParseFromString(messages[0])) {
    const Answer read = detail::from_wire(answer);
    if (read.failure) describe(*read.failure);
  }
  return 0;
}
