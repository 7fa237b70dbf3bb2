// MpiLinks: Links over MPI messages. Groups share one communicator, and each has an MPI tag of its own. Only the first
// group of all processes has a communicator to itself, so that its MPI tags can carry the tags of Links. Thread safety:
// as Links.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "comm/links.h"
#include "comm/mpi/mpi_session.h"

namespace lockstep {

class MpiLinks final : public Links {
 public:
  // `members` are the MPI ranks of the members of the group. They agree on an MPI tag through keys under `prefix`.
  // Throws LinkTimeout.
  MpiLinks(MpiSession& session, std::vector<int> members, int rank, std::string prefix, Time deadline);
  ~MpiLinks() override;

  int send(Channel channel, int to, const void* data, size_t bytes, uint64_t tag) override;
  int receive(Channel channel, int from, void* data, size_t bytes) override;
  Arrival wait(int message, Time deadline) override;
  std::vector<LinkBroken> broken_links() override;
  void close() noexcept override;
  void mark_all_connected() noexcept override { all_connected_.store(true); }
  std::unique_ptr<Links> split(const std::vector<int>& ranks, int rank, const std::string& prefix,
                               Time deadline) override;
  size_t first_message_bytes(size_t bytes) const override;
  uint64_t tag_limit() const override;

 private:
  struct Message {
    MpiHandle request = 0;
    int peer = -1;
    bool sends = false;
    Arrival arrival = {};
  };

  int begin(int peer, bool sends);
  // Tests the message up to kTests times.
  bool done(int message);
  void cancel_all() noexcept;
  template <class F>
  void for_each_pending(F&& f) noexcept;
  [[noreturn]] void end_process(int peer) const noexcept;

  MpiSession& session_;
  const std::vector<int> members_;
  const int rank_;
  const std::string prefix_;
  int group_tag_ = 0;
  bool has_tags_ = false;  // uses the communicator whose MPI tags carry the tags of Links
  std::vector<Message> messages_;
  std::vector<int> free_;
  std::atomic<bool> closed_{false}, all_connected_{false};
};

}  // namespace lockstep
