// The functions of address.h that make system calls.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "cluster/address.h"

namespace lockstep::detail {
namespace {

Descriptor new_socket(int family, int type) {
  return Descriptor(::socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// An IP address and port for system calls.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

SocketAddress socket_address(const std::string& ip, int port) {
  addrinfo hints = {}, *list = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(ip.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) return {};
  const Addresses owner(list);
  SocketAddress out;
  out.size = static_cast<socklen_t>(list->ai_addrlen);
  std::memcpy(&out.storage, list->ai_addr, list->ai_addrlen);
  return out;
}

std::string ip_of(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST];
  return ::getnameinfo(address, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

std::string reason(int error) { return std::strerror(error); }

// Result of a lookup. Shared with the resolver thread, which cannot be interrupted and may outlive the caller.
struct Lookup {
  std::mutex mutex;
  std::condition_variable ready;
  bool done = false;
  std::string error;
  std::vector<std::string> ips;
};

// `flags`: of getaddrinfo().
void look_up(const std::string& host, int flags, Lookup& lookup) {
  addrinfo hints = {}, *list = nullptr;
  hints.ai_flags = flags;
  hints.ai_socktype = SOCK_STREAM;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  const Addresses owner(list);
  const std::lock_guard lock(lookup.mutex);
  lookup.done = true;
  if (error != 0) lookup.error = error == EAI_SYSTEM ? reason(errno) : ::gai_strerror(error);
  for (const addrinfo* each = error == 0 ? list : nullptr; each; each = each->ai_next)
    if (std::string ip = ip_of(each->ai_addr, static_cast<socklen_t>(each->ai_addrlen)); !ip.empty())
      lookup.ips.push_back(std::move(ip));
  lookup.ready.notify_all();
}

}  // namespace

std::vector<Interface> list_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw IoError(fmt::format("network interfaces: cannot list them: {}", reason(errno)));
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<Interface> out;
  for (const ifaddrs* each = list; each; each = each->ifa_next) {
    const int family = each->ifa_addr ? each->ifa_addr->sa_family : AF_UNSPEC;
    if ((family != AF_INET && family != AF_INET6) || !(each->ifa_flags & IFF_UP)) continue;
    Interface found;
    found.name = each->ifa_name;
    found.ipv6 = family == AF_INET6;
    found.loopback = (each->ifa_flags & IFF_LOOPBACK) != 0;
    if (found.ipv6) {
      sockaddr_in6 address;
      std::memcpy(&address, each->ifa_addr, sizeof(address));
      found.link_local = IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr);
    }
    found.address = ip_of(each->ifa_addr, found.ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    out.push_back(std::move(found));
  }
  return out;
}

std::vector<std::string> resolve(const std::string& host, std::chrono::milliseconds timeout) {
  // An IP address needs no name server, so it cannot time out.
  Lookup numeric;
  look_up(host, AI_NUMERICHOST, numeric);
  if (!numeric.ips.empty()) return numeric.ips;

  const auto lookup = std::make_shared<Lookup>();
  std::thread([host, lookup] { look_up(host, 0, *lookup); }).detach();
  std::unique_lock lock(lookup->mutex);
  if (!lookup->ready.wait_for(lock, timeout, [&] { return lookup->done; }))
    throw IoError(fmt::format(
        "resolve {}: no answer in {:g} s; check the name and this machine's name servers (/etc/resolv.conf)", host,
        std::chrono::duration<double>(timeout).count()));
  if (lookup->ips.empty())
    throw IoError(fmt::format("resolve {}: {}; check the name, or use an IP address", host, lookup->error));
  return lookup->ips;
}

std::string local_address_towards(const Address& remote, std::chrono::milliseconds timeout) {
  std::string why;
  for (const std::string& ip : resolve(remote.host, timeout)) {
    const SocketAddress address = socket_address(ip, remote.port);
    const Descriptor socket = new_socket(address.storage.ss_family, SOCK_DGRAM);
    SocketAddress own;
    own.size = sizeof(own.storage);
    if (socket && ::connect(socket.get(), address.get(), address.size) == 0 &&
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.size) == 0)
      return ip_of(own.get(), own.size);
    why = reason(errno);
  }
  throw IoError(fmt::format("route to {}: {}; check the address and this machine's network", to_string(remote), why));
}

PortProbe probe_port(const std::string& ip, int port, std::chrono::milliseconds timeout) {
  const SocketAddress address = socket_address(ip, port);
  const Descriptor socket = new_socket(address.storage.ss_family, SOCK_STREAM);
  int error = 0;
  if (!socket || ::connect(socket.get(), address.get(), address.size) != 0) error = errno;
  if (error == EINPROGRESS) {
    pollfd waiting = {.fd = socket.get(), .events = POLLOUT, .revents = 0};
    if (::poll(&waiting, 1, static_cast<int>(timeout.count())) <= 0)
      return {PortProbe::Result::timed_out,
              fmt::format("no answer in {:g} s", std::chrono::duration<double>(timeout).count())};
    socklen_t size = sizeof(error);
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error == 0) return {PortProbe::Result::answered, "answers"};
  if (error == ECONNREFUSED) return {PortProbe::Result::refused, reason(error)};
  return {error == ETIMEDOUT ? PortProbe::Result::timed_out : PortProbe::Result::unreachable, reason(error)};
}

Descriptor listen_at(const std::string& ip, int port, std::string& why) {
  const SocketAddress address = socket_address(ip, port);
  const int family = address.storage.ss_family;
  Descriptor socket = new_socket(family, SOCK_STREAM);
  const int yes = 1, only_ipv6 = ip != "::";
  if (socket) {
    // Connections of a job that has just ended must not block the port.
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (family == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only_ipv6, sizeof(only_ipv6));
    if (::bind(socket.get(), address.get(), address.size) == 0 && ::listen(socket.get(), SOMAXCONN) == 0) return socket;
  }
  why = reason(errno);
  return {};
}

std::string listen_error(const std::string& ip, int port) {
  std::string why;
  listen_at(ip, port, why);
  return why;
}

}  // namespace lockstep::detail
