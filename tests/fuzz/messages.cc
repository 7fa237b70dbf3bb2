// Messages of the control plane as bytes, as gRPC and mailboxes carry them. A coordinator handles the requests. Each
// message is preceded by its length, two bytes, and has no prefix, so that the corpus fits all versions.
#include "cluster/messages.h"

#include <algorithm>
#include <optional>

#include "cluster/coordinator.h"
#include "cluster/message_bytes.h"
#include "fuzz/fuzz.h"

using namespace lockstep;

namespace {

// The message, if the bytes are one. It must read back the same.
template <class Read>
auto try_read(const Read& read, std::string_view bytes) -> std::optional<decltype(read(bytes))> {
  try {
    const auto message = read(bytes);
    fuzz::require(to_bytes(read(to_bytes(message))) == to_bytes(message), "a message reads back the same");
    return message;
  } catch (const CommError&) {
    return std::nullopt;
  }
}

// The requests of a job of two processes, in order.
void try_requests(const std::vector<std::string>& messages) {
  using namespace std::chrono_literals;
  Coordinator::Time now{};
  Coordinator coordinator({.process_count = 2}, now);
  uint64_t call = 1;
  for (const std::string& message : messages) {
    const std::optional<Request> request = try_read(request_from, message_prefix() + message);
    if (!request) continue;
    coordinator.handle(call++, *request, "10.0.0.1", now);
    coordinator.tick(now += 1s);
    for (const Answer& answer : coordinator.take_answers())
      fuzz::require(try_read(answer_from, to_bytes(answer)).has_value(), "an answer can be read");
  }
  coordinator.tick(now + 1h);
  coordinator.close("the end");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all = fuzz::text_of(data, size);
  try_read(request_from, all);  // with its own prefix
  std::vector<std::string> messages;
  for (std::string_view rest = all; rest.size() > 2 && messages.size() < 16;) {
    const size_t length = static_cast<unsigned char>(rest[0]) + size_t{256} * static_cast<unsigned char>(rest[1]);
    rest.remove_prefix(2);
    messages.emplace_back(rest.substr(0, length));
    rest.remove_prefix(std::min(length, rest.size()));
  }
  try_requests(messages);
  for (const std::string& message : messages)
    if (const auto answer = try_read(answer_from, message_prefix() + message); answer && answer->failure)
      describe(*answer->failure);
  return 0;
}
