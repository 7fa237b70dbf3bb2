#include "board/server.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/printable.h"
#include "board/access.h"
#include "board/event_streams.h"
#include "board/job_api.h"
#include "board/pages.h"
#include "board/run_files.h"
#include "board/run_json.h"
#include "board/run_store.h"
#include "board/trace_store.h"
#include "charts/pages.h"
#include "http/access.h"
#include "http/server.h"

namespace lockstep::board {
namespace {

using http::kJson;
using http::Request;
using http::Response;

constexpr int kThreads = 12;
constexpr int64_t kMaxPoints = 20'000;
constexpr size_t kMaxBodyBytes = 4096;
constexpr size_t kMaxWatchedRuns = 32;
constexpr const char* kNoRun = "this run does not exist; it may have been deleted";
constexpr size_t kShownRanks = 16;  // of a timeline

struct PageFile {
  const char *name, *type;
};
constexpr PageFile kPageFiles[] = {
    {"index.html", "text/html; charset=utf-8"},
    {"board.css", "text/css"},
    {"chart.css", "text/css"},
    {"api.js", "text/javascript"},
    {"app.js", "text/javascript"},
    {"chart.js", "text/javascript"},
    {"compare.js", "text/javascript"},
    {"evaluation.js", "text/javascript"},
    {"groups.js", "text/javascript"},
    {"jobs.js", "text/javascript"},
    {"mesh.js", "text/javascript"},
    {"panels.js", "text/javascript"},
    {"samples.js", "text/javascript"},
    {"tag_list.js", "text/javascript"},
    {"timeline.js", "text/javascript"},
    {"trace.js", "text/javascript"},
};

// The integer parameter of a request; `fallback` if it is missing. Throws Error if it is not an integer.
int64_t integer_parameter(const Request& request, const char* name, int64_t fallback) {
  if (!request.has_param(name)) return fallback;
  const std::string text = request.get_param_value(name);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw_error("{} is \"{}\"; give a whole number", name, printable(text, 80));
  return value;
}

std::vector<std::string> watched_runs(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size() && out.size() < kMaxWatchedRuns;) {
    const size_t end = std::min(text.find(',', at), text.size());
    if (end > at) out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

http::ServerOptions http_options(const ServerOptions& options) {
  return {.name = "board",
          .host = options.host,
          .port = options.port,
          .threads = kThreads,
          .max_body = kMaxBodyBytes,
          .any_host_name = !options.token.empty(),
          .headers = {{"Cache-Control", "no-store"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"X-Frame-Options", "DENY"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Content-Security-Policy",
                       "default-src 'none'; script-src 'self'; style-src 'self'; "
                       "connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
                       "form-action 'none'; frame-ancestors 'none'"}}};
}

}  // namespace

struct Server::Parts {
  explicit Parts(const ServerOptions& given)
      : options(given),
        store(given.runs),
        streams(store),
        http(http_options(given)),
        cookie(fmt::format("lockstep_board_{}", http.port())) {
    http.set_check([this](const Request& request, Response& response) { return refuse(request, response); });
    add_pages();
    add_runs();
    add_run_files();
    add_jobs();
    http.get_later("/events", [this](const Request& request, http::Reply& reply) {
      streams.add(watched_runs(request.get_param_value("runs")), reply);
    });
    http.get_quick("/health",
                   [](const Request&, Response& response) { response.set_content("{\"status\":\"ok\"}\n", kJson); });
  }

  // Judges every request when its headers have arrived. Returns whether it has answered the request.
  bool refuse(const Request& request, Response& response) {
    if (request.path == "/health") return false;
    const bool needs_token = !options.token.empty();
    if (needs_token && request.path == "/" && http::same_token(request.get_param_value("token"), options.token)) {
      response.set_header("Set-Cookie", fmt::format("{}={}; HttpOnly; SameSite=Strict; Path=/", cookie, options.token));
      response.set_redirect("/", 303);  // the address that the browser keeps has no token
      return true;
    }
    if (needs_token && !has_token(request)) {
      response.set_error(401, "wrong or missing token; open the address that `lockstep board` printed");
      return true;
    }
    // A page of another origin cannot set this header.
    if (request.method != "GET" && request.method != "HEAD" && request.get_header_value("X-Lockstep") != "board") {
      response.set_error(403, "the header X-Lockstep is missing");
      return true;
    }
    return false;
  }

  bool has_token(const Request& request) const {
    return http::same_token(cookie_value(request.get_header_value("Cookie"), cookie), options.token) ||
           http::same_token(http::bearer_token(request.get_header_value("Authorization")), options.token);
  }

  void add_pages() {
    for (const PageFile& file : kPageFiles) {
      const std::string name = file.name;
      const std::string path = name == "index.html" ? "/" : "/" + name;
      http.get(path, [name, type = file.type](const Request&, Response& response) {
        const std::string_view text = name == "chart.css" ? charts::page_text(name) : page_text(name);
        response.set_content(text, type);
      });
    }
  }

  void add_runs() {
    http.get("/api/runs",
             [this](const Request&, Response& response) { response.set_content(list_json(store.list()), kJson); });
    http.get(R"(/api/runs/([0-9a-f]{1,64}))", [this](const Request& request, Response& response) {
      use_run(request.matches[1], response,
              [&](const RunStore::Loaded& run) { response.set_content(run_json(run), kJson); });
    });
    http.get("/api/series", [this](const Request& request, Response& response) {
      const int64_t from = integer_parameter(request, "from", 0), to = integer_parameter(request, "to", INT64_MAX),
                    points = integer_parameter(request, "points", 1000);
      if (points < 1 || points > kMaxPoints) throw_error("points is {}; give 1 to {}", points, kMaxPoints);
      const std::string tag = request.get_param_value("tag");
      use_run(request.get_param_value("run"), response, [&](const RunStore::Loaded& run) {
        const auto found = run.metrics.series().find(tag);
        std::vector<charts::Bucket> buckets;
        if (found != run.metrics.series().end() && !found->second.buckets().empty()) {
          const auto& all = found->second.buckets();
          buckets = run.metrics.query(tag, std::max(from, all.front().first_step), std::min(to, all.back().last_step),
                                      points);
        }
        response.set_content(series_json(run, tag, buckets), kJson);
      });
    });
  }

  template <class Use>
  void use_run(const std::string& id, Response& response, const Use& use) {
    if (!store.with_run(id, use)) response.set_error(404, kNoRun);
  }

  void add_run_files() {
    add_run_file("/api/evaluation", [](const std::string& folder) { return evaluation_json(folder); });
    add_run_file("/api/samples", [](const std::string& folder) { return samples_json(folder); });
    add_run_file("/api/mesh", [](const std::string& folder) { return mesh_json(folder); });
    add_run_file("/api/trace", [this](const std::string& folder) { return trace_json(*trace_of(folder)); });
    http.get(R"(/api/worst\.png)", [this](const Request& request, Response& response) {
      use_folder(request, response, [&](const std::string& folder) {
        const std::vector<uint8_t> bytes = worst_picture(folder);
        response.set_content({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "image/png");
      });
    });
    http.get("/api/trace/slices", [this](const Request& request, Response& response) {
      const auto seconds = [&](const char* name) {
        return 1e-6 * static_cast<double>(integer_parameter(request, name, 0));
      };
      const int64_t width = integer_parameter(request, "width", 1000), first = integer_parameter(request, "first", 0);
      if (width < 1 || width > kMaxPoints) throw_error("width is {}; give 1 to {}", width, kMaxPoints);
      if (first < 0) throw_error("first is {}; give the index of a rank", first);
      const TraceWindow window{seconds("from"), seconds("to"), width, static_cast<size_t>(first), kShownRanks};
      if (!(window.from < window.to)) throw_error("from is not below to; give two times in microseconds");
      use_folder(request, response, [&](const std::string& folder) {
        response.set_content(slices_json(*trace_of(folder), window), kJson);
      });
    });
  }

  // Answers with a file of the run that the request names.
  void add_run_file(const char* path, const std::function<std::string(const std::string& folder)>& read) {
    http.get(path, [this, read](const Request& request, Response& response) {
      use_folder(request, response, [&](const std::string& folder) { response.set_content(read(folder), kJson); });
    });
  }

  template <class Use>
  void use_folder(const Request& request, Response& response, const Use& use) {
    const std::string folder = store.folder_of(request.get_param_value("run"));
    if (folder.empty() || !FileSystem::real().exists(folder))
      response.set_error(404, kNoRun);
    else
      use(folder);
  }

  std::shared_ptr<const Trace> trace_of(const std::string& folder) {
    return traces.get(folder, file_versions(folder)["trace"]);
  }

  void add_jobs() {
    http.get("/api/jobs", [](const Request&, Response& response) { response.set_content(jobs_json(), kJson); });
    http.get("/api/jobs/log", [](const Request& request, Response& response) {
      const int64_t replica = integer_parameter(request, "replica", 0);
      response.set_content(job_log(request.get_param_value("namespace"), request.get_param_value("name"),
                                   static_cast<int>(std::clamp<int64_t>(replica, -1, INT32_MAX))),
                           "text/plain; charset=utf-8");
    });
    http.post(R"(/api/jobs/(suspend|resume|delete))", [](const Request& request, Response& response) {
      change_job(request.get_param_value("namespace"), request.get_param_value("name"), request.matches[1]);
      response.set_content("{}", kJson);
    });
  }

  ServerOptions options;
  RunStore store;
  TraceStore traces;
  EventStreams streams;
  http::Server http;
  const std::string cookie;
};

Server::Server(const ServerOptions& options) : parts_(std::make_unique<Parts>(options)) {}
Server::~Server() = default;
int Server::port() const { return parts_->http.port(); }
void Server::run() { parts_->http.run(); }
void Server::stop() { parts_->http.stop(); }

}  // namespace lockstep::board
