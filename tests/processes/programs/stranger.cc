// A hostile process: finds the ports on which a job listens and attacks them.
//
//   process_stranger --seconds S --modes M,M,... [--uid UID] [--port P] [--except P] [--most N] [--duty PERCENT]
//
// Attacks all TCP ports of the loopback on which processes of that user listen (default: all users but its own), or
// one, or all but one, with one thread for each mode, until the time is over or N connections were made (default:
// 1,000,000). Prints for each mode how many connections it made.
//
//   touch      connects and resets the connection        idle      connects and sends nothing, up to 2000 at a time
//   garbage    random bytes                              ones      256 bytes of 0xff
//   preamble   48 bytes, as Gloo begins a message        forged    a Lockstep handshake with a wrong MAC
//   slow       a handshake, a byte every 50 ms           half      half of a handshake, then nothing
//   rapid      HTTP/2 calls, reset immediately           bodies    HTTP/2 calls whose bodies never end
//   tls        TLS hellos that never end
//
// Attacks on other things that processes of one host share, besides ports:
//
//   sockets    all Unix sockets that appear        files      all files in shared folders that appear
//   memory     descriptors of the user's processes spin       nothing: it computes for PERCENT of the time
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "processes/http2_attack.h"
#include "processes/local_attack.h"

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct Target {
  sockaddr_storage address = {};
  socklen_t length = 0;
  int port = 0;
};

struct Plan {
  double seconds = 1;
  std::vector<std::string> modes;
  long uid = -1;
  int port = 0, except = 0;
  long most = 1'000'000, duty = 100;
};

Clock::time_point end_time;
std::atomic<long> connections_left{0};
std::mutex targets_mutex;
std::condition_variable targets_found;
std::vector<Target> targets;

bool over() { return Clock::now() >= end_time || connections_left.load() <= 0; }

void nap(int ms) { ::poll(nullptr, 0, ms); }

// The loopback address of a port: a job listens there, or everywhere.
Target loopback(bool six, int port) {
  Target out;
  out.port = port;
  if (six) {
    auto& address = reinterpret_cast<sockaddr_in6&>(out.address);
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    address.sin6_port = htons(static_cast<uint16_t>(port));
    out.length = sizeof(sockaddr_in6);
  } else {
    auto& address = reinterpret_cast<sockaddr_in&>(out.address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    out.length = sizeof(sockaddr_in);
  }
  return out;
}

// Ports in state LISTEN, from the world-readable tables in /proc.
std::vector<Target> listening(const Plan& plan) {
  std::vector<Target> found;
  for (const bool six : {false, true}) {
    std::ifstream table(six ? "/proc/net/tcp6" : "/proc/net/tcp");
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retransmits;
      long uid = -1;
      words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> uid;
      const size_t colon = local.rfind(':');
      if (state != "0A" || colon == std::string::npos) continue;
      const int port = static_cast<int>(std::strtol(local.c_str() + colon + 1, nullptr, 16));
      if (plan.uid >= 0 ? uid != plan.uid : uid == static_cast<long>(::getuid())) continue;
      if ((plan.port != 0 && port != plan.port) || port == plan.except) continue;
      // An IPv6 socket may listen at an IPv4 address or at all addresses.
      const std::string host = local.substr(0, colon);
      const bool mapped = host.size() == 32 && (host.substr(16, 8) == "FFFF0000" || host == std::string(32, '0'));
      found.push_back(loopback(six && !mapped, port));
    }
  }
  return found;
}

void watch_ports(const Plan& plan) {
  while (!over()) {
    std::vector<Target> found = listening(plan);
    {
      const std::lock_guard lock(targets_mutex);
      targets.swap(found);
    }
    targets_found.notify_all();
    std::this_thread::sleep_for(std::chrono::microseconds(100));  // ports may be open for only a few milliseconds
  }
}

// Waits for ports to appear.
std::vector<Target> current_targets() {
  std::unique_lock lock(targets_mutex);
  targets_found.wait_for(lock, milliseconds(50), [] { return !targets.empty(); });
  return targets;
}

class Connection {
 public:
  explicit Connection(const Target& target) : fd_(::socket(target.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval limit{0, 200'000};
    if (fd_ >= 0) ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (fd_ >= 0 && ::connect(fd_, reinterpret_cast<const sockaddr*>(&target.address), target.length) != 0) close();
    if (fd_ >= 0) --connections_left;
  }
  ~Connection() { close(); }
  Connection(Connection&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Connection& operator=(Connection&&) = delete;

  bool made() const { return fd_ >= 0; }
  bool send(const std::string& bytes) const {
    return made() && ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // Discards received bytes; false if the peer has closed the connection.
  bool drain() const {
    char bytes[65536];
    ssize_t count = 0;
    while ((count = ::recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
    }
    return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
  void reset_on_close() const {
    const linger at_once{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }

 private:
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  int fd_;
};

std::string random_bytes(std::mt19937& random, size_t count) {
  std::string out(count, '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

std::string little_endian(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> 8 * i & 0xff);
  return out;
}

// Gloo: length, opcode, slot, offset, length, offset there.
std::string gloo_preamble(std::mt19937& random) {
  std::string out = little_endian(48, 8) + little_endian(1 + random() % 3, 8);
  for (int i = 0; i < 4; ++i) out += little_endian(random() % 4, 8);
  return out;
}

std::string forged_hello(std::mt19937& random) {
  const uint32_t to = random() % 3;
  return "LOCKSTP1" + little_endian(to + 1 + random() % 2, 4) + little_endian(to, 4) + little_endian(random() % 2, 4) +
         random_bytes(random, 64);
}

// Sends bytes over new connections and keeps the newest `most` of them open.
void send_repeatedly(long& made, size_t most, int pause_ms, const std::function<std::string()>& text) {
  std::deque<Connection> kept;
  while (!over()) {
    const std::vector<Target> all = current_targets();
    for (const Target& target : all) {
      Connection one(target);
      if (!one.made()) continue;
      ++made;
      if (const std::string bytes = text(); !bytes.empty()) one.send(bytes);
      if (most == 0) one.reset_on_close();
      kept.push_back(std::move(one));
      while (kept.size() > most) kept.pop_front();
    }
    if (pause_ms > 0) nap(pause_ms);
  }
}

void trickle(long& made, std::mt19937& random) {
  while (!over()) {
    const std::vector<Target> all = current_targets();
    std::deque<Connection> open;
    for (const Target& target : all) {
      open.emplace_back(target);
      if (open.back().made()) ++made;
    }
    const std::string hello = forged_hello(random);
    for (size_t i = 0; i < hello.size() && !over(); ++i) {
      bool any = false;
      for (const Connection& one : open) any = one.send(hello.substr(i, 1)) || any;
      if (!any) break;
      nap(50);
    }
  }
}

// Many HTTP/2 streams on each of some connections.
void call_repeatedly(long& made, int streams, int pause_ms, const std::function<std::string(uint32_t)>& text) {
  std::deque<Connection> kept;
  constexpr size_t kMaxConnections = 60;
  while (!over()) {
    const std::vector<Target> all = current_targets();
    for (const Target& target : all) {
      kept.emplace_back(target);
      if (!kept.back().made() || !kept.back().send(lockstep::http2::preface())) {
        kept.pop_back();
        nap(1);
        continue;
      }
      ++made;
      for (int i = 0; i < streams && !over(); ++i) {
        if (!kept.back().send(text(static_cast<uint32_t>(2 * i + 1)))) break;
        if (i % 64 == 0) kept.back().drain();
      }
      while (kept.size() > kMaxConnections) kept.pop_front();
    }
    for (const Connection& one : kept) one.drain();
    if (pause_ms > 0) nap(pause_ms);
  }
}

// Repeats an attack that is not on a port.
void repeat(long& made, const std::function<long()>& attack_once) {
  while (!over()) {
    const long more = attack_once();
    made += more;
    connections_left -= more;
    if (more == 0) ::usleep(100);  // sockets may exist for only a few milliseconds
  }
}

// The load of an attack without the attack.
void spin(long duty) {
  using std::chrono::microseconds;
  while (!over()) {
    for (const auto end = Clock::now() + microseconds(50 * duty); Clock::now() < end;) continue;
    std::this_thread::sleep_for(microseconds(50 * (100 - duty)));
  }
}

void attack(const std::string& mode, long& made, const Plan& plan) {
  static const lockstep::local_attack::SocketFlood flood_sockets;
  static const lockstep::local_attack::FileFlood flood_files;
  if (mode == "begin") return std::fputs("attacking\n", stderr), void();
  if (mode == "sockets") return repeat(made, flood_sockets);
  if (mode == "files") return repeat(made, flood_files);
  if (mode == "spin") return spin(plan.duty);
  if (mode == "memory") return repeat(made, [&] { return lockstep::local_attack::open_descriptors(plan.uid); });
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(mode)));
  const auto nothing = [] { return std::string(); };
  if (mode == "touch") return send_repeatedly(made, 0, 0, nothing);
  if (mode == "idle") return send_repeatedly(made, 2000, 0, nothing);
  if (mode == "garbage") return send_repeatedly(made, 16, 1, [&] { return random_bytes(random, 1 + random() % 4096); });
  if (mode == "ones") return send_repeatedly(made, 16, 1, [] { return std::string(256, '\xff'); });
  if (mode == "preamble") return send_repeatedly(made, 16, 1, [&] { return gloo_preamble(random); });
  if (mode == "forged") return send_repeatedly(made, 16, 1, [&] { return forged_hello(random); });
  if (mode == "half") return send_repeatedly(made, 500, 1, [&] { return forged_hello(random).substr(0, 40); });
  if (mode == "slow") return trickle(made, random);
  if (mode == "rapid") return call_repeatedly(made, 100'000, 0, lockstep::http2::call_and_reset);
  if (mode == "bodies")
    return call_repeatedly(made, 100, 20, [](uint32_t n) { return lockstep::http2::call_with_endless_body(n, 600); });
  if (mode == "tls") return send_repeatedly(made, 2000, 0, lockstep::http2::unfinished_tls_hello);
  std::fprintf(stderr, "stranger: there is no mode %s\n", mode.c_str());
  std::exit(2);
}

Plan plan_from(int count, char** words) {
  Plan plan;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = words[i], value = words[i + 1];
    if (name == "--seconds") plan.seconds = std::atof(value.c_str());
    if (name == "--uid") plan.uid = std::atol(value.c_str());
    if (name == "--port") plan.port = std::atoi(value.c_str());
    if (name == "--except") plan.except = std::atoi(value.c_str());
    if (name == "--duty") plan.duty = std::atol(value.c_str());
    if (name == "--most") plan.most = std::atol(value.c_str());
    if (name != "--modes") continue;
    std::istringstream list(value);
    for (std::string mode; std::getline(list, mode, ',');) plan.modes.push_back(mode);
  }
  return plan;
}

}  // namespace

int main(int count, char** words) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGTERM, [](int) { connections_left = 0; });
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const Plan plan = plan_from(count, words);
  end_time = Clock::now() + milliseconds(static_cast<long>(1000 * plan.seconds));
  connections_left = plan.most;
  std::map<std::string, long> made;
  std::vector<std::thread> threads;
  long none = 0;
  attack("begin", none, plan);  // what exists now is not attacked
  threads.emplace_back([&] { watch_ports(plan); });
  for (const std::string& mode : plan.modes)
    threads.emplace_back([&, &of_mode = made[mode]] { attack(mode, of_mode, plan); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& [mode, connections] : made) std::printf("%s %ld\n", mode.c_str(), connections);
}
