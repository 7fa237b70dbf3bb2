// MpiLinks: messages of MPI; a group is a tag of its own. The first group of all processes has a communicator of its
// own instead, so that its messages can carry stamps as tags. Thread safety: as Links.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "comm/links.h"
#include "comm/mpi/mpi_session.h"

namespace lockstep {

class MpiLinks final : public Links {
 public:
  // `members`: where in MPI's world the ranks of the group are. Agrees with them on a tag, by notes under the prefix.
  // Throws LinkTimeout.
  MpiLinks(MpiSession& session, std::vector<int> members, int rank, std::string prefix, Time deadline);
  ~MpiLinks() override;

  int send(Way way, int to, const void* data, size_t bytes, uint64_t stamp) override;
  int receive(Way way, int from, void* data, size_t bytes) override;
  Arrival wait(int message, Time deadline) override;
  std::vector<LinkBroken> broken() override;
  void close() noexcept override;
  void met() noexcept override { met_.store(true); }
  std::unique_ptr<Links> split(const std::vector<int>& ranks, int rank, const std::string& prefix,
                               Time deadline) override;
  size_t first_part(size_t bytes) const override;
  uint64_t stamps() const override;

 private:
  struct Message {
    MPI_Request request = MPI_REQUEST_NULL;
    int peer = -1;
    bool sends = false;
    Arrival arrival = {};
  };

  int begin(int peer, bool sends);
  // Tests some times.
  bool done(int number);
  void let_go() noexcept;

  MpiSession& session_;
  const std::vector<int> members_;
  const int rank_;
  const std::string prefix_;
  int tag_ = 0;
  bool stamped_ = false;
  std::vector<Message> messages_;
  std::vector<int> free_;
  std::atomic<bool> closed_{false}, met_{false};
};

}  // namespace lockstep
