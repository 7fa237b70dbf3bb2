#include "comm/in_process.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "comm/in_process_group.h"

namespace lockstep {

namespace {

using detail::InProcessCollective;
using detail::InProcessGroup;

class InProcessComm final : public Comm {
 public:
  InProcessComm(std::shared_ptr<InProcessGroup> group, int rank, std::chrono::nanoseconds timeout)
      : Comm(rank, group->size(), group->name(), timeout), group_(std::move(group)) {}
  ~InProcessComm() override { group_->leave(rank(), next_); }

  void abort(const std::string& reason) override { group_->abort(rank(), reason); }

 private:
  void* start(const Operation& operation) override {
    InProcessCollective* collective = group_->start(rank(), next_, operation);
    ++next_;
    return collective;
  }
  void finish(void* state) override { group_->finish(rank(), static_cast<InProcessCollective*>(state), timeout()); }
  void abandon(void* state) noexcept override { group_->abandon(rank(), static_cast<InProcessCollective*>(state)); }

  std::unique_ptr<Comm> make_group(const std::vector<int>& ranks, const std::string& name) override {
    const auto rank_there = static_cast<int>(std::ranges::find(ranks, rank()) - ranks.begin());
    auto comm = std::make_unique<InProcessComm>(group_->join_split(rank(), ranks, name), rank_there, timeout());
    comm->finish(comm->group_->start(rank_there, 0, {.kind = Operation::Kind::split}));
    return comm;
  }

  std::shared_ptr<InProcessGroup> group_;
  int64_t next_ = 1;  // number of the next operation; 0 is the split that made the group
};

}  // namespace

std::vector<std::unique_ptr<Comm>> in_process_comms(int size, const std::string& name) {
  if (size < 1) throw_error("in_process_comms: {} ranks were requested; a group needs at least 1", size);
  const auto group = std::make_shared<InProcessGroup>(size, name);
  std::vector<std::unique_ptr<Comm>> comms;
  for (int rank = 0; rank < size; ++rank)
    comms.push_back(std::make_unique<InProcessComm>(group, rank, Comm::kDefaultTimeout));
  return comms;
}

}  // namespace lockstep
