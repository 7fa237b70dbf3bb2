#include "cli/serve_generate.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/json.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMostTokens = 4096;

// The client has closed the connection or reads too slowly, or the server stops.
struct ClientGone : std::exception {};

struct TextRequest {
  std::string prompt;
  GenerateOptions options;
};

TextRequest text_request(const http::Request& request) {
  const auto body = parse_json<ordered_json>(request.body, "the body", {.bytes = request.body.size() + 1, .depth = 4});
  if (!body.is_object()) throw_error("the body is not a JSON object; send {{\"prompt\": TEXT}}");
  TextRequest out;
  try {
    out.prompt = body.value("prompt", "");
    out.options.tokens = integer_in(body.value("tokens", ordered_json(200)), "tokens", 1, kMostTokens);
    out.options.temperature = body.value("temperature", 1.0);
    out.options.top_k = integer_in(body.value("top_k", ordered_json(0)), "top_k", 0, 1 << 30);
    out.options.top_p = body.value("top_p", 1.0);
    out.options.seed = static_cast<uint64_t>(integer_in(body.value("seed", ordered_json(0)), "seed", 0));
  } catch (const ordered_json::exception& error) {
    throw_error("the body: {}", json_error_text(error));
  }
  check(out.options);
  return out;
}

}  // namespace

GenerateService::GenerateService(Generator generator, TokenizerPtr tokenizer)
    : generator_(std::move(generator)), tokenizer_(std::move(tokenizer)), queue_(1, kMostWaiting) {}

void GenerateService::answer(const http::Request& request, http::Reply& reply) {
  const TextRequest text = text_request(request);
  tokenizer_->encode(text.prompt, {.use_template = true});  // throws for what the vocabulary does not contain
  const auto shared = std::make_shared<http::Reply>(std::move(reply));
  if (queue_.submit([this, text, shared] { generate(text.prompt, text.options, *shared); })) return;
  http::Response response;
  response.set_busy(fmt::format("{} texts are waiting; try again later", kMostWaiting), seconds_ * kMostWaiting);
  shared->send(std::move(response));
}

void GenerateService::generate(const std::string& prompt, const GenerateOptions& options, http::Reply& reply) {
  if (!reply.is_open()) return reply.fail(503, "the server stops, or the client is gone");
  const auto begin = std::chrono::steady_clock::now();
  try {
    http::Response head;
    head.type = "text/plain; charset=utf-8";
    reply.begin(std::move(head));
    generator_.generate(prompt, options, [&](int64_t, std::string_view piece) {
      if (!reply.write(piece)) throw ClientGone();
    });
    reply.end();
  } catch (const ClientGone&) {
    reply.fail(503, "the server stops, or the client is gone");
  } catch (const std::exception& error) {
    reply.fail(500, error.what());
  }
  seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void GenerateService::add_metrics(http::MetricsText& out) const {
  out.gauge("lockstep_queued_texts", "Texts that wait to be generated.", static_cast<double>(queue_.waiting()));
}

}  // namespace lockstep::cli
