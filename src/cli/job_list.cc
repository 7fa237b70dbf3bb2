#include "cli/job_list.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "base/printable.h"
#include "base/terminal_style.h"
#include "cli/command.h"
#include "cli/retry.h"
#include "jobs/model/object.h"
#include "jobs/selector.h"
#include "jobs/show.h"

namespace lockstep::cli {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

// A line of a list. With --watch it is printed again when the fingerprint of its key has changed.
struct ListItem {
  std::string key, fingerprint;
  TableRow row;
  std::string name;  // for -o name
  ordered_json object = {};
};

class JobLister {
 public:
  JobLister(Runner& runner, std::vector<ResourceArgument> asked, const ListOptions& options)
      : runner_(runner),
        asked_(std::move(asked)),
        options_(options),
        selector_(Selector::parse(options.selector)),
        resource_(asked_.front().resource),
        shown_{options.output == "wide", options.flags.all_namespaces},
        with_objects_(options.output == "yaml" || options.output == "json") {
    const auto same = [&](const ResourceArgument& each) { return each.kind == asked_.front().kind; };
    if (std::all_of(asked_.begin(), asked_.end(), same)) kind_ = asked_.front().kind;
  }

  // Throws Error when an object that is given by name does not exist.
  void check_names() {
    for (const ResourceArgument& asked : asked_) {
      if (asked.name.empty()) continue;
      if (resource_ == Resource::pods)
        find_pod(runner_, options_.flags, asked.name);
      else
        find_job(runner_, options_.flags, asked);
    }
  }

  TableRow header() const {
    return resource_ == Resource::jobs   ? job_header(shown_)
           : resource_ == Resource::pods ? pod_header(shown_)
                                         : event_header(shown_);
  }

  std::vector<ListItem> list() {
    std::vector<ListItem> out;
    // On Kubernetes a pod that was replaced can still be found by its name.
    if (resource_ == Resource::pods && !asked_.front().name.empty() && !runner_.lists_pending_replicas()) {
      for (const ResourceArgument& each : asked_)
        if (const auto found = runner_.find_pod(options_.flags.lookup_namespace(), each.name))
          add_pod(found->first, found->second, out);
      return out;
    }
    for (const Job& job : runner_.list(options_.flags.list_namespace(), kind_)) {
      if (resource_ == Resource::jobs)
        add_job(job, out);
      else if (resource_ == Resource::pods)
        add_pods(job, out);
      else
        add_events(job, out);
    }
    return out;
  }

  bool one_by_name() const { return asked_.size() == 1 && !asked_[0].name.empty(); }

 private:
  bool is_selected(const Job& job, const std::string& name) const {
    return std::any_of(asked_.begin(), asked_.end(), [&](const ResourceArgument& asked) {
      return has_kind(job, asked) && (asked.name.empty() || asked.name == name);
    });
  }

  void add_job(const Job& job, std::vector<ListItem>& out) const {
    if (!is_selected(job, job.name) || !selector_.matches(job.labels)) return;
    out.push_back(
        {job.namespace_name + "/" + full_name(job), job_row_key(job), job_row(job, shown_, now()), full_name(job)});
    if (with_objects_) out.back().object = object_json(job);
  }

  void add_pods(const Job& job, std::vector<ListItem>& out) {
    for (const Pod& pod : pods_of(runner_, job))
      if (is_selected(job, pod_name(job, pod))) add_pod(job, pod, out);
  }

  void add_pod(const Job& job, const Pod& pod, std::vector<ListItem>& out) const {
    if (!selector_.matches(pod_labels(job, pod.index))) return;
    const std::string name = pod_name(job, pod);
    out.push_back(
        {job.namespace_name + "/" + name, pod_row_key(job, pod), pod_row(job, pod, shown_, now()), "pod/" + name});
    if (with_objects_) out.back().object = pod_object(job, pod);
  }

  void add_events(const Job& job, std::vector<ListItem>& out) {
    if (!is_selected(job, job.name) || !selector_.matches(job.labels)) return;
    for (const JobEvent& event : runner_.events(job)) {
      const std::string key = fmt::format("{} {}", job.uid, out.size());
      out.push_back({key, event.message, event_row(job, event, shown_, now()), event.object});
      if (with_objects_ && !event.raw.is_null())
        out.back().object = event.raw;
      else if (with_objects_)
        out.back().object = {{"apiVersion", "v1"},       {"involvedObject", event.object},
                             {"kind", "Event"},          {"lastTimestamp", time_text(event.time)},
                             {"message", event.message}, {"metadata", {{"namespace", job.namespace_name}}},
                             {"reason", event.reason},   {"type", event.warning ? "Warning" : "Normal"}};
    }
  }

  Runner& runner_;
  std::vector<ResourceArgument> asked_;
  const ListOptions& options_;
  Selector selector_;
  Resource resource_;
  std::optional<JobKind> kind_;  // that all arguments have in common
  TableOptions shown_;
  bool with_objects_;
};

void print_objects(const JobLister& lister, const std::string& output, std::vector<ListItem> items) {
  std::vector<ordered_json> objects;
  for (ListItem& item : items) objects.push_back(std::move(item.object));
  const ordered_json all = lister.one_by_name() && objects.size() == 1 ? objects[0] : list_object(std::move(objects));
  if (output == "yaml")
    fmt::print("{}", to_yaml(all));
  else
    fmt::print("{}\n", all.dump(4, ' ', false, ordered_json::error_handler_t::replace));
}

// Prints the items that are new or changed, one line each.
class ListPrinter {
 public:
  ListPrinter(TableRow header, const ListOptions& options) : header_(std::move(header)), options_(options) {}

  void print(const std::vector<ListItem>& items) {
    std::vector<TableRow> rows;
    std::map<std::string, std::string> seen;
    for (const ListItem& item : items) {
      seen[item.key] = item.fingerprint;
      const auto before = seen_.find(item.key);
      if (before != seen_.end() && before->second == item.fingerprint) continue;
      if (options_.output == "name")
        fmt::print("{}\n", printable(item.name));
      else
        rows.push_back(item.row);
    }
    seen_ = std::move(seen);
    if (!rows.empty() && !std::exchange(begun_, true) && !options_.no_headers) rows.insert(rows.begin(), header_);
    fmt::print("{}", columns_.format(rows));
    std::fflush(stdout);
  }

 private:
  TableRow header_;
  const ListOptions& options_;
  TableLayout columns_{terminal_style(STDOUT_FILENO).color};
  std::map<std::string, std::string> seen_;
  bool begun_ = false;
};

}  // namespace

int print_list(const std::vector<ResourceArgument>& asked, const ListOptions& options) {
  const bool objects = options.output == "yaml" || options.output == "json";
  if (objects && options.watch)
    throw UsageError(fmt::format("get: -w cannot be combined with -o {}; omit one of them", options.output));
  for (const ResourceArgument& each : asked)
    if (each.resource != asked.front().resource) throw UsageError(kOneResource);
  const std::unique_ptr<Runner> runner = runner_for(options.flags);
  JobLister lister(*runner, asked, options);
  lister.check_names();
  std::vector<ListItem> items = lister.list();
  if (objects) {
    print_objects(lister, options.output, std::move(items));
    return kDone;
  }
  if (items.empty() && !options.watch) {
    print_none_found(options.flags);
    return kDone;
  }
  ListPrinter printer(lister.header(), options);
  printer.print(items);
  if (!options.watch) return kDone;
  const Clock::time_point end =
      options.timeout.empty() ? Clock::time_point::max() : Clock::now() + *parse_duration(options.timeout);
  Retrier retrier(end);
  while (Clock::now() < end) {
    runner->wait_for_change();
    printer.print(retrier.run([&] { return lister.list(); }));
  }
  return kDone;
}

}  // namespace lockstep::cli
