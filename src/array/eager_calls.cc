#include "array/eager_calls.h"

#include <algorithm>
#include <mutex>
#include <string>

#include "array/executable.h"
#include "array/recently_used.h"
#include "base/runtime_parts.h"

namespace lockstep::detail {

// The program of a call.
struct EagerCall::Known {
  std::string key;
  EagerProgram program;
  std::vector<size_t> inputs;  // the positions of the program's inputs among the arguments
};

// Those of a runtime.
class EagerCalls {
 public:
  using Known = std::shared_ptr<const EagerCall::Known>;

  Known find(size_t hash, std::string_view key) {
    const auto same = [&](const Known& each) { return each->key == key; };
    const std::lock_guard lock(mutex_);
    const Known* const found = recent_.find(hash, same);
    return found ? *found : nullptr;
  }

  void add(size_t hash, Known made) {
    RecentlyUsed<Known>::Entries replaced;
    const std::lock_guard lock(mutex_);
    if (!recent_.find(hash, [&](const Known& each) { return each->key == made->key; }))
      replaced = recent_.insert(hash, std::move(made));
  }

 private:
  static constexpr size_t kLimit = 2048;
  std::mutex mutex_;
  RecentlyUsed<Known> recent_{kLimit};
};

namespace {

// Adds what the equations of a call depend on. Returns false for an argument that cannot be used as it is: the call records
// the equations, which throws.
bool add_argument(CallKey& key, std::span<const Array> args, size_t i) {
  const Node& node = *args[i].node();
  key.add(node.kind);
  key.add(static_cast<const void*>(node.type));
  if (node.kind == Node::Kind::literal) {
    key.add(node.real);
    key.add(node.imaginary);
    key.add(node.integer);
    return true;
  }
  const auto same = [&](const Array& each) { return each.node() == &node; };
  key.add(std::find_if(args.begin(), args.end(), same) - args.begin());  // equal operands are one input
  key.add(node.sharding.address());
  return node.kind == Node::Kind::concrete && !is_across_processes(args[i]);
}

}  // namespace

EagerCall::EagerCall(const CallKey& key, std::span<const Array> args, std::optional<DType> literal_dtype)
    : args_(args) {
  if (key.bytes().empty()) return;
  key_ = key;
  key_.add(literal_dtype);
  for (size_t i = 0; i < args.size(); ++i)
    if (!add_argument(key_, args, i)) {
      key_ = {};
      return;
    }
  if (key_.bytes().empty()) return;
  hash_ = std::hash<std::string_view>()(key_.bytes());
  program_ = runtime_part<EagerCalls>().find(hash_, key_.bytes());
}

Arrays EagerCall::run() const {
  constexpr size_t kFew = 8;
  const Array* few[kFew];
  std::vector<const Array*> many;
  const size_t n = program_->inputs.size();
  if (n > kFew) many.resize(n);
  const Array** const inputs = n > kFew ? many.data() : few;
  for (size_t i = 0; i < n; ++i) inputs[i] = &args_[program_->inputs[i]];
  return run_now(program_->program, {inputs, n});
}

void EagerCall::keep(EagerProgram program, std::span<const Array> inputs) const {
  if (key_.bytes().empty()) return;
  Known known{std::string(key_.bytes()), std::move(program), {}};
  for (const Array& input : inputs) {
    const auto same = [&](const Array& each) { return each.node() == input.node(); };
    const auto at = std::find_if(args_.begin(), args_.end(), same);
    if (at == args_.end()) return;
    known.inputs.push_back(static_cast<size_t>(at - args_.begin()));
  }
  runtime_part<EagerCalls>().add(hash_, std::make_shared<const Known>(std::move(known)));
}

}  // namespace lockstep::detail
