// Gloo's wait cannot be polled: when it times out, Gloo closes all connections of the group. So it is given the whole
// time, and is woken by aborting it. A connection that breaks in the middle of a message does not wake the one who
// waits for that message; the receives in watches_, which are pending on every connection for that purpose, do notice,
// and broken() asks them.
#include "comm/gloo/gloo_links.h"

#include <gloo/transport/context.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <netdb.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr uint64_t kWatch = 1;  // a slot that no way has
uint64_t slot(Links::Way way) { return way == Links::Way::meeting ? 2 : 0; }
constexpr auto kLongestWait = std::chrono::hours(24 * 365);

milliseconds until(Links::Time deadline) {
  const auto now = Clock::now();
  if (deadline <= now) return milliseconds(0);
  return std::chrono::ceil<milliseconds>(std::min<nanoseconds>(deadline - now, kLongestWait));
}

// The host in an address of Gloo's.
std::string host_of(const std::vector<char>& address) {
  const sockaddr_storage socket = gloo::transport::tcp::Address(address).getSockaddr();
  std::array<char, NI_MAXHOST> host = {};
  getnameinfo(reinterpret_cast<const sockaddr*>(&socket), sizeof socket, host.data(), host.size(), nullptr, 0,
              NI_NUMERICHOST);
  return host.data();
}

}  // namespace

// Gloo's loop looks up every 10 ms, and each connection that is made or closed waits for that: while a Hurry lives it
// looks up more often.
class GlooDevice {
 public:
  explicit GlooDevice(const gloo::transport::tcp::attr& attributes)
      : device_(std::make_shared<gloo::transport::tcp::Device>(gloo::transport::tcp::CreateDeviceAttr(attributes))),
        timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
        handler_(timer_) {
    if (timer_ >= 0) device_->registerDescriptor(timer_, EPOLLIN, &handler_);
  }
  ~GlooDevice() {
    hurry(1);
    device_.reset();  // ends its thread
    if (timer_ >= 0) ::close(timer_);
  }
  GlooDevice(const GlooDevice&) = delete;
  GlooDevice& operator=(const GlooDevice&) = delete;

  std::shared_ptr<gloo::transport::Context> context(int rank, int size) { return device_->createContext(rank, size); }

  class Hurry {
   public:
    explicit Hurry(GlooDevice& device) : device_(device) { device_.hurry(1); }
    ~Hurry() { device_.hurry(-1); }
    Hurry(const Hurry&) = delete;
    Hurry& operator=(const Hurry&) = delete;

   private:
    GlooDevice& device_;
  };

 private:
  struct Handler final : gloo::transport::tcp::Handler {
    explicit Handler(int its_timer) : timer(its_timer) {}
    void handleEvents(int) override {
      uint64_t ticks = 0;
      [[maybe_unused]] const ssize_t count = ::read(timer, &ticks, sizeof ticks);
    }
    const int timer;
  };

  void hurry(int more) {
    const std::lock_guard lock(mutex_);
    users_ += more;
    if (timer_ < 0) return;
    constexpr long kPeriod = 100'000;  // ns
    const timespec period{0, users_ > 0 ? kPeriod : 0};
    const itimerspec times{period, period};
    timerfd_settime(timer_, 0, &times, nullptr);
  }

  std::shared_ptr<gloo::transport::tcp::Device> device_;
  const int timer_;
  Handler handler_;
  std::mutex mutex_;
  int users_ = 0;
};

std::shared_ptr<GlooDevice> gloo_device(const std::string& address, const std::string& interface) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = address;
  attributes.iface = interface;
  try {
    return std::make_shared<GlooDevice>(attributes);
  } catch (const std::exception&) {
    if (!interface.empty())
      throw_error("gloo: this machine has no interface \"{}\" with an address; see `ip address`", interface);
    throw_error("gloo: \"{}\" is no address of this machine; give one that others can reach, or an interface",
                address.empty() ? "its own name" : address);
  }
}

GlooLinks::GlooLinks(std::shared_ptr<GlooDevice> device, KeyStore& store, int rank, int size, const std::string& prefix,
                     Time deadline)
    : device_(std::move(device)),
      store_(store),
      rank_(rank),
      size_(size),
      watches_(static_cast<size_t>(size)),
      lost_(static_cast<size_t>(size)) {
  connect(prefix, deadline);
}

GlooLinks::~GlooLinks() {
  const GlooDevice::Hurry hurry(*device_);
  messages_.clear();
  watches_.clear();
  context_.reset();
}

void GlooLinks::connect(const std::string& prefix, Time deadline) {
  const GlooDevice::Hurry hurry(*device_);
  context_ = device_->context(rank_, size_);
  // Gloo gives a connection five times this.
  context_->setTimeout(std::max(until(deadline) / 5, milliseconds(1)));
  int peer = -1;
  try {
    std::string addresses;  // for each rank where this one waits for it, all of one length
    for (peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      const std::vector<char> bytes = context_->createPair(peer)->address().bytes();
      addresses.append(bytes.begin(), bytes.end());
    }
    if (size_ > 1) store_.set(fmt::format("{}/address/{}", prefix, rank_), addresses);
    for (peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      const std::string theirs = store_.get(fmt::format("{}/address/{}", prefix, peer), until(deadline));
      const size_t length = theirs.size() / static_cast<size_t>(size_ - 1);
      const auto* first = theirs.data() + static_cast<size_t>(rank_ > peer ? rank_ - 1 : rank_) * length;
      const std::vector<char> address(first, first + length);
      one_host_ = one_host_ && host_of(address) == host_of(context_->getPair(peer)->address().bytes());
      context_->getPair(peer)->connect(address);
    }
  } catch (const CommTimeout&) {
    throw LinkTimeout{peer};
  } catch (const std::exception& error) {
    if (Clock::now() >= deadline) throw LinkTimeout{peer};
    throw LinkBroken{peer, error.what()};
  }
  for (peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    try {
      auto& watch = watches_[static_cast<size_t>(peer)];
      watch = context_->createUnboundBuffer(nullptr, 0);
      watch->recv(peer, kWatch, 0, 0);
    } catch (const std::exception& error) {
      throw LinkBroken{peer, error.what()};
    }
  }
}

std::unique_ptr<Links> GlooLinks::split(const std::vector<int>& ranks, int rank, const std::string& prefix,
                                        Time deadline) {
  return std::make_unique<GlooLinks>(device_, store_, rank, static_cast<int>(ranks.size()), prefix, deadline);
}

// A buffer of Gloo's is some memory, and messages are parts of it. Ours is all memory, so that it can be used again for
// any message: the offset of a part is its address.
int GlooLinks::begin(int peer, bool sends) {
  if (closed_.load()) throw LinkBroken{-1, "closed"};
  if (free_.empty()) {
    messages_.push_back(std::make_unique<Message>());
    messages_.back()->buffer = context_->createUnboundBuffer(nullptr, std::numeric_limits<size_t>::max());
    free_.push_back(static_cast<int>(messages_.size()) - 1);
  }
  const int message = free_.back();
  free_.pop_back();
  messages_[static_cast<size_t>(message)]->peer = peer;
  messages_[static_cast<size_t>(message)]->sends = sends;
  return message;
}

int GlooLinks::send(Way way, int to, const void* data, size_t bytes, uint64_t) {
  const int message = begin(to, true);
  try {
    messages_[static_cast<size_t>(message)]->buffer->send(to, slot(way), reinterpret_cast<uintptr_t>(data), bytes);
  } catch (const std::exception& error) {
    throw LinkBroken{to, error.what()};
  }
  return message;
}

int GlooLinks::receive(Way way, int from, void* data, size_t bytes) {
  const int message = begin(from, false);
  try {
    messages_[static_cast<size_t>(message)]->buffer->recv(from, slot(way), reinterpret_cast<uintptr_t>(data), bytes);
  } catch (const std::exception& error) {
    throw LinkBroken{from, error.what()};
  }
  return message;
}

Links::Arrival GlooLinks::wait(int message, Time deadline) {
  const Message& one = *messages_[static_cast<size_t>(message)];
  // Whoever closes looks at waiting_ after it has said so: one of the two sees the other.
  waiting_.store(&one);
  bool done = false;
  try {
    while (!done) {
      if (closed_.load()) throw LinkBroken{-1, "closed"};
      const milliseconds time = until(deadline);
      done = one.sends ? one.buffer->waitSend(nullptr, time) : one.buffer->waitRecv(nullptr, time);
      if (!done) fail_if_broken(one.peer);
    }
  } catch (const std::exception& error) {
    waiting_.store(nullptr);
    if (closed_.load()) throw LinkBroken{-1, "closed"};
    if (Clock::now() >= deadline) throw LinkTimeout{one.peer};
    throw LinkBroken{one.peer, error.what()};
  } catch (const LinkBroken&) {
    waiting_.store(nullptr);
    throw;
  }
  waiting_.store(nullptr);
  free_.push_back(message);
  return {};
}

void GlooLinks::fail_if_broken(int peer) {
  const std::lock_guard lock(mutex_);
  if (const std::string& why = lost_[static_cast<size_t>(peer)]; !why.empty()) throw LinkBroken{peer, why};
}

void GlooLinks::wake(const Message& message) {
  if (message.sends)
    message.buffer->abortWaitSend();
  else
    message.buffer->abortWaitRecv();
}

std::vector<LinkBroken> GlooLinks::broken() {
  const std::lock_guard lock(mutex_);
  if (closed_.load()) return {{-1, "closed"}};
  std::vector<LinkBroken> found;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    std::string& why = lost_[static_cast<size_t>(peer)];
    try {
      // Aborted before it begins, the wait returns at once, or throws what has happened.
      gloo::transport::UnboundBuffer& watch = *watches_[static_cast<size_t>(peer)];
      watch.abortWaitRecv();
      watch.waitRecv(nullptr, milliseconds(1000));
    } catch (const std::exception& error) {
      why = error.what();
    }
    if (!why.empty()) found.push_back({peer, why});
  }
  if (!found.empty())
    if (const Message* waiting = waiting_.load()) wake(*waiting);
  return found;
}

// Gloo closes the connections of a group in which a wait has timed out, after what was written to them has arrived.
// (Its function to close one throws that away.)
void GlooLinks::close() noexcept {
  closed_.store(true);
  if (const Message* waiting = waiting_.load()) wake(*waiting);
  const std::lock_guard lock(mutex_);
  if (std::exchange(closing_done_, true)) return;
  const GlooDevice::Hurry hurry(*device_);
  try {
    context_->createUnboundBuffer(nullptr, 0)->waitRecv(nullptr, milliseconds(0));
  } catch (const std::exception&) {
    // It says that it has timed out.
  }
}

}  // namespace lockstep
