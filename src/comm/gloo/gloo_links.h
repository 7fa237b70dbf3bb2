// GlooLinks: messages by Gloo's unbound buffers over TCP. Thread safety: as Links.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/key_store.h"
#include "comm/links.h"

namespace gloo::transport {
class Context;
class UnboundBuffer;
}  // namespace gloo::transport

namespace lockstep {

class GlooDevice;

// Where connections are made from, and the thread that serves them. Throws Error when the machine has no such address
// or interface.
std::shared_ptr<GlooDevice> gloo_device(const std::string& address, const std::string& interface);

class GlooLinks final : public Links {
 public:
  // Connects to all other ranks, whose addresses are in the store. Throws LinkTimeout, LinkBroken.
  GlooLinks(std::shared_ptr<GlooDevice> device, KeyStore& store, int rank, int size, const std::string& prefix,
            Time deadline);
  ~GlooLinks() override;

  int send(Way way, int to, const void* data, size_t bytes, uint64_t stamp) override;
  int receive(Way way, int from, void* data, size_t bytes) override;
  Arrival wait(int message, Time deadline) override;
  std::vector<LinkBroken> broken() override;
  void close() noexcept override;
  std::unique_ptr<Links> split(const std::vector<int>& ranks, int rank, const std::string& prefix,
                               Time deadline) override;
  bool wants_room() const override { return true; }
  bool take_turns() const override { return one_host_; }

 private:
  using Buffer = gloo::transport::UnboundBuffer;
  struct Message {
    std::unique_ptr<Buffer> buffer;
    int peer = -1;
    bool sends = false;
  };

  void connect(const std::string& prefix, Time deadline);
  int begin(int peer, bool sends);
  static void wake(const Message& message);
  void fail_if_broken(int peer);

  const std::shared_ptr<GlooDevice> device_;
  KeyStore& store_;
  const int rank_;
  const int size_;
  std::shared_ptr<gloo::transport::Context> context_;
  bool one_host_ = true;  // where all ranks are

  std::vector<std::unique_ptr<Message>> messages_;
  std::vector<int> free_;
  std::atomic<const Message*> waiting_{nullptr};
  std::atomic<bool> closed_{false};

  std::mutex mutex_;  // of what follows
  std::vector<std::unique_ptr<Buffer>>
      watches_;                    // one receive from each peer that never comes, but breaks with its link
  std::vector<std::string> lost_;  // by peer: why
  bool closing_done_ = false;
};

}  // namespace lockstep
