#include <atomic>
#include <list>
#include <utility>

#include "comm/mpi/mpi.h"
#include "comm/mpi/mpi_session.h"

namespace lockstep {

namespace {

class MpiMailbox final : public Mailbox {
 public:
  MpiMailbox(MpiSession& session, int tag) : session_(session), tag_(tag) {}

  ~MpiMailbox() override {
    // Unfinished sends are left to MPI, together with their text, which MPI may still read.
    for (SentMessage& message : sending_)
      if (message.request != 0) {
        static auto* const kept = new std::list<SentMessage>;
        kept->push_back(std::move(message));
        session_.mark_failed();
      }
  }

  void send(int to, std::string text) override {
    const auto hold = session_.hold_open();
    SentMessage& message = sending_.emplace_back();
    message.text = std::make_unique<std::string>(std::move(text));
    session_.call("MPI_Isend", [&] {
      return session_.mpi().send(message.text->data(), static_cast<int>(message.text->size()), to, tag_,
                                 session_.mailbox_comm(), &message.request);
    });
  }

  std::optional<MailboxMessage> receive() override {
    const auto hold = session_.hold_open();
    int arrived = 0;
    MpiHandle handle = 0;
    MpiArrival arrival;
    session_.call("MPI_Improbe", [&] {
      return session_.mpi().find_message(tag_, session_.mailbox_comm(), &arrived, &handle, &arrival);
    });
    if (!arrived) return std::nullopt;
    MailboxMessage received{arrival.source, std::string(static_cast<size_t>(arrival.bytes), '\0')};
    session_.call("MPI_Mrecv",
                  [&] { return session_.mpi().receive_message(received.text.data(), arrival.bytes, &handle); });
    return received;
  }

  bool all_sent() override {
    const auto hold = session_.hold_open();
    std::erase_if(sending_, [&](SentMessage& message) {
      int done = 0;
      session_.call("MPI_Test", [&] { return session_.mpi().test(&message.request, 1, &done, nullptr); });
      return done != 0;
    });
    return sending_.empty();
  }

 private:
  struct SentMessage {
    std::unique_ptr<std::string> text;  // at a stable address, since MPI reads it
    MpiHandle request = 0;
  };

  MpiSession& session_;
  const int tag_;
  std::list<SentMessage> sending_;
};

}  // namespace

std::unique_ptr<Mailbox> mpi_mailbox() {
  static std::atomic<int> made = 0;
  return std::make_unique<MpiMailbox>(MpiSession::instance(), ++made);
}

}  // namespace lockstep
