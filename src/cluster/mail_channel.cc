#include "cluster/mail_channel.h"

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "cluster/message_bytes.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kMailFlush(1000);  // for the last letters to get out
// How often the mail is looked at: while something is expected, and otherwise.
constexpr std::chrono::microseconds kBusyPoll(100), kIdlePoll(2000);
constexpr auto kBusyPeriod = std::chrono::milliseconds(20);

// A letter is the number of a call, and what is asked or answered; nothing: the caller has gone.
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

// What is to be sent. Shared by all who send.
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

  // Waits until all has set_idle, but not long.
  void flush() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kMailFlush, [&] { return queue_.empty() && idle_; });
  }

  // From now on nobody needs to wait for more to send.
  void end() {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }

  // What there is, maybe after a while, and whether it is the end.
  std::pair<std::deque<Outgoing>, bool> take(std::chrono::microseconds patience) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [&] { return !queue_.empty(); });
    idle_ = false;
    return {std::exchange(queue_, {}), ending_};
  }
  // Whether all has set_idle, when what was taken has.
  bool set_idle(bool all) {
    const std::lock_guard lock(mutex_);
    idle_ = all;
    changed_.notify_all();
    return idle_ && queue_.empty();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Outgoing> queue_;
  bool idle_ = true;  // nothing is on its way out
  bool ending_ = false;
};

// Looks after the mail: sends what is in the outbox, and hands over what arrives, on a thread of its own.
class MailThread {
 public:
  // Handlers must not block. `lost`, with the reason, ends it.
  MailThread(std::unique_ptr<Mailbox> mail, std::shared_ptr<Outbox> outbox,
             std::function<void(const MailboxMessage&)> arrived, std::function<void(const std::string&)> lost)
      : mail_(std::move(mail)),
        outbox_(std::move(outbox)),
        arrived_(std::move(arrived)),
        lost_(std::move(lost)),
        thread_([this] { run(); }) {}

  ~MailThread() {
    outbox_->end();
    thread_.join();
  }
  MailThread(const MailThread&) = delete;
  MailThread& operator=(const MailThread&) = delete;

 private:
  void run() try {
    Clock::time_point busy = Clock::now();
    std::optional<Clock::time_point> last;
    while (true) {
      auto [letters, ending] = outbox_->take(Clock::now() - busy < kBusyPeriod ? kBusyPoll : kIdlePoll);
      if (!letters.empty()) busy = Clock::now();
      for (Outbox::Outgoing& letter : letters) mail_->send(letter.to, std::move(letter.text));
      while (const std::optional<MailboxMessage> letter = mail_->receive()) {
        arrived_(*letter);
        busy = Clock::now();
      }
      const bool done = outbox_->set_idle(mail_->all_sent());
      if (!ending) continue;
      if (!last) last = Clock::now() + kMailFlush;
      if (done || Clock::now() >= *last) return;
    }
  } catch (const std::exception& error) {
    outbox_->set_idle(true);
    lost_(error.what());
  }

  const std::unique_ptr<Mailbox> mail_;
  const std::shared_ptr<Outbox> outbox_;
  const std::function<void(const MailboxMessage&)> arrived_;
  const std::function<void(const std::string&)> lost_;
  std::thread thread_;
};

class MailChannel final : public ControlChannel {
 public:
  explicit MailChannel(std::unique_ptr<Mailbox> mail)
      : mail_thread_(
            std::move(mail), outbox_, [this](const MailboxMessage& letter) { arrived(letter); },
            [this](const std::string& why) { close("the way to it is gone: " + why); }) {}

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

  void arrived(const MailboxMessage& letter) {
    const Envelope envelope = decode_envelope(letter.text);
    Answer answer = answer_from(envelope.content);
    const std::lock_guard lock(mutex_);
    const auto found = waiting_.find(envelope.call);
    if (found == waiting_.end()) return;  // it has gone meanwhile
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
  std::string closed_;  // why
  const std::shared_ptr<Outbox> outbox_ = std::make_shared<Outbox>();
  MailThread mail_thread_;  // the last: it calls the rest
};

class ServingMailChannel final : public ControlChannel {
 public:
  ServingMailChannel(std::shared_ptr<CoordinatorHost> host, std::unique_ptr<Mailbox> mail)
      : host_(std::move(host)),
        own_(in_process_channel(host_)),
        mail_thread_(
            std::move(mail), outbox_, [this](const MailboxMessage& letter) { arrived(letter); },
            [this](const std::string& why) { host_->close("process 0 has lost the others: " + why); }) {}

  ~ServingMailChannel() override {
    host_->close("process 0 has ended");
    // One that is between two heartbeats, or before its first, would wait for an answer.
    host_->wait_failure_delivered();
  }

  Answer call(const Request& request, std::chrono::nanoseconds timeout) override {
    Answer answer = own_->call(request, timeout);
    if (answer.outcome == Outcome::failed || std::holds_alternative<request::Fail>(request.what)) {
      // Whoever hears or tells of a failure may end this process, and with it the coordinator.
      host_->wait_failure_delivered();
      outbox_->flush();
    }
    return answer;
  }
  void close() override { own_->close(); }
  std::string coordinator() const override { return own_->coordinator(); }

 private:
  using Caller = std::pair<int, uint64_t>;  // the process, and its number for the call
  // Shared with completions, which may be called when the rest is gone.
  struct Calls {
    std::mutex mutex;
    std::map<Caller, uint64_t> numbers;  // the host's
  };

  void arrived(const MailboxMessage& letter) {
    const Envelope envelope = decode_envelope(letter.text);
    const Caller caller(letter.from, envelope.call);
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
    const uint64_t number = host_->new_call();
    {
      const std::lock_guard lock(calls_->mutex);
      calls_->numbers[caller] = number;
    }
    host_->submit(number, request_from(envelope.content), "",
                  [caller, calls = calls_, outbox = outbox_](const Answer& answer) {
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
  MailThread mail_thread_;  // the last: it calls the rest
};

}  // namespace

std::unique_ptr<ControlChannel> mail_channel(std::unique_ptr<Mailbox> mail) {
  return std::make_unique<MailChannel>(std::move(mail));
}

std::unique_ptr<ControlChannel> serving_mail_channel(std::shared_ptr<CoordinatorHost> host,
                                                     std::unique_ptr<Mailbox> mail) {
  return std::make_unique<ServingMailChannel>(std::move(host), std::move(mail));
}

}  // namespace lockstep
