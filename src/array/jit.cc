#include "lockstep/jit.h"

#include <algorithm>
#include <numeric>

#include "array/node.h"
#include "base/check.h"

namespace lockstep::detail {

std::shared_ptr<JitCache::Entry> JitCache::find(std::string_view signature, const void* tag, const Array* const* arrays,
                                                const Make& make) {
  const std::lock_guard lock(mutex_);
  for (const auto& entry : entries_)
    if (entry->tag == tag && entry->signature == signature) return entry;
  auto made = std::make_shared<Entry>();
  Call call;
  const Traced traced = make(*made, call);
  made->executable = compile(traced, arrays, call);
  made->signature = signature;
  made->tag = tag;
  entries_.push_back(made);
  return made;
}

size_t JitCache::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

std::shared_ptr<Executable> JitCache::compile(const Traced& traced, const Array* const* arrays,
                                              const Call& call) const {
  for (const size_t argument : options_.donate)
    if (argument >= call.in.size())
      throw_error("jit: donate names argument {} and the function was called with {}; arguments are counted from 0",
                  argument, call.in.size());
  const Shardings& said = options_.in_shardings;
  if (said.size() > call.in.size())
    throw_error("jit: in_shardings has {} entries for {} arguments; give at most one per argument", said.size(),
                call.in.size());
  std::vector<bool> donated;
  Shardings in, out;
  for (size_t i = 0; i < call.in.size(); ++i) {
    const bool donate = std::find(options_.donate.begin(), options_.donate.end(), i) != options_.donate.end();
    donated.resize(donated.size() + call.in[i], donate);
    for (size_t k = 0; k < call.in[i]; ++k, ++arrays)
      in.push_back(i < said.size() && said[i].defined() ? said[i] : known_sharding(**arrays));
  }
  const Shardings& results = options_.out_shardings;
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
  check_one_mesh(traced, said, results, at_);
  return detail::compile(traced, donated, in, out);
}

}  // namespace lockstep::detail
