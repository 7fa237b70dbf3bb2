#include "cluster/mailbox_channel.h"

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/start_thread.h"
#include "cluster/message_bytes.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kMailFlush(1000);  // to send the last messages
// Polling intervals of the mailbox: within kBusyPeriod of the last message, and later.
constexpr std::chrono::microseconds kBusyPoll(100), kIdlePoll(2000);
constexpr auto kBusyPeriod = std::chrono::milliseconds(20);

// A message is the number of a call and a request or answer. Empty content: the caller no longer waits.
struct Envelope {
  uint64_t call = 0;
  std::string content = {};
};
std::string encode_envelope(const Envelope& envelope) {
  return fmt::format("{:016x}{}", envelope.call, envelope.content);
}
Envelope decode_envelope(const std::string& text) {
  return {std::strtoull(text.substr(0, 16).c_str(), nullptr, 16), text.size() > 16 ? text.substr(16) : ""};
}

// Queue of messages to send, shared by the threads that send and the MailboxThread. Thread-safe.
class Outbox {
 public:
  struct Outgoing {
    int to = 0;
    std::string text = {};
  };

  void send(int to, std::string text) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back({to, std::move(text)});
    }
    changed_.notify_all();
  }

  // Waits until all messages were sent, but at most kMailFlush.
  void flush() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kMailFlush, [&] { return queue_.empty() && idle_; });
  }

  // Marks the end: no more messages follow.
  void end() {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }

  // Returns the queued messages, waiting up to `timeout` for the first, and whether end() was called.
  std::pair<std::deque<Outgoing>, bool> take(std::chrono::microseconds timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return !queue_.empty(); });
    idle_ = false;
    return {std::exchange(queue_, {}), ending_};
  }
  // Sets whether all messages taken so far were sent. Returns whether nothing is left to send.
  bool set_idle(bool idle) {
    const std::lock_guard lock(mutex_);
    idle_ = idle;
    changed_.notify_all();
    return idle_ && queue_.empty();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Outgoing> queue_;
  bool idle_ = true;  // all messages taken from the queue were sent
  bool ending_ = false;
};

// A thread that sends the messages of an outbox and passes received messages to a handler.
class MailboxThread {
 public:
  // Handlers must not block. `lost` is called with the reason if the mailbox fails; then the thread ends.
  MailboxThread(std::unique_ptr<Mailbox> mailbox, std::shared_ptr<Outbox> outbox,
                std::function<void(const MailboxMessage&)> on_message, std::function<void(const std::string&)> lost)
      : mailbox_(std::move(mailbox)),
        outbox_(std::move(outbox)),
        on_message_(std::move(on_message)),
        lost_(std::move(lost)),
        thread_(start_thread([this] { run(); })) {}

  ~MailboxThread() {
    outbox_->end();
    thread_.join();
  }
  MailboxThread(const MailboxThread&) = delete;
  MailboxThread& operator=(const MailboxThread&) = delete;

 private:
  void run() try {
    Clock::time_point busy = Clock::now();
    std::optional<Clock::time_point> last;
    while (true) {
      auto [messages, ending] = outbox_->take(Clock::now() - busy < kBusyPeriod ? kBusyPoll : kIdlePoll);
      if (!messages.empty()) busy = Clock::now();
      for (Outbox::Outgoing& message : messages) mailbox_->send(message.to, std::move(message.text));
      while (const std::optional<MailboxMessage> message = mailbox_->receive()) {
        on_message_(*message);
        busy = Clock::now();
      }
      const bool done = outbox_->set_idle(mailbox_->all_sent());
      if (!ending) continue;
      if (!last) last = Clock::now() + kMailFlush;
      if (done || Clock::now() >= *last) return;
    }
  } catch (const std::exception& error) {
    outbox_->set_idle(true);
    lost_(error.what());
  }

  const std::unique_ptr<Mailbox> mailbox_;
  const std::shared_ptr<Outbox> outbox_;
  const std::function<void(const MailboxMessage&)> on_message_;
  const std::function<void(const std::string&)> lost_;
  std::thread thread_;
};

class MailboxChannel final : public ControlChannel {
 public:
  explicit MailboxChannel(std::unique_ptr<Mailbox> mailbox)
      : mailbox_thread_(
            std::move(mailbox), outbox_, [this](const MailboxMessage& message) { on_message(message); },
            [this](const std::string& why) { close("the transport failed: " + why); }) {}

  Answer call(const Request& request, std::chrono::nanoseconds timeout) override {
    std::unique_lock lock(mutex_);
    if (!closed_.empty()) return unreachable(closed_);
    const uint64_t number = next_++;
    waiting_[number] = std::nullopt;
    outbox_->send(0, encode_envelope({number, to_bytes(request)}));
    changed_.wait_for(lock, timeout, [&] { return waiting_[number].has_value() || !closed_.empty(); });
    const std::optional<Answer> answer = std::move(waiting_[number]);
    waiting_.erase(number);
    if (answer) return *answer;
    outbox_->send(0, encode_envelope({number}));
    return unreachable(closed_.empty() ? "no answer in time" : closed_);
  }
  void close() override { close("the channel was closed"); }
  std::string coordinator() const override { return "rank 0"; }

 private:
  static Answer unreachable(const std::string& why) { return {.outcome = Outcome::unreachable, .text = why}; }

  void on_message(const MailboxMessage& message) {
    const Envelope envelope = decode_envelope(message.text);
    Answer answer;
    try {
      answer = answer_from(envelope.content);
    } catch (const CommError& error) {
      answer = {.outcome = Outcome::refused, .text = fmt::format("coordinator at {}: {}", coordinator(), error.what())};
    }
    const std::lock_guard lock(mutex_);
    const auto found = waiting_.find(envelope.call);
    if (found == waiting_.end()) return;  // the caller no longer waits
    found->second = std::move(answer);
    changed_.notify_all();
  }

  void close(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (closed_.empty()) closed_ = why;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, std::optional<Answer>> waiting_;
  uint64_t next_ = 1;
  std::string closed_;  // the reason; empty: open
  const std::shared_ptr<Outbox> outbox_ = std::make_shared<Outbox>();
  MailboxThread mailbox_thread_;  // last member: its handlers use the others
};

class CoordinatorMailboxChannel final : public ControlChannel {
 public:
  CoordinatorMailboxChannel(std::shared_ptr<CoordinatorHost> host, std::unique_ptr<Mailbox> mailbox)
      : host_(std::move(host)),
        own_(in_process_channel(host_)),
        mailbox_thread_(
            std::move(mailbox), outbox_, [this](const MailboxMessage& message) { on_message(message); },
            [this](const std::string& why) {
              host_->close("process 0 lost its connection to the other processes: " + why);
            }) {}

  ~CoordinatorMailboxChannel() override {
    host_->close("process 0 has exited");
    // A process between two heartbeats, or before its first, must still receive this failure.
    host_->wait_failure_delivered();
  }

  Answer call(const Request& request, std::chrono::nanoseconds timeout) override {
    Answer answer = own_->call(request, timeout);
    if (answer.outcome == Outcome::failed || std::holds_alternative<request::Fail>(request.what)) {
      // The caller may end this process after a failure, and the coordinator with it: deliver the failure first.
      host_->wait_failure_delivered();
      outbox_->flush();
    }
    return answer;
  }
  void close() override { own_->close(); }
  std::string coordinator() const override { return own_->coordinator(); }

 private:
  using Caller = std::pair<int, uint64_t>;  // the process, and its number for the call
  // Shared with completions, which may outlive this object.
  struct Calls {
    std::mutex mutex;
    std::map<Caller, uint64_t> numbers;  // call numbers of the host
  };

  void on_message(const MailboxMessage& message) {
    const Envelope envelope = decode_envelope(message.text);
    const Caller caller(message.from, envelope.call);
    if (envelope.content.empty()) {
      uint64_t number = 0;
      {
        const std::lock_guard lock(calls_->mutex);
        const auto found = calls_->numbers.find(caller);
        if (found == calls_->numbers.end()) return;
        number = found->second;
        calls_->numbers.erase(found);
      }
      host_->cancel(number);
      return;
    }
    Request request;
    try {
      request = request_from(envelope.content);
    } catch (const CommError& error) {
      const Answer refused{.outcome = Outcome::refused, .text = error.what()};
      return outbox_->send(caller.first, encode_envelope({caller.second, to_bytes(refused)}));
    }
    const uint64_t number = host_->new_call();
    {
      const std::lock_guard lock(calls_->mutex);
      calls_->numbers[caller] = number;
    }
    host_->submit(number, request, "", [caller, calls = calls_, outbox = outbox_](const Answer& answer) {
      {
        const std::lock_guard lock(calls->mutex);
        calls->numbers.erase(caller);
      }
      outbox->send(caller.first, encode_envelope({caller.second, to_bytes(answer)}));
    });
  }

  const std::shared_ptr<CoordinatorHost> host_;
  const std::unique_ptr<ControlChannel> own_;
  const std::shared_ptr<Calls> calls_ = std::make_shared<Calls>();
  const std::shared_ptr<Outbox> outbox_ = std::make_shared<Outbox>();
  MailboxThread mailbox_thread_;  // last member: its handlers use the others
};

}  // namespace

std::unique_ptr<ControlChannel> mailbox_channel(std::unique_ptr<Mailbox> mailbox) {
  return std::make_unique<MailboxChannel>(std::move(mailbox));
}

std::unique_ptr<ControlChannel> coordinator_mailbox_channel(std::shared_ptr<CoordinatorHost> host,
                                                            std::unique_ptr<Mailbox> mailbox) {
  return std::make_unique<CoordinatorMailboxChannel>(std::move(host), std::move(mailbox));
}

}  // namespace lockstep
