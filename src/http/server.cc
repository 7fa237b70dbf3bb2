#include "http/server.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <regex>

#include "base/check.h"
#include "base/printable.h"
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

}  // namespace

struct Server::Parts {
  struct Route {
    std::string method, pattern;
    std::regex regex;
    Handler handler;
  };
  struct Total {
    int64_t requests = 0;
    double seconds = 0;
  };

  explicit Parts(ServerOptions given)
      : options(std::move(given)),
        socket(listen_on(options)),
        port(port_of(socket)),
        connections(std::move(socket),
                    {.threads = options.threads,
                     .connections = options.connections,
                     .max_body = options.max_body,
                     .timeout = options.timeout,
                     .slowest_client = options.slowest_client},
                    [this](const Request& request) { return answer(request); }) {}

  void add(const char* method, const std::string& pattern, Handler handler) {
    routes.push_back({method, pattern, std::regex(pattern), std::move(handler)});
  }

  Response answer(const Request& given) {
    const auto begin = std::chrono::steady_clock::now();
    Request request = given;
    Response response;
    std::string pattern;
    try {
      if (!check || !check(request, response)) call_handler(request, response, pattern);
    } catch (const Error& error) {
      response = {};
      response.set_error(400, error.what());
    } catch (const std::exception& error) {
      response = {};
      response.set_error(500, error.what());
    }
    for (const auto& [name, value] : options.headers) response.set_header(name, value);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const std::lock_guard lock(mutex);
    Total& total = totals[{pattern, response.status}];
    ++total.requests;
    total.seconds += seconds.count();
    return response;
  }

  // `pattern`: that of the handler.
  void call_handler(Request& request, Response& response, std::string& pattern) {
    const std::string method = request.method == "HEAD" ? "GET" : request.method;
    for (const Route& route : routes) {
      std::smatch match;
      if (route.method != method || !std::regex_match(request.path, match, route.regex)) continue;
      request.matches.assign(match.begin(), match.end());
      pattern = route.pattern;
      return route.handler(request, response);
    }
    response.set_error(404, fmt::format("no answer to {} {}{}", printable(request.method, 20),
                                        printable(request.path, 200), options.help));
  }

  ServerOptions options;
  Descriptor socket;
  int port = 0;
  std::vector<Route> routes;
  std::function<bool(const Request&, Response&)> check;
  mutable std::mutex mutex;
  std::map<std::pair<std::string, int>, Total> totals;
  Connections connections;
};

Server::Server(ServerOptions options) : parts_(std::make_unique<Parts>(std::move(options))) {}
Server::~Server() = default;
void Server::get(const std::string& pattern, Handler handler) { parts_->add("GET", pattern, std::move(handler)); }
void Server::post(const std::string& pattern, Handler handler) { parts_->add("POST", pattern, std::move(handler)); }
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
