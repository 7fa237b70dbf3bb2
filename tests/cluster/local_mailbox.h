// LocalMailboxes: a Mailbox transport within one process, for tests. Thread-safe.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "comm/mailbox.h"

namespace lockstep {

class LocalMailboxes : public std::enable_shared_from_this<LocalMailboxes> {
 public:
  static std::shared_ptr<LocalMailboxes> create() { return std::make_shared<LocalMailboxes>(); }

  std::unique_ptr<Mailbox> open(int address) { return std::make_unique<LocalMailbox>(shared_from_this(), address); }

  // From now on all methods of the mailboxes throw CommError.
  void fail() {
    const std::lock_guard lock(mutex_);
    failed_ = true;
  }

 private:
  class LocalMailbox final : public Mailbox {
   public:
    LocalMailbox(std::shared_ptr<LocalMailboxes> mailboxes, int address)
        : mailboxes_(std::move(mailboxes)), address_(address) {}

    void send(int to, std::string text) override {
      const std::lock_guard lock(mailboxes_->mutex_);
      mailboxes_->check();
      mailboxes_->messages_[to].push_back({address_, std::move(text)});
    }
    std::optional<MailboxMessage> receive() override {
      const std::lock_guard lock(mailboxes_->mutex_);
      mailboxes_->check();
      auto& messages = mailboxes_->messages_[address_];
      if (messages.empty()) return std::nullopt;
      MailboxMessage message = std::move(messages.front());
      messages.pop_front();
      return message;
    }
    bool all_sent() override { return true; }

   private:
    const std::shared_ptr<LocalMailboxes> mailboxes_;
    const int address_;
  };

  void check() const {
    if (failed_) throw CommError("the post mailboxes has burnt down");
  }

  std::mutex mutex_;
  std::map<int, std::deque<MailboxMessage>> messages_;
  bool failed_ = false;
};

}  // namespace lockstep
