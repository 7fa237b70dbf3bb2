// A network cable with faults: copies Ethernet frames between two interfaces, each of which is one end of a virtual
// cable to a simulated host. It needs neither netem nor a firewall in the kernel.
//
//   process_faulty_cable plain INTERFACE       # turns off offloads, so that packets are as on a real network
//   process_faulty_cable A B PIPE PORT         # copies frames until it is killed
//
// PIPE is a FIFO that takes commands, one a line: DIRECTION FAULT [NUMBER]. DIRECTION is ab, ba or both. PORT is that of
// the coordinator: TCP packets of other ports are the data plane's. The faults of packets, one per direction:
//
//   none          reset (every data packet becomes a reset of its connection)
//   drop          change (one byte of every large data packet, with a correct checksum)
//   drop_data     loss PERCENT          duplicate PERCENT
//   drop_control  reorder PERCENT       rate KILOBYTES_PER_SECOND
//   drop_above BYTES (a hole in the path MTU, without ICMP)
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Frame = std::vector<unsigned char>;

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

int turn_off_offloads(const char* interface) {
  const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
  for (const uint32_t command : {ETHTOOL_SGSO, ETHTOOL_STSO, ETHTOOL_SGRO, ETHTOOL_STXCSUM}) {
    ethtool_value value = {.cmd = command, .data = 0};
    ifreq request = {};
    std::strncpy(request.ifr_name, interface, IFNAMSIZ - 1);
    request.ifr_data = reinterpret_cast<char*>(&value);
    if (::ioctl(fd, SIOCETHTOOL, &request) != 0) die("ethtool");
  }
  return 0;
}

int open_interface(const char* name) {
  const int fd = ::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
  if (fd < 0) die("socket");
  sockaddr_ll address = {};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(name));
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) die(name);
  const int yes = 1, room = 8 << 20;
  if (::setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof yes) != 0) die("PACKET_IGNORE_OUTGOING");
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
  return fd;
}

uint32_t sum_of(const unsigned char* bytes, size_t size, uint32_t sum) {
  for (size_t i = 0; i < size; ++i) sum += static_cast<uint32_t>(bytes[i]) << (i % 2 == 0 ? 8 : 0);
  return sum;
}
uint16_t folded(uint32_t sum) {
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return htons(static_cast<uint16_t>(~sum));
}

// A TCP packet over IPv4 in a frame.
class TcpPacket {
 public:
  explicit TcpPacket(Frame& frame) : frame_(frame) {
    if (frame.size() < ETH_HLEN + sizeof(iphdr) || frame[12] != 8 || frame[13] != 0 || ip().protocol != IPPROTO_TCP)
      return;
    begin_ = ETH_HLEN + size_t{ip().ihl} * 4;
    if (frame.size() < begin_ + sizeof(tcphdr)) return;
    payload_ = begin_ + size_t{tcp().doff} * 4;
    is_tcp_ = payload_ <= ETH_HLEN + size_t{ntohs(ip().tot_len)};
  }

  bool is_tcp() const { return is_tcp_; }
  bool has_port(int port) { return ntohs(tcp().source) == port || ntohs(tcp().dest) == port; }
  size_t payload_bytes() { return ETH_HLEN + size_t{ntohs(ip().tot_len)} - payload_; }

  void make_reset() {
    frame_.resize(begin_ + sizeof(tcphdr));
    tcp().doff = sizeof(tcphdr) / 4;
    tcp().rst = 1;
    tcp().psh = 0;
    ip().tot_len = htons(static_cast<uint16_t>(frame_.size() - ETH_HLEN));
    ip().check = 0;
    ip().check = folded(sum_of(&frame_[ETH_HLEN], size_t{ip().ihl} * 4, 0));
    set_checksum();
  }
  void change() {
    frame_[payload_ + payload_bytes() / 2] ^= 1;
    set_checksum();
  }

 private:
  iphdr& ip() { return *reinterpret_cast<iphdr*>(&frame_[ETH_HLEN]); }
  tcphdr& tcp() { return *reinterpret_cast<tcphdr*>(&frame_[begin_]); }
  void set_checksum() {
    const size_t size = ETH_HLEN + size_t{ntohs(ip().tot_len)} - begin_;
    tcp().check = 0;
    tcp().check = folded(
        sum_of(&frame_[begin_], size, sum_of(&frame_[ETH_HLEN + 12], 8, static_cast<uint32_t>(IPPROTO_TCP + size))));
  }

  Frame& frame_;
  size_t begin_ = 0, payload_ = 0;
  bool is_tcp_ = false;
};

// One direction.
class Direction {
 public:
  Direction(int from, int to, int port) : from_(from), to_(to), port_(port) {}

  void set_fault(const std::string& fault, double number) {
    fault_ = fault;
    number_ = number;
  }
  int from() const { return from_; }

  void copy() {
    Frame frame(65536, 0);
    for (int i = 0; i < 256; ++i) {
      const ssize_t got = ::recv(from_, frame.data(), frame.size(), 0);
      if (got <= 0) break;
      Frame one(frame.begin(), frame.begin() + got);
      pass(one);
    }
  }

  // When the next frame of the queue may be sent; none: a long time from now.
  Clock::time_point next() const { return queue_.empty() ? Clock::now() + std::chrono::hours(1) : next_; }
  void send_queued() {
    while (!queue_.empty() && (fault_ != "rate" || next_ <= Clock::now())) {
      if (fault_ == "rate")
        next_ +=
            std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(queue_.front().size()) * 1e6 / number_));
      send(queue_.front());
      queue_.pop_front();
    }
  }

 private:
  bool happens() { return std::uniform_real_distribution<>(0, 100)(random_) < number_; }
  void send(const Frame& frame) const { (void)!::send(to_, frame.data(), frame.size(), 0); }

  void pass(Frame& frame) {
    TcpPacket packet(frame);
    const bool control = packet.is_tcp() && packet.has_port(port_), data = packet.is_tcp() && !control;
    if (fault_ == "drop" || (fault_ == "drop_data" && data) || (fault_ == "drop_control" && control) ||
        (fault_ == "drop_above" && static_cast<double>(frame.size() - ETH_HLEN) > number_) ||
        (fault_ == "loss" && happens()))
      return;
    if (fault_ == "reset" && data && packet.payload_bytes() > 0) packet.make_reset();
    if (fault_ == "change" && data && packet.payload_bytes() > 1000) packet.change();
    if (fault_ == "duplicate" && happens()) send(frame);
    if (fault_ == "rate") {
      constexpr size_t kQueue = 1000;
      if (queue_.empty()) next_ = std::max(next_, Clock::now());
      if (queue_.size() < kQueue) queue_.push_back(frame);
      return send_queued();
    }
    if (fault_ == "reorder" && queue_.empty() && happens()) {
      queue_.push_back(frame);  // after the next one
      next_ = Clock::now() + std::chrono::milliseconds(20);
      return;
    }
    send(frame);
    send_queued();
  }

  const int from_, to_, port_;
  std::string fault_ = "none";
  double number_ = 0;
  std::deque<Frame> queue_;
  Clock::time_point next_{};
  std::mt19937 random_{7};
};

void obey(const std::string& line, Direction& ab, Direction& ba) {
  std::istringstream words(line);
  std::string direction, fault;
  double number = 0;
  words >> direction >> fault >> number;
  if (direction != "ba") ab.set_fault(fault, number);
  if (direction != "ab") ba.set_fault(fault, number);
}

}  // namespace

int main(int count, char** words) {
  if (count == 3) return turn_off_offloads(words[2]);
  if (count != 5) return 2;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int a = open_interface(words[1]), b = open_interface(words[2]);
  const int pipe = ::open(words[3], O_RDWR | O_NONBLOCK);
  if (pipe < 0) die(words[3]);
  Direction ab(a, b, std::atoi(words[4])), ba(b, a, std::atoi(words[4]));
  std::string commands;
  std::fputs("ready\n", stderr);
  while (true) {
    std::array<pollfd, 3> polled{{{a, POLLIN, 0}, {b, POLLIN, 0}, {pipe, POLLIN, 0}}};
    const auto wait = std::min(ab.next(), ba.next()) - Clock::now();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::max(wait, Clock::duration(0)));
    ::poll(polled.data(), polled.size(), static_cast<int>(left.count()));
    if (polled[2].revents) {
      std::array<char, 256> bytes;
      const ssize_t got = ::read(pipe, bytes.data(), bytes.size());
      if (got > 0) commands.append(bytes.data(), static_cast<size_t>(got));
      for (size_t end = 0; (end = commands.find('\n')) != commands.npos; commands.erase(0, end + 1))
        obey(commands.substr(0, end), ab, ba);
    }
    for (Direction* each : {&ab, &ba}) {
      each->copy();
      if (each->next() <= Clock::now()) each->send_queued();
    }
  }
}
