// Controllers: plays the controllers and the kubelets of a cluster on an ApiServer, by the rules of the real ones: the
// Job controller, Kubeflow's operator for JAXJobs, node loss, a quota and Pod Security. Its clock moves only by
// advance(). Used by one thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "jobs/kubernetes/api_server.h"

namespace lockstep {

class Controllers {
 public:
  using Json = ApiServer::Json;

  explicit Controllers(ApiServer& server) : server_(server) {}

  // Admission of pods from now on.
  void enforce_restricted() { restricted_ = true; }        // Pod Security Standards
  void set_quota(Json hard) { quota_ = std::move(hard); }  // {"pods", 1}, {"limits.cpu", ...}; null: none

  // Lets all controllers act until nothing changes: pods are created, scheduled and started, and jobs end.
  void settle();
  void advance(int seconds);

  // The container of a pod ends with this exit code.
  void end(const std::string& pod, int code);
  // The kubelet evicts a pod.
  void evict(const std::string& pod);
  // A node stops answering; its Node object is removed; a node is added.
  void lose_node(const std::string& node) { lost_[node] = now_; }
  void remove_node(const std::string& node);
  void add_node(const std::string& node) { nodes_.insert(node); }

  // The pods of a job that have not ended, by index: "rb-0-p3".
  std::map<int, std::string> live_pods(const std::string& job) const;

 private:
  bool step();  // whether anything changed
  bool start_pods();
  bool drain_lost_nodes();
  bool sync_job(Json job);
  bool sync_jax_job(Json job);
  std::string count_failures(Json& job);
  bool create_pod(const Json& job, int index, const std::string& name, const Json& pod_template, const Json& labels);
  std::string refusal(const Json& spec) const;
  bool finish(Json& job, const char* type, const std::string& reason, const std::string& message);
  std::vector<Json> pods_of(const Json& job) const;
  bool store(const Json& before, Json now);
  std::string time() const;

  ApiServer& server_;
  bool restricted_ = false;
  Json quota_;
  int now_ = 0, names_ = 0;
  std::set<std::string> nodes_ = {"n0", "n1"}, counted_;  // counted_: uids of failed pods that the Job controller saw
  std::map<std::string, int> lost_;                       // since when
};

}  // namespace lockstep
