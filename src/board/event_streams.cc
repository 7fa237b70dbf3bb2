#include "board/event_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/start_thread.h"

namespace lockstep::board {
namespace {

constexpr std::chrono::milliseconds kEventPause{500};
constexpr std::chrono::minutes kMaxStream{10};
constexpr int kIdleRounds = 20;  // then a comment is sent, which notices that the page is gone

std::string event_text(const std::vector<std::string>& runs, const RunStore::Changes& seen,
                       const RunStore::Changes& now) {
  nlohmann::json changed = nlohmann::json::array();
  if (now.list != seen.list) changed.push_back("");
  for (const std::string& id : runs) {
    const auto version = now.runs.find(id), before = seen.runs.find(id);
    const bool is_gone = version == now.runs.end(), was_gone = before == seen.runs.end();
    if (is_gone != was_gone || (!is_gone && version->second != before->second)) changed.push_back(id);
  }
  return changed.empty() ? "" : fmt::format("event: changed\ndata: {}\n\n", changed.dump());
}

}  // namespace

EventStreams::EventStreams(RunStore& store) : store_(store), thread_(start_thread([this] { run(); })) {}

EventStreams::~EventStreams() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EventStreams::add(std::vector<std::string> runs, http::Reply& reply) {
  const std::lock_guard lock(mutex_);
  if (streams_.size() >= kMost) {
    http::Response response;
    response.set_busy(fmt::format("{} pages are open already; close one", kMost));
    return reply.send(std::move(response));
  }
  http::Response head;
  head.type = "text/event-stream";
  reply.begin(std::move(head));
  reply.write("");  // the page is connected, though nothing has changed yet
  store_.touch(runs);
  Stream& added =
      streams_.emplace_back(Stream{std::move(reply), std::move(runs), std::chrono::steady_clock::now() + kMaxStream});
  if (!advance(added, store_.changes())) streams_.pop_back();
  changed_.notify_all();
}

// Returns false at the end of a stream.
bool EventStreams::advance(Stream& stream, const RunStore::Changes& now) {
  const std::string text = event_text(stream.runs, stream.seen, now);
  stream.seen = now;
  bool is_open = stream.reply.is_open() && std::chrono::steady_clock::now() < stream.end;
  if (is_open && !text.empty())
    is_open = stream.reply.write(text);
  else if (is_open && ++stream.idle % kIdleRounds == 0)
    is_open = stream.reply.write(": idle\n\n");
  if (!is_open) stream.reply.end();
  return is_open;
}

void EventStreams::run() {
  RunStore::Changes seen;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ended_ || !streams_.empty(); });
    if (ended_) return;
    for (const Stream& each : streams_) store_.touch(each.runs);
    lock.unlock();
    store_.wait(seen, kEventPause);
    seen = store_.changes();
    lock.lock();
    streams_.remove_if([&](Stream& each) { return !advance(each, seen); });
  }
}

}  // namespace lockstep::board
