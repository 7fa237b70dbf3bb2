#include "cli/job_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "base/printable.h"
#include "cli/command.h"
#include "cli/patience.h"
#include "jobs/model/object.h"
#include "jobs/selector.h"
#include "jobs/show.h"

namespace lockstep::cli {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

// A line of a list.
struct Item {
  std::string key, news;  // whose line it is, and when it is to be printed again
  Row row;
  std::string name;  // for -o name
  ordered_json object = {};
};

class Lister {
 public:
  Lister(Runner& runner, std::vector<Asked> asked, const ListOptions& options)
      : runner_(runner),
        asked_(std::move(asked)),
        options_(options),
        selector_(Selector::parse(options.selector)),
        resource_(asked_.front().resource),
        shown_{options.output == "wide", options.flags.all_spaces},
        with_objects_(options.output == "yaml" || options.output == "json") {
    const auto same = [&](const Asked& each) { return each.kind == asked_.front().kind; };
    if (std::all_of(asked_.begin(), asked_.end(), same)) kind_ = asked_.front().kind;
  }

  // Throws when something that was asked for by name is not there.
  void check_names() {
    for (const Asked& asked : asked_) {
      if (asked.name.empty()) continue;
      if (resource_ == Resource::pods)
        find_pod(runner_, options_.flags, asked.name);
      else
        find_job(runner_, options_.flags, asked);
    }
  }

  Row header() const {
    return resource_ == Resource::jobs   ? job_header(shown_)
           : resource_ == Resource::pods ? pod_header(shown_)
                                         : event_header(shown_);
  }

  std::vector<Item> look() {
    std::vector<Item> out;
    // On a cluster a pod that was replaced is still found by its name.
    if (resource_ == Resource::pods && !asked_.front().name.empty() && !runner_.shows_waiting_replicas()) {
      for (const Asked& each : asked_)
        if (const auto found = runner_.find_pod(options_.flags.named_space(), each.name))
          add_pod(found->first, found->second, out);
      return out;
    }
    for (const Job& job : runner_.list(options_.flags.listed_space(), kind_)) {
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
  bool is_asked(const Job& job, const std::string& name) const {
    return std::any_of(asked_.begin(), asked_.end(), [&](const Asked& asked) {
      return is_of_kind(job, asked) && (asked.name.empty() || asked.name == name);
    });
  }

  void add_job(const Job& job, std::vector<Item>& out) const {
    if (!is_asked(job, job.name) || !selector_.matches(job.labels)) return;
    out.push_back({job.space + "/" + full_name(job), job_news(job), job_row(job, shown_, now()), full_name(job)});
    if (with_objects_) out.back().object = object_json(job);
  }

  void add_pods(const Job& job, std::vector<Item>& out) {
    for (const Pod& pod : pods_of(runner_, job))
      if (is_asked(job, pod_name(job, pod))) add_pod(job, pod, out);
  }

  void add_pod(const Job& job, const Pod& pod, std::vector<Item>& out) const {
    if (!selector_.matches(pod_labels(job, pod.index))) return;
    const std::string name = pod_name(job, pod);
    out.push_back({job.space + "/" + name, pod_news(job, pod), pod_row(job, pod, shown_, now()), "pod/" + name});
    if (with_objects_) out.back().object = pod_object(job, pod);
  }

  void add_events(const Job& job, std::vector<Item>& out) {
    if (!is_asked(job, job.name) || !selector_.matches(job.labels)) return;
    for (const JobEvent& event : runner_.events(job)) {
      const std::string key = fmt::format("{} {}", job.uid, out.size());
      out.push_back({key, event.message, event_row(job, event, shown_, now()), event.object});
      if (with_objects_ && !event.raw.is_null())
        out.back().object = event.raw;
      else if (with_objects_)
        out.back().object = {{"apiVersion", "v1"},       {"involvedObject", event.object},
                             {"kind", "Event"},          {"lastTimestamp", time_text(event.time)},
                             {"message", event.message}, {"metadata", {{"namespace", job.space}}},
                             {"reason", event.reason},   {"type", event.warning ? "Warning" : "Normal"}};
    }
  }

  Runner& runner_;
  std::vector<Asked> asked_;
  const ListOptions& options_;
  Selector selector_;
  Resource resource_;
  std::optional<JobKind> kind_;  // of all that is asked for
  Shown shown_;
  bool with_objects_;
};

void print_objects(const Lister& lister, const std::string& output, std::vector<Item> items) {
  std::vector<ordered_json> objects;
  for (Item& item : items) objects.push_back(std::move(item.object));
  const ordered_json all = lister.one_by_name() && objects.size() == 1 ? objects[0] : list_object(std::move(objects));
  if (output == "yaml")
    fmt::print("{}", to_yaml(all));
  else
    fmt::print("{}\n", all.dump(4, ' ', false, ordered_json::error_handler_t::replace));
}

// Prints items as lines, those that are new or changed.
class Printer {
 public:
  Printer(Row header, const ListOptions& options) : header_(std::move(header)), options_(options) {}

  void print(const std::vector<Item>& items) {
    std::vector<Row> rows;
    std::map<std::string, std::string> seen;
    for (const Item& item : items) {
      seen[item.key] = item.news;
      const auto before = seen_.find(item.key);
      if (before != seen_.end() && before->second == item.news) continue;
      if (options_.output == "name")
        fmt::print("{}\n", printable(item.name));
      else
        rows.push_back(item.row);
    }
    seen_ = std::move(seen);
    if (!rows.empty() && !std::exchange(begun_, true) && !options_.no_headers) rows.insert(rows.begin(), header_);
    fmt::print("{}", columns_.lay_out(rows));
    std::fflush(stdout);
  }

 private:
  Row header_;
  const ListOptions& options_;
  Columns columns_;
  std::map<std::string, std::string> seen_;
  bool begun_ = false;
};

}  // namespace

int print_list(const std::vector<Asked>& asked, const ListOptions& options) {
  const bool objects = options.output == "yaml" || options.output == "json";
  if (objects && options.watch)
    throw UsageError(
        fmt::format("get: -w prints a line for each change, and -o {} is not made of lines; leave one of "
                    "them out",
                    options.output));
  for (const Asked& each : asked)
    if (each.resource != asked.front().resource) throw UsageError(kOneResource);
  const std::unique_ptr<Runner> runner = runner_of(options.flags);
  Lister lister(*runner, asked, options);
  lister.check_names();
  std::vector<Item> items = lister.look();
  if (objects) {
    print_objects(lister, options.output, std::move(items));
    return kDone;
  }
  if (items.empty() && !options.watch) {
    say_nothing_found(options.flags);
    return kDone;
  }
  Printer printer(lister.header(), options);
  printer.print(items);
  if (!options.watch) return kDone;
  const Clock::time_point end =
      options.timeout.empty() ? Clock::time_point::max() : Clock::now() + *parse_duration(options.timeout);
  Patience patience(end);
  while (Clock::now() < end) {
    runner->wait_for_change();
    printer.print(patience.ask([&] { return lister.look(); }));
  }
  return kDone;
}

}  // namespace lockstep::cli
