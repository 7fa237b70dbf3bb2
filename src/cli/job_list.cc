#include "cli/job_list.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/names.h"
#include "base/printable.h"
#include "base/terminal_style.h"
#include "cli/command.h"
#include "cli/retry.h"
#include "jobs/json_path.h"
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

constexpr std::string_view kJsonPath = "jsonpath=", kCustomColumns = "custom-columns=";

// Whether the output shows the objects, and not rows of a table.
bool shows_objects(const std::string& output) {
  return output == "yaml" || output == "json" || output.starts_with(kJsonPath);
}
bool needs_objects(const std::string& output) { return shows_objects(output) || output.starts_with(kCustomColumns); }

// "app=x,tier=y", as kubectl shows labels.
std::string labels_cell(const Labels& labels) {
  std::string out;
  for (const auto& [name, value] : labels) out += fmt::format("{}{}={}", out.empty() ? "" : ",", name, value);
  return out.empty() ? "<none>" : out;
}

class JobLister {
 public:
  JobLister(Runner& runner, std::vector<ResourceArgument> asked, const ListOptions& options)
      : runner_(runner),
        asked_(std::move(asked)),
        options_(options),
        selector_(Selector::parse(options.selector)),
        resource_(asked_.front().resource),
        shown_{options.output == "wide", options.flags.all_namespaces},
        with_objects_(needs_objects(options.output)) {
    const auto same = [&](const ResourceArgument& each) { return each.kind == asked_.front().kind; };
    if (std::all_of(asked_.begin(), asked_.end(), same)) kind_ = asked_.front().kind;
  }

  // Throws Error when an object that is given by name does not exist, UsageError if its name is that of a resource.
  void check_names() {
    for (const ResourceArgument& asked : asked_) {
      if (asked.name.empty()) continue;
      try {
        if (resource_ == Resource::pods)
          find_pod(runner_, options_.flags, asked.name);
        else
          find_job(runner_, options_.flags, asked);
      } catch (const Error&) {
        if (!is_resource(asked.name)) throw;
        throw UsageError(fmt::format("get: separate resources with commas, such as `lockstep get {},{}`",
                                     resource_ == Resource::pods   ? "pods"
                                     : resource_ == Resource::jobs ? "jobs"
                                                                   : "events",
                                     asked.name));
      }
    }
  }

  TableRow header() const {
    TableRow out = resource_ == Resource::jobs   ? job_header(shown_)
                   : resource_ == Resource::pods ? pod_header(shown_)
                                                 : event_header(shown_);
    if (options_.show_labels) out.emplace_back("LABELS");
    return out;
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

  TableRow with_labels(TableRow row, const Labels& labels) const {
    if (options_.show_labels) row.push_back(labels_cell(labels));
    return row;
  }

  void add_job(const Job& job, std::vector<ListItem>& out) const {
    if (!is_selected(job, job.name) || !selector_.matches(job.labels)) return;
    out.push_back({job.namespace_name + "/" + full_name(job), job_row_key(job),
                   with_labels(job_row(job, shown_, now()), job.labels), full_name(job)});
    if (with_objects_) out.back().object = object_json(job);
  }

  void add_pods(const Job& job, std::vector<ListItem>& out) {
    for (const Pod& pod : pods_of(runner_, job))
      if (is_selected(job, pod_name(job, pod))) add_pod(job, pod, out);
  }

  void add_pod(const Job& job, const Pod& pod, std::vector<ListItem>& out) const {
    const Labels labels = pod_labels(job, pod.index);
    if (!selector_.matches(labels)) return;
    const std::string name = pod_name(job, pod);
    out.push_back({job.namespace_name + "/" + name, pod_row_key(job, pod),
                   with_labels(pod_row(job, pod, shown_, now()), labels), "pod/" + name});
    if (with_objects_) out.back().object = pod_object(job, pod);
  }

  void add_events(const Job& job, std::vector<ListItem>& out) {
    if (!is_selected(job, job.name) || !selector_.matches(job.labels)) return;
    for (const JobEvent& event : runner_.events(job)) {
      const std::string key = fmt::format("{} {}", job.uid, out.size());
      out.push_back({key, event.message, with_labels(event_row(job, event, shown_, now()), {}), event.object});
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

void print_objects(const std::vector<JobLister>& listers, const std::string& output, std::vector<ListItem> items) {
  std::vector<ordered_json> objects;
  for (ListItem& item : items) objects.push_back(std::move(item.object));
  const bool one = listers.size() == 1 && listers[0].one_by_name() && objects.size() == 1;
  const ordered_json all = one ? objects[0] : list_object(std::move(objects));
  if (output.starts_with(kJsonPath))
    fmt::print("{}", printable_lines(format_json_path(std::string_view(output).substr(kJsonPath.size()), all)));
  else if (output == "yaml")
    fmt::print("{}", to_yaml(all));
  else
    fmt::print("{}\n", all.dump(4, ' ', false, ordered_json::error_handler_t::replace));
}

void print_custom_columns(const std::vector<ListItem>& items, const ListOptions& options) {
  const std::vector<CustomColumn> columns =
      parse_custom_columns(std::string_view(options.output).substr(kCustomColumns.size()));
  std::vector<TableRow> rows;
  if (!options.no_headers) {
    TableRow& header = rows.emplace_back();
    for (const CustomColumn& column : columns) header.push_back(column.header);
  }
  for (const ListItem& item : items) rows.push_back(custom_row(columns, item.object));
  fmt::print("{}", TableLayout().format(rows));
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

void check_output(const std::string& output) {
  const std::vector<std::string> words = {"wide", "yaml", "json", "name"};
  if (output.empty() || std::ranges::find(words, output) != words.end()) return;
  or_usage_error([&] {
    const std::string_view text = output;
    if (text.starts_with(kJsonPath))
      format_json_path(text.substr(kJsonPath.size()), {});
    else if (text.starts_with(kCustomColumns))
      parse_custom_columns(text.substr(kCustomColumns.size()));
    else
      throw_error(
          "get: --output: \"{}\" is not one of {}, jsonpath=TEMPLATE, custom-columns=COLUMNS;{} see `lockstep "
          "get --help`",
          printable(output), fmt::join(words, ", "), suggestion(output, words));
    return 0;
  });
}

namespace {

// Prints several tables, with a blank line between them and the resource before each name.
int print_tables(std::vector<JobLister>& listers, const ListOptions& options) {
  bool found = false;
  for (JobLister& lister : listers) {
    std::vector<ListItem> items = lister.list();
    for (ListItem& item : items) item.row[options.flags.all_namespaces ? 1 : 0] = item.name;
    if (items.empty()) continue;
    if (std::exchange(found, true) && options.output != "name") fmt::print("\n");
    ListPrinter(lister.header(), options).print(items);
  }
  if (!found) print_none_found(options.flags);
  return kDone;
}

// Prints one resource. With --watch, also its changes until the timeout, while the runner is reachable or not.
int print_list(Runner& runner, JobLister& lister, const ListOptions& options) {
  const bool for_ever = options.watch && options.timeout.empty();
  const Clock::time_point end = for_ever        ? Clock::time_point::max()
                                : options.watch ? Clock::now() + *parse_duration(options.timeout)
                                                : Clock::now();
  Retrier retrier(end);
  const auto list = [&] {
    lister.check_names();
    return lister.list();
  };
  const std::vector<ListItem> items = options.watch ? retrier.run(list) : list();
  if (items.empty() && !options.watch) {
    print_none_found(options.flags);
    return kDone;
  }
  ListPrinter printer(lister.header(), options);
  printer.print(items);
  while (options.watch && Clock::now() < end) {
    runner.wait_for_change();
    printer.print(retrier.run([&] { return lister.list(); }));
  }
  return kDone;
}

}  // namespace

int print_lists(const std::vector<std::vector<ResourceArgument>>& groups, const ListOptions& options) {
  if (needs_objects(options.output) && options.watch)
    throw UsageError(fmt::format("get: -w cannot be combined with -o {}; omit one of them",
                                 options.output.substr(0, options.output.find('='))));
  if (groups.size() > 1 && options.watch)
    throw UsageError("get: -w shows a single resource; give one of jobs, pods and events");
  const std::unique_ptr<Runner> runner = runner_for(options.flags);
  std::vector<JobLister> listers;
  for (const std::vector<ResourceArgument>& asked : groups) listers.emplace_back(*runner, asked, options);
  if (groups.size() == 1 && !needs_objects(options.output)) return print_list(*runner, listers[0], options);
  for (JobLister& lister : listers) lister.check_names();
  if (needs_objects(options.output)) {
    std::vector<ListItem> items;
    for (JobLister& lister : listers)
      for (ListItem& item : lister.list()) items.push_back(std::move(item));
    if (shows_objects(options.output))
      print_objects(listers, options.output, std::move(items));
    else
      print_custom_columns(items, options);
    return kDone;
  }
  return print_tables(listers, options);
}

}  // namespace lockstep::cli
