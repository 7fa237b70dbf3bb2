#include "comm/mpi/mpi_links.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <thread>

#include "base/check.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// A wait looks without a break for this long, then lets others run in between, then sleeps in between.
constexpr auto kLinkSpin = microseconds(50), kYield = microseconds(5000), kNap = microseconds(100);
constexpr int kTests = 64;  // between two looks at the clock

}  // namespace

MpiLinks::MpiLinks(MpiSession& session, std::vector<int> members, int rank, std::string prefix, Time deadline)
    : session_(session), members_(std::move(members)), rank_(rank), prefix_(std::move(prefix)) {
  tag_ = session_.next_tag();
  if (members_.size() > 1) session_.set(fmt::format("{}/tag/{}", prefix_, rank_), std::to_string(tag_));
  for (int peer = 0; peer < static_cast<int>(members_.size()); ++peer) {
    if (peer == rank_) continue;
    try {
      const std::string text = session_.get(fmt::format("{}/tag/{}", prefix_, peer), deadline - Clock::now());
      int theirs = 0;
      std::from_chars(text.data(), text.data() + text.size(), theirs);
      tag_ = std::max(tag_, theirs);
    } catch (const CommTimeout&) {
      throw LinkTimeout{peer};
    }
  }
  session_.take_tag(tag_);
  // The first of every one of its members, who are all there are: they agree on it, and no other group can be it.
  stamped_ = tag_ == MpiSession::kFirstTag && static_cast<int>(members_.size()) == session_.size();
}

uint64_t MpiLinks::stamps() const { return stamped_ ? static_cast<uint64_t>(session_.greatest_tag()) + 1 : 0; }

MpiLinks::~MpiLinks() { let_go(); }

std::unique_ptr<Links> MpiLinks::split(const std::vector<int>& ranks, int rank, const std::string& prefix,
                                       Time deadline) {
  std::vector<int> members;
  for (const int member : ranks) members.push_back(members_[static_cast<size_t>(member)]);
  return std::make_unique<MpiLinks>(session_, std::move(members), rank, prefix, deadline);
}

// Between processes of one host Open MPI hands over 256 bytes in one step, some 4000 in two, and more after asking the
// receiver: a little more than that is faster as a second message.
size_t MpiLinks::first_part(size_t bytes) const {
  for (const size_t step : {256, 4000})
    if (bytes > step && bytes <= 2 * step) return step;
  return bytes;
}

int MpiLinks::begin(int peer, bool sends) {
  if (closed_.load()) throw LinkBroken{-1, "closed"};
  if (free_.empty()) {
    messages_.emplace_back();
    free_.push_back(static_cast<int>(messages_.size()) - 1);
  }
  const int message = free_.back();
  free_.pop_back();
  messages_[static_cast<size_t>(message)].peer = peer;
  messages_[static_cast<size_t>(message)].sends = sends;
  return message;
}

int MpiLinks::send(Way, int to, const void* data, size_t bytes, uint64_t stamp) {
  const int message = begin(to, true);
  MPI_Request& request = messages_[static_cast<size_t>(message)].request;
  session_.call("MPI_Isend", [&] {
    return MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, members_[static_cast<size_t>(to)],
                     stamped_ ? static_cast<int>(stamp) : tag_, stamped_ ? session_.stamped() : session_.messages(),
                     &request);
  });
  return message;
}

int MpiLinks::receive(Way, int from, void* data, size_t bytes) {
  const int message = begin(from, false);
  MPI_Request& request = messages_[static_cast<size_t>(message)].request;
  session_.call("MPI_Irecv", [&] {
    return MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, members_[static_cast<size_t>(from)],
                     stamped_ ? MPI_ANY_TAG : tag_, stamped_ ? session_.stamped() : session_.messages(), &request);
  });
  return message;
}

// Neither a pause nor a look at the clock between tests: a test takes longer than either, and a message that is handed
// over in several steps waits for each of them.
bool MpiLinks::done(int number) {
  Message& message = messages_[static_cast<size_t>(number)];
  int is_done = 0;
  session_.call("MPI_Test", [&] {
    int code = MPI_SUCCESS, bytes = 0;
    MPI_Status status;
    for (int i = 0; i < kTests && !is_done && code == MPI_SUCCESS; ++i)
      code = MPI_Test(&message.request, &is_done, &status);
    if (is_done && stamped_ && !message.sends && code == MPI_SUCCESS) {
      code = MPI_Get_count(&status, MPI_BYTE, &bytes);
      message.arrival = {static_cast<size_t>(std::max(bytes, 0)), static_cast<uint64_t>(std::max(status.MPI_TAG, 0))};
    }
    return code;
  });
  return is_done != 0;
}

Links::Arrival MpiLinks::wait(int message, Time deadline) {
  const int peer = messages_[static_cast<size_t>(message)].peer;
  std::optional<Time> first;
  try {
    while (!done(message)) {
      if (closed_.load()) throw LinkBroken{-1, "closed"};
      const Time now = Clock::now(), began = first.value_or(now);
      first = began;
      if (now >= deadline) throw LinkTimeout{peer};
      if (now - began < kLinkSpin) continue;
      // Nobody closes a connection here: that a group has failed is said in a note, which may overtake messages.
      if (met_.load() && (session_.look(prefix_ + "/abort") || session_.look(prefix_ + "/asking")))
        throw LinkBroken{peer, "it stopped"};
      if (now - began < kYield)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(kNap);
    }
  } catch (...) {
    let_go();
    throw;
  }
  free_.push_back(message);
  return messages_[static_cast<size_t>(message)].arrival;
}

std::vector<LinkBroken> MpiLinks::broken() { return {}; }

// What is under way is taken back by the thread that waits for it, when it sees this.
void MpiLinks::close() noexcept {
  closed_.store(true);
  session_.failed();
}

// Receives are taken back; what has begun to arrive is awaited, for it arrives in our memory. Sends that nobody will
// receive only read it.
void MpiLinks::let_go() noexcept {
  for (Message& message : messages_) {
    if (message.request == MPI_REQUEST_NULL) continue;
    try {
      session_.call("MPI_Cancel", [&] { return MPI_Cancel(&message.request); });
      const Time end = Clock::now() + milliseconds(100);
      while (!done(static_cast<int>(&message - messages_.data())) && Clock::now() < end) std::this_thread::yield();
      if (message.request != MPI_REQUEST_NULL)
        session_.call("MPI_Request_free", [&] { return MPI_Request_free(&message.request); });
    } catch (const CommError&) {
      // MPI has nothing more to do with it.
    }
    message.request = MPI_REQUEST_NULL;
  }
}

}  // namespace lockstep
