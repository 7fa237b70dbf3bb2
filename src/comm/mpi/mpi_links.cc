#include "comm/mpi/mpi_links.h"

#include <sysexits.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/print_stderr.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// A wait first only tests the message, after kLinkSpin also yields between tests, and after kYield sleeps between them.
constexpr auto kLinkSpin = microseconds(50), kYield = microseconds(5000), kNap = microseconds(100);
constexpr int kTests = 64;  // between two readings of the clock
// How long cancelled messages may take.
constexpr auto kMaxSend = milliseconds(100);
constexpr auto kMaxReceive = std::chrono::seconds(10);

}  // namespace

MpiLinks::MpiLinks(MpiSession& session, std::vector<int> members, int rank, std::string prefix, Time deadline)
    : session_(session), members_(std::move(members)), rank_(rank), prefix_(std::move(prefix)) {
  group_tag_ = session_.next_tag();
  if (members_.size() > 1) session_.set(fmt::format("{}/tag/{}", prefix_, rank_), std::to_string(group_tag_));
  for (int peer = 0; peer < static_cast<int>(members_.size()); ++peer) {
    if (peer == rank_) continue;
    try {
      const std::string text = session_.get(fmt::format("{}/tag/{}", prefix_, peer), deadline - Clock::now());
      int theirs = 0;
      std::from_chars(text.data(), text.data() + text.size(), theirs);
      group_tag_ = std::max(group_tag_, theirs);
    } catch (const CommTimeout&) {
      throw LinkTimeout{peer};
    }
  }
  session_.reserve_tag(group_tag_);
  // A group of all processes for which every member proposed the first tag. All members come to the same result, and
  // it can hold for one group only.
  has_tags_ = group_tag_ == MpiSession::kFirstTag && static_cast<int>(members_.size()) == session_.size();
}

uint64_t MpiLinks::tag_limit() const { return has_tags_ ? static_cast<uint64_t>(session_.max_tag()) + 1 : 0; }

MpiLinks::~MpiLinks() { cancel_all(); }

std::unique_ptr<Links> MpiLinks::split(const std::vector<int>& ranks, int rank, const std::string& prefix,
                                       Time deadline) {
  std::vector<int> members;
  for (const int member : ranks) members.push_back(members_[static_cast<size_t>(member)]);
  return std::make_unique<MpiLinks>(session_, std::move(members), rank, prefix, deadline);
}

// Between processes of one host, Open MPI transfers up to 256 bytes in one step, up to about 4000 in two, and more only
// after a reply of the receiver. A message slightly above such a limit is faster as two messages.
size_t MpiLinks::first_message_bytes(size_t bytes) const {
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

int MpiLinks::send(Channel, int to, const void* data, size_t bytes, uint64_t tag) {
  const int message = begin(to, true);
  MpiHandle& request = messages_[static_cast<size_t>(message)].request;
  session_.call("MPI_Isend", [&] {
    return session_.mpi().send(data, static_cast<int>(bytes), members_[static_cast<size_t>(to)],
                               has_tags_ ? static_cast<int>(tag) : group_tag_,
                               has_tags_ ? session_.tagged_comm() : session_.data_comm(), &request);
  });
  return message;
}

int MpiLinks::receive(Channel, int from, void* data, size_t bytes) {
  const int message = begin(from, false);
  MpiHandle& request = messages_[static_cast<size_t>(message)].request;
  session_.call("MPI_Irecv", [&] {
    return session_.mpi().receive(data, static_cast<int>(bytes), members_[static_cast<size_t>(from)],
                                  has_tags_ ? kMpiAnyTag : group_tag_,
                                  has_tags_ ? session_.tagged_comm() : session_.data_comm(), &request);
  });
  return message;
}

// Does not pause or read the clock between tests: a test takes longer than either, and a message that MPI transfers in
// several steps needs a test for each step.
bool MpiLinks::done(int number) {
  Message& message = messages_[static_cast<size_t>(number)];
  int is_done = 0;
  session_.call("MPI_Test", [&] {
    const bool needed = has_tags_ && !message.sends;
    MpiArrival arrival;
    const int code = session_.mpi().test(&message.request, kTests, &is_done, needed ? &arrival : nullptr);
    if (is_done && needed && code == kMpiSuccess)
      message.arrival = {static_cast<size_t>(std::max(arrival.bytes, 0)),
                         static_cast<uint64_t>(std::max(arrival.tag, 0))};
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
      // MPI has no connections to close: the failure of a group is published as a key, which may overtake messages.
      if (all_connected_.load() && (session_.find(prefix_ + "/abort") || session_.find(prefix_ + "/timed_out")))
        throw LinkBroken{peer, "it stopped"};
      if (now - began < kYield)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(kNap);
    }
  } catch (...) {
    cancel_all();
    throw;
  }
  free_.push_back(message);
  return messages_[static_cast<size_t>(message)].arrival;
}

std::vector<LinkBroken> MpiLinks::broken_links() { return {}; }

// The thread that waits for messages sees the flag and cancels them.
void MpiLinks::close() noexcept {
  closed_.store(true);
  session_.mark_failed();
}

// Ends all messages. A receive that MPI could not cancel has begun to arrive: MPI writes it to memory that the caller
// frees after this. So it has to complete, and the sender completes it with its next calls of MPI.
void MpiLinks::cancel_all() noexcept {
  for_each_pending(
      [&](Message& message) { session_.call("MPI_Cancel", [&] { return session_.mpi().cancel(&message.request); }); });
  const Time now = Clock::now();
  for_each_pending([&](Message& message) {
    const int number = static_cast<int>(&message - messages_.data());
    const Time end = now + (message.sends ? kMaxSend : kMaxReceive);
    while (!done(number) && Clock::now() < end) std::this_thread::sleep_for(kNap);
    if (message.request == 0) return;
    if (!message.sends) end_process(message.peer);
    // MPI only reads the memory of a send that no rank receives.
    session_.call("MPI_Request_free", [&] { return session_.mpi().free_request(&message.request); });
    message.request = 0;
  });
}

// Calls f(message) for all messages that MPI has not completed.
template <class F>
void MpiLinks::for_each_pending(F&& f) noexcept {
  for (Message& message : messages_) {
    if (message.request == 0) continue;
    try {
      f(message);
    } catch (const CommError&) {
      message.request = 0;  // MPI no longer knows the request
    }
  }
}

// The last resort against a sender that neither continues nor ends: its message could overwrite other data later.
void MpiLinks::end_process(int peer) const noexcept {
  print_stderr(
      "lockstep: mpi: rank {} has begun to send a message and has not continued for {} s after the group failed; this "
      "process ends, because the message could overwrite its memory; check whether that rank hangs\n",
      members_[static_cast<size_t>(peer)], kMaxReceive.count());
  std::_Exit(EX_TEMPFAIL);  // a restart may help
}

}  // namespace lockstep
