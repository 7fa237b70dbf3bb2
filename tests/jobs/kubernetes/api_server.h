// A small Kubernetes API server on this machine for the real kubectl. Supports discovery, objects with owner
// references, label selectors, merge patches, warnings, forbidden verbs and followed logs. There is no controller:
// tests set the status of jobs and create their pods. Safe from any thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {

class ApiServer {
 public:
  using Json = nlohmann::ordered_json;

  ApiServer();
  ~ApiServer();
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;

  // Writes a kubeconfig into the folder and returns its path. Its context has the namespace `space` (empty: none).
  std::string write_config(const std::string& folder, const std::string& space = "") const;

  // Closes all connections and the port; start() listens at the same port again.
  void stop();
  void start();

  // Stores an object and returns it. Adds missing uid, resourceVersion and creationTimestamp.
  Json put(Json object);
  // Null if the object does not exist. `resource` is the plural: "jobs".
  Json get(const std::string& resource, const std::string& space, const std::string& name) const;
  // All objects of a resource, in all namespaces.
  std::vector<Json> all(const std::string& resource) const;
  void remove(const std::string& resource, const std::string& space, const std::string& name);

  // Answers later requests of this verb ("get", "list", "create", "patch", "delete") with 403.
  void forbid(const std::string& verb, const std::string& resource);
  // Gives the user only the rights of a Role with these rules, in every namespace.
  void set_role(Json rules);
  // Removes Kubeflow: the API server has no kubeflow.org.
  void remove_kubeflow() { has_kubeflow_ = false; }
  // Sends this warning with every response to a modifying request.
  void warn(const std::string& text);
  // Adds a line to the log of a pod.
  void log(const std::string& space, const std::string& pod, const std::string& line);

  // All requests in order: "GET /api/v1/namespaces/default/pods".
  std::vector<std::string> requests() const;
  // The number of logs that are being followed.
  int followers() const { return followers_; }

 private:
  struct Target {
    std::string group, version, resource, space, name, sub;
  };
  struct Request {
    std::string method, path, body;
    std::map<std::string, std::string> query;
  };
  struct Answer {
    int code = 200;
    std::string body = {};
  };
  using Key = std::array<std::string, 3>;  // resource, space, name

  void accept_all();
  void serve(int client);
  static std::optional<Request> read(int client);
  Answer answer(const Request& request);
  Answer on_objects(const Request& request, const Target& target);
  Answer list(const Request& request, const Target& target) const;
  Answer patch(const Request& request, const Target& target);
  void erase(const Key& key);
  void send_log(int client, const Request& request, const Target& target);
  std::optional<Answer> discovery(const std::string& path) const;
  static Target target_of(const std::string& path);
  bool allowed(const std::string& verb, const Target& target) const;
  static Answer refuse(const std::string& verb, const Target& target);
  static std::string response_text(const Answer& answer);
  static Answer failure(int code, const std::string& reason, const std::string& message);

  mutable std::mutex mutex_;
  std::map<Key, Json> objects_;
  std::map<std::pair<std::string, std::string>, std::vector<std::pair<std::string, std::string>>> logs_;
  std::set<std::pair<std::string, std::string>> forbidden_;
  Json role_;  // null: all rights
  std::string warning_;
  std::vector<std::string> requests_;
  int64_t version_ = 100;

  int port_ = 0, socket_ = -1;
  std::atomic<bool> stop_ = false, has_kubeflow_ = true;
  std::atomic<int> followers_ = 0;
  std::thread thread_;
  std::mutex clients_mutex_;
  std::set<int> clients_;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
