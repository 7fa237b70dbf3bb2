// Exchange: a request and its answer, shared by the thread that answers it (Reply) and the one that has its connection
// (Connections). Mailbox: how the first reports to the second. Both are safe from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/descriptor.h"
#include "http/message.h"

namespace lockstep::http {

struct Connection;
struct Exchange;

// Exchanges that have news for the reading thread.
class Mailbox {
 public:
  using Log = std::function<void(const std::string& text)>;
  explicit Mailbox(Log log);

  // Readable while there are exchanges, or wake() was called.
  int fd() const { return wake_.reader.get(); }
  void wake() const;
  void post(std::shared_ptr<Exchange> exchange);
  std::vector<std::shared_ptr<Exchange>> take();

  // Drops exchanges, and those that are posted later.
  void close();

  void stop();
  bool is_stopping() const { return stopping_; }
  void log(const std::string& text) const { log_(text); }

 private:
  const Log log_;
  const Pipe wake_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Exchange>> posted_;
  bool is_closed_ = false;
};

struct Exchange {
  using Time = std::chrono::steady_clock::time_point;

  const std::shared_ptr<Mailbox> mailbox;
  const Time begun = std::chrono::steady_clock::now();
  Request request;                   // until it is answered
  Connection* connection = nullptr;  // of the reading thread; nullptr: closed

  // none: there is no answer yet. pieces: a part of the body. complete. cut: the rest of the body does not follow.
  enum class Progress { none, pieces, complete, cut };
  std::mutex mutex;  // of all below
  Progress progress = Progress::none;
  Response head = {};  // with the whole body unless is_in_pieces
  bool is_in_pieces = false;
  std::string pieces = {};  // that the reading thread has not taken
  bool is_posted = false;   // waits in the mailbox
  bool is_gone = false;     // the client does not need the answer
  std::optional<std::pair<Time, Response>> late = {};

  Exchange(std::shared_ptr<Mailbox> box, Request given) : mailbox(std::move(box)), request(std::move(given)) {}
};

}  // namespace lockstep::http
