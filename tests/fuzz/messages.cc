// Messages of the control plane as bytes, as mailboxes carry them. A coordinator handles the requests.
#include "cluster/messages.h"

#include "cluster/coordinator.h"
#include "cluster/message_bytes.h"
#include "fuzz/fuzz.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = fuzz::text_of(data, size);
  try {
    const Request request = request_from(bytes);
    fuzz::require(to_bytes(request_from(to_bytes(request))) == to_bytes(request), "a request reads back the same");
    const Coordinator::Time now{};
    Coordinator coordinator({.process_count = 2, .version = "0.1"}, now);
    coordinator.handle(1, request, "10.0.0.1", now);
    coordinator.tick(now + std::chrono::seconds(1));
    coordinator.take_answers();
  } catch (const CommError&) {
  }
  try {
    const Answer answer = answer_from(bytes);
    fuzz::require(to_bytes(answer_from(to_bytes(answer))) == to_bytes(answer), "an answer reads back the same");
    if (answer.failure) describe(*answer.failure);
  } catch (const CommError&) {
  }
  return 0;
}
