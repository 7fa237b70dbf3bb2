// Mailbox: asynchronous text messages between processes that were started together. The messages of one process to
// another arrive in the order in which they were sent. The control plane uses it where processes share an MPI job.
// Thread safety: one thread at a time.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

struct MailboxMessage {
  int from = 0;
  std::string text = {};
};

class Mailbox {
 public:
  virtual ~Mailbox() = default;

  // All methods return without blocking, and throw CommError when messages can no longer be sent or received.

  virtual void send(int to, std::string text) = 0;
  // The next message that has arrived, if any.
  virtual std::optional<MailboxMessage> receive() = 0;
  // Whether all messages were handed over, so that they still arrive when this object is destroyed.
  virtual bool all_sent() = 0;
};

}  // namespace lockstep
