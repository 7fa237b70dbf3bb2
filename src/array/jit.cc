#include "lockstep/jit.h"

#include <algorithm>
#include <atomic>
#include <set>

#include "array/flat_values.h"
#include "array/node.h"
#include "array/trace.h"
#include "base/check.h"
#include "base/print_stderr.h"
#include "base/runtime_parts.h"

namespace lockstep::detail {

namespace {

// Runtimes are numbered because a new one may have the address of one that was destroyed.
struct RuntimeNumber {
  static inline std::atomic<uint64_t> last = 0;
  const uint64_t value = ++last;
};

}  // namespace

JitCache::JitCache(const JitOptions& options, SourceLine at)
    : options_(std::make_unique<const JitOptions>(options)), at_(at) {}
JitCache::~JitCache() = default;

std::shared_ptr<JitCache::Entry> JitCache::find(std::string_view key, const void* tag, const Array* const* arrays,
                                                const Tracer& trace) {
  const std::lock_guard lock(mutex_);
  const uint64_t runtime = runtime_part<RuntimeNumber>().value;
  for (const auto& entry : entries_)
    if (entry->tag == tag && entry->runtime == runtime && entry->key == key) return entry;
  auto made = std::make_shared<Entry>();
  Call call;
  const RecognitionScope scope(options_->recognize);
  Traced traced = trace(*made, call);
  traced.program = recognized(traced);
  made->executable = compile(traced, arrays, call);
  made->key = key;
  made->tag = tag;
  made->runtime = runtime;
  for (size_t i = 0; i < call.in.arrays.size(); ++i)
    for (const void* address : {type_address(*arrays[i]), sharding_address(*arrays[i])})
      made->arrays.push_back(address);
  made->structure = std::move(call.structure);
  warn_of_static_numbers(*made);
  entries_.push_back(made);
  return made;
}

size_t JitCache::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

void JitCache::Call::add_structure(size_t argument, const TreeStructure& tree) {
  for (const auto& [path, what] : tree.entries())
    structure.emplace_back(fmt::format("{}{}{}", argument, path.empty() ? "" : ", ", path), what);
}

namespace {

constexpr size_t kManyVersions = 8;

// Which arrays of the arguments are donated. Throws Error for a pattern that matches none.
std::vector<bool> donated_arrays(const JitOptions& options, const FlatTrees& args) {
  std::vector<bool> out;
  for (size_t i = 0; i < args.counts.size(); ++i)
    out.resize(out.size() + args.counts[i],
               std::find(options.donate.begin(), options.donate.end(), i) != options.donate.end());
  for (const std::string& pattern : options.donate_paths) {
    bool any = false;
    for (size_t i = 0, at = 0; i < args.counts.size(); ++i)
      for (size_t k = 0; k < args.counts[i]; ++k, ++at)
        if (matches_pattern(pattern, fmt::format("{}{}{}", i, args.paths[at].empty() ? "" : "/", args.paths[at])))
          out[at] = any = true;
    if (!any)
      throw_error("jit: the pattern \"{}\" of donate_paths matches no array of the arguments; write ARGUMENT/PATH, such as "
                  "\"0/layers/*\"",
                  pattern);
  }
  return out;
}

// The only entry in which two structures differ; nullopt if there are none or several.
template <class Structure>
std::optional<size_t> only_difference(const Structure& a, const Structure& b) {
  std::optional<size_t> out;
  if (a.size() != b.size()) return out;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    if (out || a[i].first != b[i].first) return std::nullopt;
    out = i;
  }
  return out;
}

bool is_number_text(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789.+-einfa") == text.npos;
}

}  // namespace

void JitCache::warn_of_static_numbers(const Entry& made) {
  if (warned_ || entries_.size() + 1 < kManyVersions) return;
  std::map<size_t, std::vector<std::string>> values;  // by position in the structure
  for (const auto& entry : entries_)
    if (entry->tag == made.tag && entry->runtime == made.runtime && entry->arrays == made.arrays)
      if (const std::optional<size_t> at = only_difference(entry->structure, made.structure))
        values[*at].push_back(entry->structure[*at].second);
  for (auto& [at, seen] : values) {
    const auto& [path, text] = made.structure[at];
    if (seen.size() + 1 < kManyVersions || !is_number_text(text)) continue;
    seen.push_back(text);
    warned_ = true;
    std::string list;
    for (size_t i = 0; i < 3; ++i) list += seen[i] + ", ";
    print_stderr(
        "jit: argument {} of the function compiled at {} is a static number and has had {} values ({}..., {}), each of "
        "which compiled a new version; make it an Array (Array rate instead of float rate) to compile once\n",
        path, to_string(at_), seen.size(), list, text);
    return;
  }
}

JitResults::JitResults(Executable& executable, const Array* const* args) {
  const size_t n = result_count(executable);
  if (n > small_.size()) large_.resize(n);
  next_ = n > small_.size() ? large_.data() : small_.data();
  execute(executable, args, next_);
}

std::shared_ptr<Executable> JitCache::compile(const Traced& traced, const Array* const* arrays,
                                              const Call& call) const {
  const size_t arguments = call.in.counts.size();
  for (const size_t argument : options_->donate)
    if (argument >= arguments)
      throw_error("jit: donate names argument {}, but the call has {} arguments; positions start at 0", argument,
                  arguments);
  if (options_->in_shardings.size() > arguments)
    throw_error("jit: in_shardings has {} entries for {} arguments; give at most one per argument",
                options_->in_shardings.size(), arguments);
  Shardings in = values_of_arguments(options_->in_shardings, call.in, "jit: in_shardings"), out;
  for (size_t i = 0; i < in.size(); ++i)
    if (!in[i].defined()) in[i] = known_sharding(*arrays[i]);
  if (!options_->out_shardings.empty())
    out = values_of_result(
        options_->out_shardings, call.out, "jit: out_shardings", [](size_t options, size_t elements) {
          if (options != elements)
            throw_error(
                "jit: out_shardings has {} entries for a result of {} elements; give one for the whole result or one per "
                "element",
                options, elements);
        });
  check_one_mesh(traced, *options_, at_);
  return detail::compile(traced, donated_arrays(*options_, call.in), in, out);
}

}  // namespace lockstep::detail
