#include "servers/attackers.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <deque>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

enum class Kind { silent, slow_head, slow_body, deaf, wrong_token, busy };

struct Client {
  Kind kind;
  int fd = -1;
  size_t sent = 0;
};

class Attackers {
 public:
  Attackers(const AttackTarget& target, const AttackSize& size) : target_(target), size_(size) {
    const auto add = [&](Kind kind, int count) {
      for (int i = 0; i < count; ++i) clients_.push_back({kind});
    };
    add(Kind::silent, size.silent);
    add(Kind::slow_head, size.slow / 3);
    add(Kind::slow_body, size.slow / 3);
    add(Kind::deaf, size.slow - 2 * (size.slow / 3));
    add(Kind::wrong_token, size.wrong_token);
    add(Kind::busy, size.busy);
    const std::string host = " HTTP/1.1\r\nHost: localhost\r\n";
    slow_head_ = "GET " + target.health + host + "X-Slow: ";
    slow_body_ = target.upload + host + "Content-Length: 1000\r\n\r\n";
    wrong_token_ =
        fmt::format("{}{}Authorization: Bearer wrong\r\nContent-Length: {}\r\n\r\n", target.upload, host, kBody);
    for (int i = 0; i < 1000; ++i) deaf_ += "GET " + target.health + host + "\r\n";
  }

  void run() {
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    const auto end = Clock::now() + size_.time;
    auto next_byte = Clock::now();
    for (size_t i = 0; i < clients_.size(); ++i) reconnect(clients_[i]);
    while (Clock::now() < end) {
      epoll_event events[256];
      const int count = ::epoll_wait(epoll_, events, 256, 20);
      for (int i = 0; i < count; ++i) handle(*static_cast<Client*>(events[i].data.ptr));
      if (Clock::now() < next_byte) continue;
      next_byte = Clock::now() + std::chrono::milliseconds(200);
      for (Client& each : clients_)
        if (each.kind == Kind::slow_head || each.kind == Kind::slow_body) send(each, "x");
    }
  }

 private:
  static constexpr size_t kBody = (size_t{16} << 20) - 1;

  void reconnect(Client& client) {
    if (client.fd >= 0) ::close(client.fd);
    client.fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    client.sent = 0;
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = ::htons(static_cast<uint16_t>(target_.port));
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    ::connect(client.fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    epoll_event event = {};
    event.events = client.kind == Kind::deaf ? EPOLLRDHUP : EPOLLRDHUP | EPOLLIN;
    if (client.kind == Kind::wrong_token) event.events |= EPOLLOUT;
    event.data.ptr = &client;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, client.fd, &event);
    if (client.kind == Kind::slow_head) send(client, slow_head_);
    if (client.kind == Kind::slow_body) send(client, slow_body_);
    if (client.kind == Kind::deaf) send(client, deaf_);
    if (client.kind == Kind::busy) send(client, target_.work);
    if (client.kind == Kind::wrong_token) send(client, wrong_token_);
  }

  bool send(Client& client, std::string_view text) {
    const ssize_t count = ::send(client.fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) client.sent += static_cast<size_t>(count);
    return count == std::ssize(text);
  }

  void handle(Client& client) {
    static const std::string kZeros(65536, '0');
    static char ignored[65536];
    if (client.kind == Kind::wrong_token && client.sent < wrong_token_.size() + kBody) send(client, kZeros);
    if (client.kind == Kind::deaf) return reconnect(client);
    for (;;) {
      const ssize_t count = ::recv(client.fd, ignored, sizeof(ignored), MSG_DONTWAIT);
      if (count > 0) continue;
      if (count == 0 || (errno != EAGAIN && errno != ENOTCONN && errno != EINTR)) reconnect(client);
      return;
    }
  }

  const AttackTarget& target_;
  const AttackSize& size_;
  std::deque<Client> clients_;
  std::string slow_head_, slow_body_, wrong_token_, deaf_;
  int epoll_ = -1;
};

// The last core that this process may use.
void use_one_core() {
  cpu_set_t all;
  CPU_ZERO(&all);
  if (::sched_getaffinity(0, sizeof(all), &all) != 0) return;
  int last = 0;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &all)) last = i;
  CPU_ZERO(&all);
  CPU_SET(last, &all);
  ::sched_setaffinity(0, sizeof(all), &all);
}

}  // namespace

pid_t start_attackers(const AttackTarget& target, const AttackSize& size) {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  rlimit files = {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  use_one_core();
  Attackers(target, size).run();
  ::_exit(0);
}

}  // namespace lockstep
