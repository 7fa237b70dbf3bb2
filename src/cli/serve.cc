#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include <charconv>
#include <limits>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/print_stderr.h"
#include "base/start_thread.h"
#include "cli/command.h"
#include "cli/predict_inputs.h"
#include "cli/predict_print.h"
#include "cli/serve_batches.h"
#include "cli/stored_run.h"
#include "command/checkpoint_argument.h"
#include "command/devices_flag.h"
#include "command/help.h"
#include "command/number_check.h"
#include "http/access.h"
#include "http/metrics_text.h"
#include "http/server.h"
#include "jobs/signals.h"
#include "lockstep/generate.h"
#include "lockstep/precision.h"
#include "train/gpt_settings.h"

namespace lockstep::cli {
namespace {

using http::kJson;
using http::Request;
using http::Response;
using nlohmann::ordered_json;

constexpr int64_t kMostTokenBytes = 4096, kMostTokens = 4096;

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

// Appends all numbers of nested arrays.
void append_numbers(const ordered_json& value, std::vector<float>& out) {
  if (value.is_array()) {
    for (const ordered_json& each : value) append_numbers(each, out);
  } else if (value.is_number()) {
    out.push_back(value.get<float>());
  } else {
    throw_error("the body has {} where a number is expected", printable_json(value));
  }
}

int64_t parameter_of(const Request& request, const std::string& name, int64_t otherwise, int64_t most) {
  if (!request.has_param(name)) return otherwise;
  const std::string text = request.get_param_value(name);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > most)
    throw_error("{} is \"{}\"; give a whole number from 1 to {}", name, text, most);
  return value;
}

// Answers POST /predict.
class PredictService {
 public:
  PredictService(const StoredModel& model, const BatchLimits& limits)
      : model_(model),
        form_(image_form(model.info, model.config, false)),
        batches_(model, precision_of(model.config.precision).compute, limits) {}

  void answer(const Request& request, Response& response) {
    const int64_t top = parameter_of(request, "top", 1, std::numeric_limits<int32_t>::max());
    PredictionBatches::Result result = batches_.submit(examples_of(request));
    if (result.outcome == PredictionBatches::Outcome::queue_full)
      return response.set_error(503, "too many examples are waiting; try again later");
    if (result.outcome == PredictionBatches::Outcome::timed_out)
      return response.set_error(504, "the prediction took too long; send fewer examples");
    const size_t width = static_cast<size_t>(std::max<int64_t>(model_.info.classes, 1));
    ordered_json all = ordered_json::array();
    for (size_t at = 0; at < result.values.size(); at += width) all.push_back(entry({&result.values[at], width}, top));
    const ordered_json body{{"predictions", std::move(all)}};
    response.set_content(body.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n", kJson);
  }

  void add_metrics(http::MetricsText& out) const { batches_.add_metrics(out); }

 private:
  std::vector<float> examples_of(const Request& request) const {
    const std::string& body = request.body;
    const bool is_table = model_.info.kind == ModelInfo::Kind::table;
    std::vector<float> out;
    if (body.starts_with("\x89PNG") || body.starts_with("\xff\xd8")) {
      if (is_table) throw_error("the body is an image, but the model takes rows of a table; send JSON");
      std::vector<std::byte> pixels(static_cast<size_t>(form_.bytes()));
      Conversions ignored;
      form_.convert(detail::decode_image({reinterpret_cast<const uint8_t*>(body.data()), body.size()}, "the body"),
                    pixels.data(), ignored);
      for (const std::byte each : pixels) out.push_back(static_cast<float>(each));
      return out;
    }
    append_numbers(
        parse_json<ordered_json>(body, "the body", {.bytes = body.size() + 1, .depth = 8, .values = body.size() + 1}),
        out);
    const auto size = static_cast<size_t>(batches_.example_size());
    if (out.empty() || out.size() % size != 0)
      throw_error(
          "the body has {} numbers; an example has {}: send arrays of complete examples, or one PNG or JPEG image",
          out.size(), size);
    return out;
  }

  ordered_json entry(std::span<const float> values, int64_t top) const {
    if (model_.info.classes == 0) return {{"value", values[0]}};
    Prediction prediction{.input = {}};
    set_classes(prediction, values, top);
    ordered_json out{{"class", class_name(model_.info, prediction.classes[0])},
                     {"index", prediction.classes[0]},
                     {"probability", prediction.probabilities[0]}};
    for (size_t i = 0; i < prediction.classes.size() && top > 1; ++i)
      out["top"].push_back({{"class", class_name(model_.info, prediction.classes[i])},
                            {"index", prediction.classes[i]},
                            {"probability", prediction.probabilities[i]}});
    return out;
  }

  const StoredModel& model_;
  const ImageForm form_;
  PredictionBatches batches_;
};

// The client has closed the connection.
struct ClientGone : std::exception {};

// Answers POST /generate, one request at a time.
class GenerateService {
 public:
  explicit GenerateService(Generator generator) : generator_(std::move(generator)) {}

  void answer(const Request& request, Response& response) {
    const auto body =
        parse_json<ordered_json>(request.body, "the body", {.bytes = request.body.size() + 1, .depth = 4});
    if (!body.is_object()) throw_error("the body is not a JSON object; send {{\"prompt\": TEXT}}");
    GenerateOptions options;
    std::string prompt;
    try {
      prompt = body.value("prompt", "");
      options.tokens = integer_in(body.value("tokens", ordered_json(200)), "tokens", 1, kMostTokens);
      options.temperature = body.value("temperature", 1.0);
      options.top_k = integer_in(body.value("top_k", ordered_json(0)), "top_k", 0, 1 << 30);
      options.top_p = body.value("top_p", 1.0);
      options.seed = static_cast<uint64_t>(integer_in(body.value("seed", ordered_json(0)), "seed", 0));
    } catch (const ordered_json::exception& error) {
      throw_error("the body: {}", json_error_text(error));
    }
    check(options);
    auto lock = std::make_shared<std::unique_lock<std::timed_mutex>>(mutex_, std::chrono::seconds(30));
    if (!lock->owns_lock()) return response.set_error(503, "another text is being generated; try again later");
    lock->unlock();  // the text is generated when the headers are sent, in the same thread
    response.type = "text/plain; charset=utf-8";
    response.stream = [this, prompt, options](const Response::Write& write) {
      const std::lock_guard held(mutex_);
      try {
        generator_.generate(prompt, options, [&](int64_t, std::string_view piece) {
          if (!write(piece)) throw ClientGone();
        });
      } catch (const ClientGone&) {
      } catch (const std::exception& error) {
        write(fmt::format("\nerror: {}\n", error.what()));
      }
    };
  }

 private:
  std::timed_mutex mutex_;
  Generator generator_;
};

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
  http::Server service({.name = "serve",
                        .host = arguments.host,
                        .port = arguments.port,
                        .max_body = static_cast<size_t>(arguments.max_body) << 20,
                        .help = "; see lockstep serve --help"});
  service.set_check([&](const Request& request, Response& response) {
    if (token.empty() || request.path == "/health" ||
        http::same_token(http::bearer_token(request.get_header_value("Authorization")), token))
      return false;
    response.set_error(401, "the bearer token is missing or wrong; send Authorization: Bearer TOKEN");
    return true;
  });
  service.get("/health", [&](const Request&, Response& response) {
    const ordered_json body{{"status", "ok"}, {"model", model.config.model}, {"step", model.step}};
    response.set_content(body.dump() + "\n", kJson);
  });
  std::unique_ptr<PredictService> predict;
  std::unique_ptr<GenerateService> generate;
  if (model.info.kind == ModelInfo::Kind::text) {
    StoredGpt stored = gpt_of(model.checkpoint, fmt::format("serve: {}", model.path));
    const TokenizerPtr tokenizer = load_run_tokenizer(model.path);
    if (!tokenizer)
      throw_error("serve: {} has no tokenizer.json; copy that of the model beside its checkpoints", model.path);
    generate =
        std::make_unique<GenerateService>(Generator(std::move(stored.config), std::move(stored.params), tokenizer));
    service.post("/generate", [&](const Request& request, Response& response) { generate->answer(request, response); });
  } else {
    predict = std::make_unique<PredictService>(model, BatchLimits{.examples = arguments.batch});
    service.post("/predict", [&](const Request& request, Response& response) { predict->answer(request, response); });
  }
  service.get("/metrics", [&](const Request&, Response& response) {
    http::MetricsText out;
    add_request_metrics(service, out);
    if (predict) predict->add_metrics(out);
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
