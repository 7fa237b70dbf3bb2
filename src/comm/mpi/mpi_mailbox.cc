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
      if (message.request != MPI_REQUEST_NULL) {
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
      return MPI_Isend(message.text->data(), static_cast<int>(message.text->size()), MPI_BYTE, to, tag_,
                       session_.mailbox_comm(), &message.request);
    });
  }

  std::optional<MailboxMessage> receive() override {
    const auto hold = session_.hold_open();
    int arrived = 0;
    MPI_Message handle;
    MPI_Status status;
    int bytes = 0;
    session_.call("MPI_Improbe", [&] {
      const int code = MPI_Improbe(MPI_ANY_SOURCE, tag_, session_.mailbox_comm(), &arrived, &handle, &status);
      return code == MPI_SUCCESS && arrived ? MPI_Get_count(&status, MPI_BYTE, &bytes) : code;
    });
    if (!arrived) return std::nullopt;
    MailboxMessage received{status.MPI_SOURCE, std::string(static_cast<size_t>(bytes), '\0')};
    session_.call("MPI_Mrecv", [&] { return MPI_Mrecv(received.text.data(), bytes, MPI_BYTE, &handle, &status); });
    return received;
  }

  bool all_sent() override {
    const auto hold = session_.hold_open();
    std::erase_if(sending_, [&](SentMessage& message) {
      int done = 0;
      session_.call("MPI_Test", [&] { return MPI_Test(&message.request, &done, MPI_STATUS_IGNORE); });
      return done != 0;
    });
    return sending_.empty();
  }

 private:
  struct SentMessage {
    std::unique_ptr<std::string> text;  // at a stable address, since MPI reads it
    MPI_Request request = MPI_REQUEST_NULL;
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
