#include "board/trace_store.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace lockstep::board {
namespace {

using nlohmann::json;

constexpr size_t kMaxSteps = 2000, kMaxDepth = 8;

std::string dump_text(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

json times_json(const CategoryTimes& times) {
  json out = json::object();
  for (size_t c = 0; c < kTraceCategories; ++c)
    if (times[c] > 0) out[std::string(to_string(static_cast<TraceCategory>(c)))] = times[c];
  return out;
}

json rank_json(const RankTrace& rank, const RankSummary& summary) {
  std::vector<uint32_t> depths(rank.lanes.size());
  for (const TraceEvent& event : rank.events) depths[event.lane] = std::max(depths[event.lane], event.depth + 1);
  std::array<bool, kTraceCategories> used = {};
  for (const TraceEvent& event : rank.events) used[static_cast<size_t>(event.category)] = true;
  json lanes = json::array(), categories = json::array();
  for (size_t c = 0; c < kTraceCategories; ++c)
    if (used[c]) categories.push_back(to_string(static_cast<TraceCategory>(c)));
  for (size_t i = 0; i < depths.size(); ++i)
    lanes.push_back({{"lane", rank.lanes[i]}, {"depths", std::min<size_t>(depths[i], kMaxDepth)}});
  return {{"rank", rank.rank},
          {"lanes", std::move(lanes)},
          {"events", rank.events.size()},
          {"categories", std::move(categories)},
          {"steps", summary.steps},
          {"slowest", summary.slowest},
          {"seconds", summary.seconds},
          {"work", summary.work},
          {"times", times_json(summary.times)}};
}

json step_json(const Trace& trace, const TracedStep& step) {
  return {{"step", step.step},     {"begin", step.begin},
          {"end", step.end},       {"slowest", trace.ranks[step.slowest].rank},
          {"work", step.work},     {"others", step.others},
          {"excess", step.excess}, {"category", to_string(step.category)},
          {"even", step.is_even}};
}

// The slices of one row: of the events of one lane and depth.
struct Row {
  struct Slice {
    double begin, end;
    uint32_t name;
    TraceCategory category;
    double longest;  // of the joined events, the one that gives name and category
    int64_t count;
  };
  std::vector<Slice> slices;

  void add(const TraceEvent& event, double pixel) {
    if (!slices.empty()) {
      Slice& last = slices.back();
      if (event.duration < pixel && last.end - last.begin < pixel && event.end() - last.begin < pixel) {
        last.end = std::max(last.end, event.end());
        ++last.count;
        if (event.duration > last.longest)
          last.longest = event.duration, last.name = event.name, last.category = event.category;
        return;
      }
    }
    slices.push_back({event.begin, event.end(), event.name, event.category, event.duration, 1});
  }
};

}  // namespace

std::shared_ptr<const Trace> TraceStore::get(const std::string& run_folder, const std::string& version) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(run_folder); found != entries_.end() && found->second.version == version) {
      found->second.used = std::chrono::steady_clock::now();
      return found->second.trace;
    }
  }
  auto trace = std::make_shared<const Trace>(read_traces(run_folder));
  const std::lock_guard lock(mutex_);
  entries_[run_folder] = {version, trace, std::chrono::steady_clock::now()};
  if (entries_.size() > kMost)
    entries_.erase(std::ranges::min_element(entries_, {}, [](const auto& each) { return each.second.used; }));
  return trace;
}

std::string trace_json(const Trace& trace) {
  json ranks = json::array(), steps = json::array(), categories = json::array();
  for (size_t i = 0; i < trace.ranks.size(); ++i) ranks.push_back(rank_json(trace.ranks[i], trace.summaries[i]));
  for (size_t i = 0; i < std::min(kMaxSteps, trace.steps.size()); ++i)
    steps.push_back(step_json(trace, trace.steps[i]));
  for (size_t c = 0; c < kTraceCategories; ++c) categories.push_back(to_string(static_cast<TraceCategory>(c)));
  return dump_text({{"end", trace.end},
                    {"ranks", std::move(ranks)},
                    {"steps", std::move(steps)},
                    {"all_steps", trace.steps.size()},
                    {"categories", std::move(categories)},
                    {"problems", trace.problems}});
}

std::string slices_json(const Trace& trace, const TraceWindow& window) {
  const double pixel = (window.to - window.from) / static_cast<double>(window.width);
  std::unordered_map<std::string, size_t> names;
  json rows = json::array(), name_list = json::array();
  for (size_t r = window.first; r < trace.ranks.size() && r - window.first < window.count; ++r) {
    const RankTrace& rank = trace.ranks[r];
    std::map<std::pair<uint32_t, uint32_t>, Row> of_rank;  // by lane and depth
    for (const TraceEvent& event : rank.events)
      if (event.end() >= window.from && event.begin <= window.to && event.depth < kMaxDepth)
        of_rank[{event.lane, event.depth}].add(event, pixel);
    for (const auto& [place, row] : of_rank) {
      json slices = json::array();
      for (const Row::Slice& slice : row.slices) {
        const auto [name, is_new] = names.emplace(rank.names[slice.name], names.size());
        if (is_new) name_list.push_back(name->first);
        for (const json& value : {json(slice.begin), json(slice.end - slice.begin), json(name->second),
                                  json(static_cast<size_t>(slice.category)), json(slice.count)})
          slices.push_back(value);
      }
      rows.push_back({{"rank", rank.rank},
                      {"lane", rank.lanes[place.first]},
                      {"depth", place.second},
                      {"slices", std::move(slices)}});
    }
  }
  return dump_text({{"from", window.from}, {"to", window.to}, {"names", name_list}, {"rows", std::move(rows)}});
}

}  // namespace lockstep::board
