// A Mailbox within one process, for tests.
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

class PostOffice : public std::enable_shared_from_this<PostOffice> {
 public:
  static std::shared_ptr<PostOffice> open() { return std::make_shared<PostOffice>(); }

  std::unique_ptr<Mailbox> mail(int address) { return std::make_unique<LocalMail>(shared_from_this(), address); }

  // From now on there is no way.
  void burn_down() {
    const std::lock_guard lock(mutex_);
    gone_ = true;
  }

 private:
  class LocalMail final : public Mailbox {
   public:
    LocalMail(std::shared_ptr<PostOffice> office, int address) : office_(std::move(office)), address_(address) {}

    void send(int to, std::string text) override {
      const std::lock_guard lock(office_->mutex_);
      office_->check();
      office_->letters_[to].push_back({address_, std::move(text)});
    }
    std::optional<MailboxMessage> receive() override {
      const std::lock_guard lock(office_->mutex_);
      office_->check();
      auto& letters = office_->letters_[address_];
      if (letters.empty()) return std::nullopt;
      MailboxMessage letter = std::move(letters.front());
      letters.pop_front();
      return letter;
    }
    bool all_sent() override { return true; }

   private:
    const std::shared_ptr<PostOffice> office_;
    const int address_;
  };

  void check() const {
    if (gone_) throw CommError("the post office has burnt down");
  }

  std::mutex mutex_;
  std::map<int, std::deque<MailboxMessage>> letters_;
  bool gone_ = false;
};

}  // namespace lockstep
