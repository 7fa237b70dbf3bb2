#include "jobs/kubernetes/api_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "base/check.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

struct Kind {
  const char *group, *version, *resource, *kind;
  bool namespaced;
};
constexpr std::array kKinds = {
    Kind{"", "v1", "pods", "Pod", true},
    Kind{"", "v1", "services", "Service", true},
    Kind{"", "v1", "secrets", "Secret", true},
    Kind{"", "v1", "configmaps", "ConfigMap", true},
    Kind{"", "v1", "events", "Event", true},
    Kind{"", "v1", "serviceaccounts", "ServiceAccount", true},
    Kind{"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true},
    Kind{"", "v1", "namespaces", "Namespace", false},
    Kind{"batch", "v1", "jobs", "Job", true},
    Kind{"networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true},
    Kind{"kubeflow.org", "v1", "jaxjobs", "JAXJob", true},
    Kind{"jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", true},
};

constexpr std::array<std::pair<const char*, const char*>, 5> kGroups = {{{"", "v1"},
                                                                         {"batch", "v1"},
                                                                         {"networking.k8s.io", "v1"},
                                                                         {"kubeflow.org", "v1"},
                                                                         {"jobset.x-k8s.io", "v1alpha2"}}};

const Kind& kind_named(const std::string& name) {
  for (const Kind& each : kKinds)
    if (name == each.kind || name == each.resource) return each;
  throw std::runtime_error("no kind " + name);
}

std::string text_at(const Json& object, const char* path) {
  const Json::json_pointer pointer(path);
  return object.contains(pointer) && object.at(pointer).is_string() ? object.at(pointer).get<std::string>() : "";
}

std::string decoded(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      out += text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

// Whether the labels match the selector "a=b,c".
bool selects(const std::string& selector, const Json& object) {
  const Json labels = object.contains("/metadata/labels"_json_pointer) ? object["metadata"]["labels"] : Json::object();
  for (size_t at = 0; at < selector.size();) {
    const size_t end = std::min(selector.find(',', at), selector.size());
    const std::string word = selector.substr(at, end - at), key = word.substr(0, word.find('='));
    if (!labels.contains(key)) return false;
    if (word != key && labels[key] != word.substr(word.rfind('=') + 1)) return false;
    at = end + 1;
  }
  return true;
}

bool write_all(int client, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::send(client, text.data(), text.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace

ApiServer::ApiServer() { start(); }

ApiServer::~ApiServer() { stop(); }

void ApiServer::start() {
  stop_ = false;
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port_));
  socklen_t length = sizeof(address);
  LOCKSTEP_CHECK(::bind(socket_, reinterpret_cast<sockaddr*>(&address), length) == 0 && ::listen(socket_, 64) == 0);
  ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { accept_all(); });
}

void ApiServer::stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  ::shutdown(socket_, SHUT_RDWR);
  thread_.join();
  ::close(socket_);
  {
    const std::lock_guard lock(clients_mutex_);
    for (const int client : clients_) ::shutdown(client, SHUT_RDWR);
  }
  for (std::thread& each : threads_) each.join();
  threads_.clear();
}

std::string ApiServer::write_config(const std::string& folder, const std::string& space) const {
  const std::string path = folder + "/config";
  Json context = {{"cluster", "c"}, {"user", "u"}};
  if (!space.empty()) context["namespace"] = space;
  const Json config = {
      {"apiVersion", "v1"},
      {"kind", "Config"},
      {"current-context", "x"},
      {"clusters", {{{"name", "c"}, {"cluster", {{"server", fmt::format("http://127.0.0.1:{}", port_)}}}}}},
      {"users", {{{"name", "u"}, {"user", Json::object()}}}},
      {"contexts", {{{"name", "x"}, {"context", context}}}}};
  std::ofstream(path) << config.dump();
  return path;
}

Json ApiServer::put(Json object) {
  const std::lock_guard lock(mutex_);
  const std::string name = object.at("kind");
  const Kind& kind = kind_named(name);
  Json& metadata = object["metadata"];
  ++version_;
  if (!metadata.contains("uid")) metadata["uid"] = fmt::format("00000000-0000-0000-0000-{:012}", version_);
  if (!metadata.contains("creationTimestamp")) metadata["creationTimestamp"] = "2026-01-01T00:00:00Z";
  if (kind.namespaced && !metadata.contains("namespace")) metadata["namespace"] = "default";
  metadata["resourceVersion"] = fmt::format("{}", version_);
  const Key key = {kind.resource, text_at(object, "/metadata/namespace"), text_at(object, "/metadata/name")};
  return objects_[key] = std::move(object);
}

Json ApiServer::get(const std::string& resource, const std::string& space, const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find({resource, space, name});
  return found == objects_.end() ? Json() : found->second;
}

std::vector<Json> ApiServer::all(const std::string& resource) const {
  const std::lock_guard lock(mutex_);
  std::vector<Json> out;
  for (const auto& [key, object] : objects_)
    if (key[0] == resource) out.push_back(object);
  return out;
}

void ApiServer::remove(const std::string& resource, const std::string& space, const std::string& name) {
  const std::lock_guard lock(mutex_);
  erase({resource, space, name});
}

void ApiServer::forbid(const std::string& verb, const std::string& resource) {
  const std::lock_guard lock(mutex_);
  forbidden_.emplace(verb, resource);
}

void ApiServer::set_role(Json rules) {
  const std::lock_guard lock(mutex_);
  role_ = std::move(rules);
}

bool ApiServer::allowed(const std::string& verb, const Target& target) const {
  if (role_.is_null()) return true;
  if (target.space.empty()) return false;  // a Role has no rights outside its namespace
  const std::string resource = target.sub.empty() ? target.resource : target.resource + "/" + target.sub;
  const auto has = [](const Json& list, const std::string& word) {
    return std::ranges::any_of(list, [&](const Json& each) { return each == word; });
  };
  return std::ranges::any_of(role_, [&](const Json& rule) {
    return has(rule.at("apiGroups"), target.group) && has(rule.at("resources"), resource) &&
           has(rule.at("verbs"), verb);
  });
}

ApiServer::Answer ApiServer::refuse(const std::string& verb, const Target& target) {
  const std::string what = target.group.empty() ? target.resource : target.resource + "." + target.group;
  return failure(403, "Forbidden",
                 fmt::format("{} is forbidden: User \"u\" cannot {} resource \"{}\" in API group \"{}\" in the "
                             "namespace \"{}\"",
                             target.name.empty() ? what : fmt::format("{} \"{}\"", what, target.name), verb,
                             target.resource, target.group, target.space));
}

void ApiServer::warn(const std::string& text) {
  const std::lock_guard lock(mutex_);
  warning_ = text;
}

void ApiServer::log(const std::string& space, const std::string& pod, const std::string& line) {
  const std::lock_guard lock(mutex_);
  auto& lines = logs_[{space, pod}];
  lines.emplace_back(fmt::format("2026-01-01T00:00:{:02}.{:09}Z", lines.size() / 2, lines.size() % 2 * 5), line);
}

std::vector<std::string> ApiServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void ApiServer::accept_all() {
  while (!stop_) {
    const int client = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    const std::lock_guard lock(clients_mutex_);
    clients_.insert(client);
    threads_.emplace_back([this, client] { serve(client); });
  }
}

void ApiServer::serve(int client) {
  while (const std::optional<Request> request = read(client)) {
    const Target target = target_of(request->path);
    if (target.sub == "log") {
      send_log(client, *request, target);
      break;
    }
    const Answer reply = answer(*request);
    std::string head = fmt::format("HTTP/1.1 {} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
                                   reply.code, reply.body.size());
    {
      const std::lock_guard lock(mutex_);
      if (!warning_.empty() && request->method != "GET") head += fmt::format("Warning: 299 - \"{}\"\r\n", warning_);
    }
    if (stop_ || !write_all(client, head + "\r\n" + reply.body)) break;
  }
  const std::lock_guard lock(clients_mutex_);
  clients_.erase(client);
  ::close(client);
}

std::optional<ApiServer::Request> ApiServer::read(int client) {
  std::string head;
  char byte;
  while (!head.ends_with("\r\n\r\n")) {
    if (::recv(client, &byte, 1, 0) != 1) return std::nullopt;
    head += byte;
  }
  Request out;
  const size_t space = head.find(' '), end = head.find(' ', space + 1);
  out.method = head.substr(0, space);
  const std::string target = head.substr(space + 1, end - space - 1);
  out.path = target.substr(0, target.find('?'));
  for (size_t at = out.path.size() + 1; at < target.size();) {
    const size_t stop = std::min(target.find('&', at), target.size());
    const std::string word = target.substr(at, stop - at);
    out.query[word.substr(0, word.find('='))] = decoded(word.substr(std::min(word.find('=') + 1, word.size())));
    at = stop + 1;
  }
  if (const size_t at = head.find("Content-Length: "); at != head.npos) {
    out.body.resize(std::stoul(head.substr(at + 16)));
    for (size_t done = 0; done < out.body.size();) {
      const ssize_t n = ::recv(client, out.body.data() + done, out.body.size() - done, 0);
      if (n <= 0) return std::nullopt;
      done += static_cast<size_t>(n);
    }
  }
  return out;
}

ApiServer::Target ApiServer::target_of(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t at = 1; at < path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    parts.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  Target out;
  size_t i = 1;
  if (parts.empty() || (parts[0] != "api" && parts[0] != "apis")) return out;
  if (parts[0] == "apis" && i < parts.size()) out.group = parts[i++];
  if (i < parts.size()) out.version = parts[i++];
  if (i + 2 < parts.size() && parts[i] == "namespaces") {
    out.space = parts[i + 1];
    i += 2;
  }
  for (std::string* each : {&out.resource, &out.name, &out.sub})
    if (i < parts.size()) *each = parts[i++];
  return out;
}

ApiServer::Answer ApiServer::failure(int code, const std::string& reason, const std::string& message) {
  return {code, Json{{"kind", "Status"},
                     {"apiVersion", "v1"},
                     {"metadata", Json::object()},
                     {"status", "Failure"},
                     {"message", message},
                     {"reason", reason},
                     {"code", code}}
                    .dump()};
}

std::string ApiServer::response_text(const Answer& answer) {
  return fmt::format("HTTP/1.1 {} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}", answer.code,
                     answer.body.size(), answer.body);
}

std::optional<ApiServer::Answer> ApiServer::discovery(const std::string& path) const {
  if (path == "/openapi/v2") return Answer{};  // an empty document in protobuf encoding
  if (path == "/api") return Answer{200, R"({"kind":"APIVersions","versions":["v1"]})"};
  if (path == "/apis") {
    Json groups = Json::array();
    for (const auto& [name, number] : kGroups) {
      if (!*name || (!has_kubeflow_ && std::string(name) == "kubeflow.org")) continue;
      const Json version = {{"groupVersion", fmt::format("{}/{}", name, number)}, {"version", number}};
      groups.push_back({{"name", name}, {"versions", {version}}, {"preferredVersion", version}});
    }
    return Answer{200, Json{{"kind", "APIGroupList"}, {"apiVersion", "v1"}, {"groups", groups}}.dump()};
  }
  for (const auto& [group, number] : kGroups) {
    if (!has_kubeflow_ && std::string(group) == "kubeflow.org") continue;
    const std::string name = *group ? fmt::format("{}/{}", group, number) : number;
    if (path != (*group ? "/apis/" : "/api/") + name) continue;
    Json resources = Json::array();
    for (const Kind& each : kKinds)
      if (std::string(each.group) == group)
        resources.push_back({{"name", each.resource},
                             {"singularName", ""},
                             {"namespaced", each.namespaced},
                             {"kind", each.kind},
                             {"verbs", {"create", "delete", "get", "list", "patch", "update", "watch"}}});
    return Answer{
        200, Json{{"kind", "APIResourceList"}, {"apiVersion", "v1"}, {"groupVersion", name}, {"resources", resources}}
                 .dump()};
  }
  return std::nullopt;
}

ApiServer::Answer ApiServer::answer(const Request& request) {
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request.method + " " + request.path);
  }
  if (auto known = discovery(request.path)) return *known;
  const Target target = target_of(request.path);
  if (target.resource.empty()) return failure(404, "NotFound", "the server could not find the requested resource");
  const auto flag = request.query.find("watch");
  const bool watches = flag != request.query.end() && (flag->second == "true" || flag->second == "1");
  const std::string verb = request.method == "GET"     ? (watches               ? "watch"
                                                          : target.name.empty() ? "list"
                                                                                : "get")
                           : request.method == "POST"  ? "create"
                           : request.method == "PATCH" ? "patch"
                                                       : "delete";
  {
    const std::lock_guard lock(mutex_);
    if (forbidden_.contains({verb, target.resource}) || !allowed(verb, target)) return refuse(verb, target);
  }
  return on_objects(request, target);
}

ApiServer::Answer ApiServer::on_objects(const Request& request, const Target& target) {
  const bool dry_run = request.query.contains("dryRun");
  if (request.method == "POST") {
    Json object = Json::parse(request.body);
    if (!target.space.empty()) object["metadata"]["namespace"] = target.space;
    const std::string name = text_at(object, "/metadata/name");
    if (!get(target.resource, target.space, name).is_null())
      return failure(409, "AlreadyExists", fmt::format("{} \"{}\" already exists", target.resource, name));
    return {201, (dry_run ? object : put(std::move(object))).dump()};
  }
  if (target.name.empty()) return list(request, target);
  const Json present = get(target.resource, target.space, target.name);
  if (present.is_null())
    return failure(404, "NotFound",
                   fmt::format("{}{}{} \"{}\" not found", target.resource, target.group.empty() ? "" : ".",
                               target.group, target.name));
  if (request.method == "PATCH") return patch(request, target);
  if (request.method == "DELETE") remove(target.resource, target.space, target.name);
  return {200, present.dump()};
}

ApiServer::Answer ApiServer::list(const Request& request, const Target& target) const {
  const std::lock_guard lock(mutex_);
  Json items = Json::array();
  const auto selector = request.query.find("labelSelector"), field = request.query.find("fieldSelector");
  for (const auto& [key, object] : objects_) {
    if (key[0] != target.resource || (!target.space.empty() && key[1] != target.space)) continue;
    if (field != request.query.end() && field->second != "metadata.name=" + key[2]) continue;
    if (selector == request.query.end() || selects(selector->second, object)) items.push_back(object);
  }
  const Kind& kind = kind_named(target.resource);
  return {200, Json{{"kind", std::string(kind.kind) + "List"},
                    {"apiVersion", target.group.empty() ? target.version : target.group + "/" + target.version},
                    {"metadata", {{"resourceVersion", fmt::format("{}", version_)}}},
                    {"items", items}}
                   .dump()};
}

ApiServer::Answer ApiServer::patch(const Request& request, const Target& target) {
  Json object = get(target.resource, target.space, target.name);
  const Json change = Json::parse(request.body);
  if (target.resource == "jobs" && change.contains("/spec/template"_json_pointer)) {
    std::string dump = "core.PodTemplateSpec{ObjectMeta:v1.ObjectMeta{Name:\"\"";
    for (int i = 0; i < 200; ++i) dump += ", DeletionGracePeriodSeconds:(*int64)(nil)";
    const std::string message = fmt::format("Invalid value: {}}}: field is immutable", dump);
    Answer refused = failure(422, "Invalid", fmt::format("Job.batch \"{}\" is invalid: {}", target.name, message));
    Json status = Json::parse(refused.body);
    const Json cause = {{"reason", "FieldValueInvalid"}, {"message", message}, {"field", "spec.template"}};
    status["details"] = {{"name", target.name}, {"group", "batch"}, {"kind", "Job"}, {"causes", Json::array({cause})}};
    refused.body = status.dump();
    return refused;
  }
  object.merge_patch(change);
  return {200, (request.query.contains("dryRun") ? object : put(std::move(object))).dump()};
}

void ApiServer::erase(const Key& key) {
  const auto found = objects_.find(key);
  if (found == objects_.end()) return;
  const std::string uid = text_at(found->second, "/metadata/uid");
  objects_.erase(found);
  std::vector<Key> owned;
  for (const auto& [each, object] : objects_)
    if (text_at(object, "/metadata/ownerReferences/0/uid") == uid && !uid.empty()) owned.push_back(each);
  for (const Key& each : owned) erase(each);
}

void ApiServer::send_log(int client, const Request& request, const Target& target) {
  const auto flag = [&](const char* name) {
    const auto found = request.query.find(name);
    return found == request.query.end() ? std::string() : found->second;
  };
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request.method + " " + request.path);
    if (!allowed("get", target) || forbidden_.contains({"get", "pods/log"})) {
      const Answer none = refuse("get", target);
      write_all(client, response_text(none));
      return;
    }
  }
  if (get("pods", target.space, target.name).is_null()) {
    const Answer none = failure(404, "NotFound", fmt::format("pods \"{}\" not found", target.name));
    write_all(client, response_text(none));
    return;
  }
  const bool follow = flag("follow") == "true";
  if (!write_all(client, "HTTP/1.1 200 X\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")) return;
  if (follow) ++followers_;
  for (size_t done = 0;;) {
    const bool running = text_at(get("pods", target.space, target.name), "/status/phase") == "Running";
    std::string text;
    {
      const std::lock_guard lock(mutex_);
      const auto& lines = logs_[{target.space, target.name}];
      if (done == 0 && !flag("tailLines").empty())
        done = lines.size() - std::min(lines.size(), static_cast<size_t>(std::stoul(flag("tailLines"))));
      for (; done < lines.size(); ++done) {
        // --since-time has a resolution of one second.
        if (!flag("sinceTime").empty() && lines[done].first.substr(0, 19) < flag("sinceTime").substr(0, 19)) continue;
        text += (flag("timestamps") == "true" ? lines[done].first + " " : "") + lines[done].second + "\n";
      }
    }
    if (!text.empty() && !write_all(client, fmt::format("{:x}\r\n{}\r\n", text.size(), text))) break;
    if (!follow || !running) {
      write_all(client, "0\r\n\r\n");
      break;
    }
    if (stop_) break;
    ::poll(nullptr, 0, 5);
  }
  if (follow) --followers_;
}

}  // namespace lockstep
