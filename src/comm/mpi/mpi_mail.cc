#include <atomic>
#include <list>
#include <utility>

#include "comm/mpi/mpi.h"
#include "comm/mpi/mpi_session.h"

namespace lockstep {

namespace {

class MpiMail final : public Mail {
 public:
  MpiMail(MpiSession& session, int tag) : session_(session), tag_(tag) {}

  ~MpiMail() override {
    // What nobody will receive is left to MPI, and the text with it.
    for (Leaving& letter : leaving_)
      if (letter.request != MPI_REQUEST_NULL) {
        static auto* const kept = new std::list<Leaving>;
        kept->push_back(std::move(letter));
        session_.failed();
      }
  }

  void send(int to, std::string text) override {
    const auto stay = session_.stay();
    Leaving& letter = leaving_.emplace_back();
    letter.text = std::make_unique<std::string>(std::move(text));
    session_.call("MPI_Isend", [&] {
      return MPI_Isend(letter.text->data(), static_cast<int>(letter.text->size()), MPI_BYTE, to, tag_,
                       session_.letters(), &letter.request);
    });
  }

  std::optional<Letter> receive() override {
    const auto stay = session_.stay();
    int there = 0;
    MPI_Message message;
    MPI_Status status;
    int bytes = 0;
    session_.call("MPI_Improbe", [&] {
      const int code = MPI_Improbe(MPI_ANY_SOURCE, tag_, session_.letters(), &there, &message, &status);
      return code == MPI_SUCCESS && there ? MPI_Get_count(&status, MPI_BYTE, &bytes) : code;
    });
    if (!there) return std::nullopt;
    Letter letter{status.MPI_SOURCE, std::string(static_cast<size_t>(bytes), '\0')};
    session_.call("MPI_Mrecv", [&] { return MPI_Mrecv(letter.text.data(), bytes, MPI_BYTE, &message, &status); });
    return letter;
  }

  bool all_left() override {
    const auto stay = session_.stay();
    std::erase_if(leaving_, [&](Leaving& letter) {
      int done = 0;
      session_.call("MPI_Test", [&] { return MPI_Test(&letter.request, &done, MPI_STATUS_IGNORE); });
      return done != 0;
    });
    return leaving_.empty();
  }

 private:
  struct Leaving {
    std::unique_ptr<std::string> text;  // MPI reads it where it is
    MPI_Request request = MPI_REQUEST_NULL;
  };

  MpiSession& session_;
  const int tag_;
  std::list<Leaving> leaving_;
};

}  // namespace

std::unique_ptr<Mail> mpi_mail() {
  static std::atomic<int> made = 0;
  return std::make_unique<MpiMail>(MpiSession::instance(), ++made);
}

}  // namespace lockstep
