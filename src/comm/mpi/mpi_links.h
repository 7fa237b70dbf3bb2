// MpiLinks: messages of MPI; a group is a tag of its own. Thread safety: as Links.
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

  int send(int to, const void* data, size_t bytes) override;
  int receive(int from, void* data, size_t bytes) override;
  void wait(int message, Time deadline) override;
  std::vector<LinkBroken> broken() override;
  void close() noexcept override;
  std::unique_ptr<Links> split(const std::vector<int>& ranks, int rank, const std::string& prefix,
                               Time deadline) override;
  size_t first_part(size_t bytes) const override;

 private:
  struct Message {
    MPI_Request request = MPI_REQUEST_NULL;
    int peer = -1;
  };

  int begin(int peer);
  // Tests some times.
  bool done(int message);
  void let_go() noexcept;

  MpiSession& session_;
  const std::vector<int> members_;
  const int rank_;
  const std::string prefix_;
  int tag_ = 0;
  std::vector<Message> messages_;
  std::vector<int> free_;
  std::atomic<bool> closed_{false};
};

}  // namespace lockstep
