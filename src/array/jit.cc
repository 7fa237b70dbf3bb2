#include "lockstep/jit.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "array/node.h"
#include "array/trace.h"
#include "base/check.h"
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
  entries_.push_back(made);
  return made;
}

size_t JitCache::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

std::shared_ptr<Executable> JitCache::compile(const Traced& traced, const Array* const* arrays,
                                              const Call& call) const {
  for (const size_t argument : options_->donate)
    if (argument >= call.in.size())
      throw_error("jit: donate names argument {}, but the call has {} arguments; positions start at 0", argument,
                  call.in.size());
  const Shardings& given = options_->in_shardings;
  if (given.size() > call.in.size())
    throw_error("jit: in_shardings has {} entries for {} arguments; give at most one per argument", given.size(),
                call.in.size());
  std::vector<bool> donated;
  Shardings in, out;
  for (size_t i = 0; i < call.in.size(); ++i) {
    const bool donate = std::find(options_->donate.begin(), options_->donate.end(), i) != options_->donate.end();
    donated.resize(donated.size() + call.in[i], donate);
    for (size_t k = 0; k < call.in[i]; ++k, ++arrays)
      in.push_back(i < given.size() && given[i].defined() ? given[i] : known_sharding(**arrays));
  }
  const Shardings& results = options_->out_shardings;
  if (results.size() == 1) {
    out.resize(std::accumulate(call.out.begin(), call.out.end(), size_t{0}), results[0]);
  } else if (!results.empty()) {
    if (results.size() != call.out.size())
      throw_error(
          "jit: out_shardings has {} entries for a result of {} elements; give one for the whole result or one per "
          "element",
          results.size(), call.out.size());
    for (size_t i = 0; i < results.size(); ++i) out.resize(out.size() + call.out[i], results[i]);
  }
  check_one_mesh(traced, given, results, at_);
  return detail::compile(traced, donated, in, out);
}

}  // namespace lockstep::detail
