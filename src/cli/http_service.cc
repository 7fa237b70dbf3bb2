#include "cli/http_service.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/check.h"

#ifdef LOCKSTEP_WITH_HTTPLIB

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

#include "base/start_thread.h"

namespace lockstep::cli {
namespace {

// Compares in a time that does not depend on where the texts differ.
bool same_secret(std::string_view a, std::string_view b) {
  size_t differs = a.size() ^ b.size();
  for (size_t i = 0; i < a.size(); ++i)
    differs |= static_cast<size_t>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i % b.size()]));
  return differs == 0;
}

// Threads of this program's runtime, with a bounded queue: a connection above the limit is closed.
class BoundedThreads final : public httplib::TaskQueue {
 public:
  BoundedThreads(int threads, int waiting) : waiting_(static_cast<size_t>(waiting)) {
    for (int i = 0; i < threads; ++i) threads_.push_back(start_thread([this] { work(); }));
  }
  void enqueue(std::function<void()> task) override {
    {
      const std::lock_guard lock(mutex_);
      if (tasks_.size() >= waiting_) return;
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }
  void shutdown() override {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void work() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return ended_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  const size_t waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  bool ended_ = false;
};

struct Counter {
  int64_t requests = 0;
  double seconds = 0;
};

}  // namespace

struct HttpService::Impl {
  HttpServiceOptions options;
  httplib::Server server;
  mutable std::mutex mutex;
  std::map<std::pair<std::string, int>, Counter> counters;  // by path and status

  bool is_allowed(const httplib::Request& request) const {
    if (options.token.empty()) return true;
    const std::string header = request.get_header_value("Authorization");
    constexpr std::string_view kBearer = "Bearer ";
    return header.starts_with(kBearer) && same_secret(options.token, header.substr(kBearer.size()));
  }

  void count(const std::string& path, int status, std::chrono::steady_clock::time_point begin) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const std::lock_guard lock(mutex);
    Counter& counter = counters[{path, status}];
    ++counter.requests;
    counter.seconds += seconds;
  }

  httplib::Server::Handler wrapped(const std::string& path, HttpService::Handler handler, bool secured) {
    return [this, path, handler = std::move(handler), secured](const httplib::Request& request,
                                                               httplib::Response& response) {
      const auto begin = std::chrono::steady_clock::now();
      HttpReply reply = secured && !is_allowed(request)
                            ? json_error(401, "the bearer token is missing or wrong; send Authorization: Bearer TOKEN")
                            : answer(handler, request);
      response.status = reply.status;
      if (reply.stream) {
        response.set_chunked_content_provider(reply.type, [stream = reply.stream](size_t, httplib::DataSink& sink) {
          stream([&](std::string_view piece) { return piece.empty() || sink.write(piece.data(), piece.size()); });
          sink.done();
          return true;
        });
      } else {
        response.set_content(reply.body, reply.type.c_str());
      }
      count(path, reply.status, begin);
    };
  }

  static HttpReply answer(const HttpService::Handler& handler, const httplib::Request& request) {
    HttpRequest own{.body = request.body, .parameters = {}};
    for (const auto& [name, value] : request.params) own.parameters[name] = value;
    try {
      return handler(own);
    } catch (const Error& error) {
      return json_error(400, error.what());
    } catch (const std::exception& error) {
      return json_error(500, error.what());
    }
  }
};

HttpService::HttpService(HttpServiceOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->options = std::move(options);
  const HttpServiceOptions& own = impl_->options;
  httplib::Server& server = impl_->server;
  server.set_payload_max_length(static_cast<size_t>(own.max_body));
  server.set_read_timeout(own.timeout_seconds);
  server.set_write_timeout(own.timeout_seconds);
  server.set_keep_alive_timeout(own.timeout_seconds);
  // Not SO_REUSEPORT, the library's default: a second server on the same port would get half of the requests.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  server.new_task_queue = [threads = own.threads, waiting = own.waiting] {
    return new BoundedThreads(threads, waiting);
  };
  server.set_error_handler([this](const httplib::Request&, httplib::Response& response) {
    if (!response.body.empty()) return;
    const std::string text = response.status == 404 ? "unknown path; see lockstep serve --help"
                             : response.status == 413
                                 ? fmt::format("the body is longer than {} bytes", impl_->options.max_body)
                                 : "the request cannot be answered";
    response.set_content(json_error(response.status, text).body, "application/json");
  });
}

HttpService::~HttpService() = default;

void HttpService::get(const std::string& path, Handler handler, bool secured) {
  impl_->server.Get(path, impl_->wrapped(path, std::move(handler), secured));
}
void HttpService::post(const std::string& path, Handler handler) {
  impl_->server.Post(path, impl_->wrapped(path, std::move(handler), true));
}

int HttpService::bind() {
  const HttpServiceOptions& own = impl_->options;
  if (own.port == 0) {
    const int port = impl_->server.bind_to_any_port(own.host);
    if (port > 0) return port;
  } else if (impl_->server.bind_to_port(own.host, own.port)) {
    return own.port;
  }
  throw_error("serve: cannot listen on {} port {}; choose another port with --port, or another --host", own.host,
              own.port);
}

void HttpService::run() { impl_->server.listen_after_bind(); }
void HttpService::stop() { impl_->server.stop(); }

std::string HttpService::metrics() const {
  const std::lock_guard lock(impl_->mutex);
  std::string requests = "# TYPE lockstep_requests_total counter\n",
              seconds = "# TYPE lockstep_request_seconds_total counter\n";
  for (const auto& [key, counter] : impl_->counters) {
    const std::string labels = fmt::format("{{path=\"{}\",status=\"{}\"}}", key.first, key.second);
    requests += fmt::format("lockstep_requests_total{} {}\n", labels, counter.requests);
    seconds += fmt::format("lockstep_request_seconds_total{} {:.6f}\n", labels, counter.seconds);
  }
  return requests + seconds;
}

}  // namespace lockstep::cli

#else

namespace lockstep::cli {

struct HttpService::Impl {};

HttpService::HttpService(HttpServiceOptions) {
  throw_error("serve: this build has no HTTP server; install libcpp-httplib-dev and build again");
}
HttpService::~HttpService() = default;
void HttpService::get(const std::string&, Handler, bool) {}
void HttpService::post(const std::string&, Handler) {}
int HttpService::bind() { return 0; }
void HttpService::run() {}
void HttpService::stop() {}
std::string HttpService::metrics() const { return ""; }

}  // namespace lockstep::cli

#endif

namespace lockstep::cli {

HttpReply json_error(int status, const std::string& message) {
  const nlohmann::json body{{"error", message}};
  return {.status = status, .body = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"};
}

}  // namespace lockstep::cli
