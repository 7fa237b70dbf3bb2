#include "http/server.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <regex>
#include <set>

#include "base/check.h"
#include "base/os/process.h"
#include "base/print_stderr.h"
#include "base/printable.h"
#include "http/access.h"
#include "http/connections.h"

namespace lockstep::http {
namespace {

[[noreturn]] void throw_cannot_listen(const ServerOptions& options, const char* reason) {
  throw_error("{}: cannot listen on {}:{}: {}; choose another {} or {}", options.name, printable(options.host),
              options.port, reason, options.port_flag, options.host_flag);
}

Descriptor listen_at(const addrinfo& address) {
  Descriptor out(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1;
  // Not SO_REUSEPORT: a second server on the same port would get half of the requests.
  if (out && ::setsockopt(out.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
      ::bind(out.get(), address.ai_addr, address.ai_addrlen) == 0 && ::listen(out.get(), SOMAXCONN) == 0)
    return out;
  const int error = errno;
  out.close();
  errno = error;
  return out;
}

Descriptor listen_on(const ServerOptions& options) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(options.port);
  if (const int error = ::getaddrinfo(options.host.c_str(), port.c_str(), &hints, &found); error != 0)
    throw_cannot_listen(options, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, ::freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next)
    if (Descriptor out = listen_at(*each)) return out;
  throw_cannot_listen(options, std::strerror(errno));
}

int port_of(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

bool is_literal(std::string_view pattern) { return pattern.find_first_of("()[]{}*+?|^$\\.") == pattern.npos; }

constexpr size_t kMaxLogged = 100;  // different texts

}  // namespace

struct Route {
  std::string method, pattern;
  std::optional<std::regex> regex;  // empty: the path is the pattern
  Server::LaterHandler handler;
  size_t max_body = 0;
  bool is_quick = false;
};

struct Server::Parts final : Service {
  struct Total {
    int64_t requests = 0;
    double seconds = 0;
  };

  explicit Parts(ServerOptions given)
      : options(std::move(given)),
        checks_host(!options.any_host_name && is_loopback(options.host)),
        socket(listen_on(options)),
        port(port_of(socket)),
        connections(std::move(socket),
                    {.threads = options.threads,
                     .connections = std::min(options.connections, raise_open_file_limit() / 2),
                     .bodies = std::max(options.bodies, options.max_body),
                     .timeout = options.timeout,
                     .slowest_client = options.slowest_client,
                     .headers = options.headers},
                    *this) {}

  Route& add(const char* method, const std::string& pattern, LaterHandler handler) {
    Route& route = routes.emplace_back();
    route.method = method;
    route.pattern = pattern;
    if (!is_literal(pattern)) route.regex.emplace(pattern);
    route.handler = std::move(handler);
    route.max_body = options.max_body;
    return route;
  }
  Route& add(const char* method, const std::string& pattern, Handler handler) {
    return add(method, pattern, [handler = std::move(handler)](const Request& request, Reply& reply) {
      Response response;
      handler(request, response);
      reply.send(std::move(response));
    });
  }

  Verdict judge(Request& request) override {
    Verdict out;
    Response refusal;
    if (!is_admitted(request, refusal)) {
      out.refusal = std::move(refusal);
    } else {
      out.max_body = request.route->max_body;
      out.is_quick = request.route->is_quick;
    }
    return out;
  }

  bool is_admitted(Request& request, Response& refusal) {
    if (const std::string host = request.get_header_value("host"); !request.has_header("host")) {
      if (request.takes_chunks) return refused(refusal, 400, "the header Host is missing; HTTP/1.1 requires it");
    } else if (!host_name(host)) {
      return refused(refusal, 400, "the Host header is not NAME or NAME:PORT");
    } else if (checks_host && !host_is_allowed(host, options.host)) {
      return refused(refusal, 421,
                     fmt::format("the Host header names another machine; send requests to {} or localhost",
                                 printable(options.host)));
    }
    find_route(request);
    try {
      if (check && check(request, refusal)) return false;
    } catch (const std::exception& error) {
      refusal = {};
      return refused(refusal, 500, error.what());
    }
    if (request.route != nullptr) return true;
    return refused(
        refusal, 404,
        fmt::format("no answer to {} {}{}", printable(request.method, 20), printable(request.path, 200), options.help));
  }

  static bool refused(Response& refusal, int status, const std::string& text) {
    refusal.set_error(status, text);
    return false;
  }

  void find_route(Request& request) const {
    const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
    for (const Route& route : routes) {
      if (route.method != method) continue;
      std::smatch match;
      if (route.regex ? !std::regex_match(request.path, match, *route.regex) : request.path != route.pattern) continue;
      request.matches.assign(match.begin(), match.end());
      request.route = &route;
      return;
    }
  }

  void answer(const std::shared_ptr<Exchange>& exchange) override {
    Reply reply(exchange);
    const auto fail = [&](int status, const char* text) {
      if (reply) reply.fail(status, text);
    };
    try {
      exchange->request.route->handler(exchange->request, reply);
    } catch (const Error& error) {
      fail(400, error.what());
    } catch (const std::exception& error) {
      fail(500, error.what());
    }
  }

  void count(const Request& request, int status, std::chrono::duration<double> time) override {
    const std::lock_guard lock(mutex);
    Total& total = totals[{request.route != nullptr ? request.route->pattern : "", status}];
    ++total.requests;
    total.seconds += time.count();
  }

  void log(const std::string& text) override {
    {
      const std::lock_guard lock(mutex);
      if (logged.size() >= kMaxLogged || !logged.insert(text).second) return;
    }
    print_stderr("lockstep: {}: {} (logged once)\n", options.name, text);
  }

  ServerOptions options;
  const bool checks_host;
  Descriptor socket;
  int port = 0;
  std::list<Route> routes;
  std::function<bool(const Request&, Response&)> check;
  mutable std::mutex mutex;
  std::map<std::pair<std::string, int>, Total> totals;
  std::set<std::string> logged;
  Connections connections;
};

Server::Server(ServerOptions options) : parts_(std::make_unique<Parts>(std::move(options))) {}
Server::~Server() = default;
void Server::get(const std::string& pattern, Handler handler) { parts_->add("GET", pattern, std::move(handler)); }
void Server::post(const std::string& pattern, Handler handler) { parts_->add("POST", pattern, std::move(handler)); }
void Server::post_later(const std::string& pattern, size_t max_body, LaterHandler handler) {
  parts_->add("POST", pattern, std::move(handler)).max_body = max_body;
}
void Server::get_later(const std::string& pattern, LaterHandler handler) {
  parts_->add("GET", pattern, std::move(handler));
}
void Server::get_quick(const std::string& pattern, Handler handler) {
  parts_->add("GET", pattern, std::move(handler)).is_quick = true;
}
void Server::set_check(std::function<bool(const Request&, Response&)> check) { parts_->check = std::move(check); }
int Server::port() const { return parts_->port; }
void Server::run() { parts_->connections.run(); }
void Server::stop() { parts_->connections.stop(); }
bool Server::is_stopping() const { return parts_->connections.is_stopping(); }

std::vector<Server::Count> Server::counts() const {
  const std::lock_guard lock(parts_->mutex);
  std::vector<Count> out;
  for (const auto& [key, total] : parts_->totals) out.push_back({key.first, key.second, total.requests, total.seconds});
  return out;
}

}  // namespace lockstep::http
