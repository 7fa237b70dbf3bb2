#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "base/print_stderr.h"
#include "base/start_thread.h"
#include "cli/command.h"
#include "cli/serve_generate.h"
#include "cli/serve_predict.h"
#include "cli/stored_run.h"
#include "command/checkpoint_argument.h"
#include "command/devices_flag.h"
#include "command/help.h"
#include "command/number_check.h"
#include "http/access.h"
#include "http/metrics_text.h"
#include "http/server.h"
#include "jobs/signals.h"
#include "train/gpt_settings.h"

namespace lockstep::cli {
namespace {

using http::kJson;
using http::Request;
using http::Response;
using nlohmann::ordered_json;

constexpr int64_t kMostTokenBytes = 4096;

struct ServeArguments {
  std::string run, host = "127.0.0.1", token_file, platform;
  int port = 8080, batch = 64, max_body = 16;
};

std::string read_token(const std::string& path) {
  if (path.empty()) return "";
  std::string token = or_usage_error([&] { return read_user_file(path, kMostTokenBytes); });
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  if (token.empty())
    throw UsageError(fmt::format("serve: {} has no token; write one, such as of `openssl rand -hex 32`", path));
  return token;
}

void add_request_metrics(const http::Server& service, http::MetricsText& out) {
  const std::vector<http::Server::Count> counts = service.counts();
  const auto labels = [](const http::Server::Count& count) {
    return http::Labels{{"path", count.path}, {"status", std::to_string(count.status)}};
  };
  out.begin("lockstep_requests_total", "counter", "Requests that were answered.");
  for (const http::Server::Count& each : counts) out.add(static_cast<double>(each.requests), labels(each));
  out.begin("lockstep_request_seconds_total", "counter", "Time of answering requests.");
  for (const http::Server::Count& each : counts) out.add(each.seconds, labels(each));
}

// Serves until SIGINT or SIGTERM.
void serve(http::Server& service) {
  SignalPipe signals({SIGINT, SIGTERM});
  std::thread server = start_thread([&] { service.run(); });
  pollfd waiting{signals.fd(), POLLIN, 0};
  while (::poll(&waiting, 1, -1) <= 0) {
  }
  print_stderr("lockstep: serve: stopping\n");
  service.stop();
  server.join();
}

void announce(const ServeArguments& arguments, int port, const StoredModel& model) {
  fmt::print("serving {} (model {}, step {}) on http://{}:{}\n", model.path, model.config.model, model.step,
             arguments.host, port);
  std::fflush(stdout);
}

void set_token(http::Server& service, const std::string& token) {
  service.set_check([token](const Request& request, Response& response) {
    if (token.empty() || request.path == "/health" ||
        http::same_token(http::bearer_token(request.get_header_value("Authorization")), token))
      return false;
    response.set_error(401, "the bearer token is missing or wrong; send Authorization: Bearer TOKEN");
    return true;
  });
}

std::unique_ptr<GenerateService> generate_service(const StoredModel& model) {
  StoredGpt stored = gpt_of(model.checkpoint, fmt::format("serve: {}", model.path));
  const TokenizerPtr tokenizer = load_run_tokenizer(model.path);
  if (!tokenizer)
    throw_error("serve: {} has no tokenizer.json; copy that of the model beside its checkpoints", model.path);
  return std::make_unique<GenerateService>(Generator(std::move(stored.config), std::move(stored.params), tokenizer),
                                           tokenizer);
}

int run(const ServeArguments& arguments) {
  const std::string token = read_token(arguments.token_file);
  if (token.empty() && !http::is_loopback(arguments.host))
    throw UsageError(
        fmt::format("serve: other machines can reach {}; give --api-token-file FILE with the token that "
                    "clients must send",
                    arguments.host));
  DevicesFlags devices;
  devices.platform = arguments.platform;
  use_devices(devices);
  const StoredModel model = load_stored_model("serve", arguments.run);
  const size_t max_body = static_cast<size_t>(arguments.max_body) << 20;
  http::Server service({.name = "serve",
                        .host = arguments.host,
                        .port = arguments.port,
                        .bodies = std::max(4 * max_body, size_t{64} << 20),
                        .any_host_name = !token.empty(),
                        .help = "; see lockstep serve --help"});
  set_token(service, token);
  service.get_quick("/health", [&](const Request&, Response& response) {
    const ordered_json body{{"status", "ok"}, {"model", model.config.model}, {"step", model.step}};
    response.set_content(body.dump() + "\n", kJson);
  });
  std::unique_ptr<PredictService> predict;
  std::unique_ptr<GenerateService> generate;
  if (model.info.kind == ModelInfo::Kind::text) {
    generate = generate_service(model);
    service.post_later("/generate", GenerateService::kMaxBody,
                       [&](const Request& request, http::Reply& reply) { generate->answer(request, reply); });
  } else {
    predict = std::make_unique<PredictService>(model, BatchLimits{.examples = arguments.batch});
    service.post_later("/predict", max_body,
                       [&](const Request& request, http::Reply& reply) { predict->answer(request, reply); });
  }
  service.get_quick("/metrics", [&](const Request&, Response& response) {
    http::MetricsText out;
    add_request_metrics(service, out);
    if (predict) predict->add_metrics(out);
    if (generate) generate->add_metrics(out);
    response.set_content(out.text(), http::kMetricsType);
  });
  announce(arguments, service.port(), model);
  serve(service);
  return kDone;
}

}  // namespace

void add_serve_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("serve", "answer HTTP requests with the model of a run");
  auto arguments = std::make_shared<ServeArguments>();
  add_run_argument(*command, arguments->run);
  command->add_option("--host", arguments->host, "address to listen on (default: 127.0.0.1)")->type_name("ADDRESS");
  command->add_option("--port", arguments->port, "port; 0: a free one, which is printed (default: 8080)")
      ->type_name("N")
      ->check(integer_between(0, 65535));
  command
      ->add_option("--api-token-file", arguments->token_file,
                   "file with a secret that clients must send as a bearer token; required unless the address is "
                   "loopback")
      ->type_name("FILE");
  command->add_option("--batch", arguments->batch, "most examples that are computed together (default: 64)")
      ->type_name("N")
      ->check(integer_between(1, 1024));
  command->add_option("--max-body", arguments->max_body, "largest body of a request, in MiB (default: 16)")
      ->type_name("MIB")
      ->check(integer_between(1, 1024));
  add_platform_flag(*command, arguments->platform, "where to compute (default: $LOCKSTEP_PLATFORM, else auto)");
  add_examples(*command,
               {"lockstep serve last", "lockstep serve run --port 9000 --host 0.0.0.0 --api-token-file token"});
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace lockstep::cli
