#include "lockstep/jit.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "array/executable.h"
#include "array/flat_values.h"
#include "array/host_checks.h"
#include "array/node.h"
#include "array/pending_version.h"
#include "array/recently_used.h"
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

// One compiled version.
struct JitVersion {
  JitVersion() = default;
  JitVersion(const JitVersion&) = delete;
  JitVersion& operator=(const JitVersion&) = delete;
  ~JitVersion() {
    if (prototype) destroy(prototype);
  }

  std::string key;
  const void* tag = nullptr;  // identifies the C++ types of the arguments
  uint64_t runtime = 0;       // the number of the runtime that it was compiled for
  std::shared_ptr<Executable> executable;
  std::vector<const void*> arrays;                             // the addresses of the arguments' types and shardings
  std::vector<std::pair<std::string, std::string>> structure;  // JitCompilation::Parts::structure
  void* prototype = nullptr;                                   // the result's tree without its arrays; owned
  void (*destroy)(void*) = nullptr;
};

struct JitCompilation::Parts {
  std::shared_ptr<JitVersion> version = std::make_shared<JitVersion>();
  FlatTrees in, out;  // the arguments and the elements of the result
  // The containers, arrays and static values of the arguments, by the path in the call: "2, rate".
  std::vector<std::pair<std::string, std::string>> structure;
  Traced traced;
};

// The compiled versions of a jit function.
struct JitVersions : std::enable_shared_from_this<JitVersions> {
  JitVersions(const JitOptions& jit_options, SourceLine line) : options(jit_options), at(line) {}
  // Returns null if there is none.
  std::shared_ptr<JitVersion> find(const VersionKey& key) {
    const std::lock_guard lock(mutex);
    return find_locked(key);
  }
  std::shared_ptr<JitVersion> find_locked(const VersionKey& key);
  // Returns the version of this key, which is `made` unless another thread was faster.
  std::shared_ptr<JitVersion> add(const VersionKey& key, const std::shared_ptr<JitVersion>& made);
  void remove_those_of_runtime(uint64_t runtime);
  std::shared_ptr<JitVersion> compile(const JitCall& call, const VersionKey& key, JitCompilation& compilation);
  std::shared_ptr<Executable> executable_of(const JitCompilation::Parts& made, const Array* const* arrays) const;
  // A warning, once, that a static number of the arguments has had many values, each of which compiled a version.
  std::string warning_of_static_numbers(const JitVersion& made);

  const JitOptions options;
  const SourceLine at;
  std::mutex mutex;  // guards what follows; not held while a version is made or destroyed
  RecentlyUsed<std::shared_ptr<JitVersion>> versions{options.max_versions};
  bool warned = false;
};

namespace {

// The jit functions with versions for a runtime. The versions go with the runtime.
class VersionsOfRuntime {
 public:
  ~VersionsOfRuntime() {
    for (const auto& each : functions_)
      if (const auto versions = each.lock()) versions->remove_those_of_runtime(number_);
  }

  void add(const std::weak_ptr<JitVersions>& versions) {
    const std::lock_guard lock(mutex_);
    if (functions_.size() >= next_cleanup_) {
      std::erase_if(functions_, [](const auto& each) { return each.expired(); });
      next_cleanup_ = 2 * functions_.size() + 64;
    }
    functions_.insert(versions);
  }

 private:
  const uint64_t number_ = runtime_part<RuntimeNumber>().value;
  std::mutex mutex_;
  size_t next_cleanup_ = 64;
  std::set<std::weak_ptr<JitVersions>, std::owner_less<>> functions_;
};

}  // namespace

JitCall::JitCall() = default;
JitCall::~JitCall() = default;

void JitCall::add(const void* bytes, size_t n) {
  const size_t capacity = long_key_.empty() ? sizeof(short_key_) : long_key_.size();
  if (used_bytes_ + n > capacity) {
    std::vector<char> larger(2 * (used_bytes_ + n));
    std::memcpy(larger.data(), bytes_, used_bytes_);
    long_key_ = std::move(larger);
    bytes_ = long_key_.data();
  }
  std::memcpy(bytes_ + used_bytes_, bytes, n);
  used_bytes_ += n;
}

void JitCall::array(const Array& a) {
  const void* addresses[] = {type_address(a), sharding_address(a)};
  add(addresses, sizeof addresses);
  if (used_arrays_ < few_arrays_.size()) {
    few_arrays_[used_arrays_] = &a;
  } else {
    if (many_arrays_.empty()) many_arrays_.assign(few_arrays_.begin(), few_arrays_.end());
    many_arrays_.push_back(&a);
  }
  ++used_arrays_;
}
void JitCall::size(size_t n) { add(&n, sizeof n); }
void JitCall::boolean(bool value, bool) { add(&value, sizeof value); }
void JitCall::integer(int64_t value, bool) { add(&value, sizeof value); }
void JitCall::real(double value, bool) { add(&value, sizeof value); }
void JitCall::text(const std::string& value, bool) {
  size(value.size());
  add(value.data(), value.size());
}

const void* JitCall::prototype() const { return version_->prototype; }
const Executable& JitCall::executable() const { return *version_->executable; }

void JitCall::run(TreeRef result) {
  constexpr size_t kFew = 64;  // few results live on the stack
  const size_t n = result_count(*version_->executable);
  if (n > kFew) {
    Arrays results(n);
    execute(*version_->executable, arrays(), results.data());
    move_arrays(result, results.data());
    return;
  }
  alignas(Array) char memory[kFew * sizeof(Array)];
  struct Few {
    Array* arrays;
    size_t n;
    ~Few() { std::destroy_n(arrays, n); }
  };
  const Few results{reinterpret_cast<Array*>(memory), n};
  std::uninitialized_default_construct_n(results.arrays, n);
  execute(*version_->executable, arrays(), results.arrays);
  move_arrays(result, results.arrays);
}

const JitOptions& default_jit_options() {
  static const JitOptions options;
  return options;
}

JitCompilation::JitCompilation() : parts_(std::make_unique<Parts>()) {}
JitCompilation::~JitCompilation() = default;

void JitCompilation::trace(TreeRefs args, const FlatFunction& f) {
  parts_->in = FlatTrees(args);
  size_t argument = 0;
  for (const TreeRef& tree : args) {
    const TreeStructure structure(tree, true);
    for (const auto& [path, what] : structure.entries())
      parts_->structure.emplace_back(fmt::format("{}{}{}", argument, path.empty() ? "" : ", ", path), what);
    ++argument;
  }
  Tracing tracing("jit");
  Arrays inputs;
  for (const Array& a : parts_->in.arrays) inputs.push_back(tracing.input(a.type(), a));
  parts_->out = f(inputs.data());
  parts_->traced = tracing.finish(parts_->out.arrays);
}

void JitCompilation::keep(void* prototype, void (*destroy)(void*)) noexcept {
  parts_->version->prototype = prototype;
  parts_->version->destroy = destroy;
}

JitCache::JitCache(const JitOptions& options, SourceLine at) : versions_(std::make_shared<JitVersions>(options, at)) {
  const CallerLine line(at);
  if (options.max_versions == 0) throw_error("jit: max_versions is 0; keep at least one version");
}
JitCache::JitCache(const JitCache&) = default;
JitCache& JitCache::operator=(const JitCache&) = default;
JitCache::~JitCache() = default;

namespace {

VersionKey key_of(const JitVersions& versions, const JitCall& call, const void* tag) {
  return {&versions, tag, runtime_part<RuntimeNumber>().value, call.key()};
}

}  // namespace

void JitCache::find(JitCall& call, const void* tag, const Tracer& trace) const {
  JitVersions& versions = *versions_;
  const VersionKey key = key_of(versions, call, tag);
  call.version_ = versions.find(key);
  if (call.version_) return;
  const CallerLine line(versions.at);
  check_outside_host_call("call");
  const auto pending =
      PendingVersion::begin(key, versions.at, [&] { return static_cast<bool>(call.version_ = versions.find(key)); });
  if (!pending) return;
  JitCompilation compilation;
  const RecognitionScope scope(versions.options.recognize);
  trace(compilation);
  call.version_ = versions.compile(call, key, compilation);
}

size_t JitCache::size() const {
  const std::lock_guard lock(versions_->mutex);
  return versions_->versions.size();
}

JitCache::Nested::Nested(const JitCache& cache, const JitCall& call, const void* tag) {
  begin_nested_call(key_of(*cache.versions_, call, tag), cache.versions_->at);
}
JitCache::Nested::~Nested() { end_nested_call(); }

std::shared_ptr<JitVersion> JitVersions::find_locked(const VersionKey& key) {
  const auto same = [&](const std::shared_ptr<JitVersion>& each) {
    return each->tag == key.tag && each->runtime == key.runtime && each->key == key.bytes;
  };
  std::shared_ptr<JitVersion>* found = versions.last();
  if (!found || !same(*found)) found = versions.find(key.hash(), same);
  return found ? *found : nullptr;
}

std::shared_ptr<JitVersion> JitVersions::add(const VersionKey& key, const std::shared_ptr<JitVersion>& made) {
  std::string warning;
  RecentlyUsed<std::shared_ptr<JitVersion>>::Entries replaced;
  {
    const std::lock_guard lock(mutex);
    if (std::shared_ptr<JitVersion> other = find_locked(key)) return other;
    warning = warning_of_static_numbers(*made);
    replaced = versions.insert(key.hash(), made, made->executable->is_across_processes());
  }
  runtime_part<VersionsOfRuntime>().add(weak_from_this());
  if (!warning.empty()) print_stderr("{}", warning);
  return made;
}

void JitVersions::remove_those_of_runtime(uint64_t runtime) {
  RecentlyUsed<std::shared_ptr<JitVersion>>::Entries removed;
  const std::lock_guard lock(mutex);
  removed = versions.remove_if([&](const std::shared_ptr<JitVersion>& each) { return each->runtime == runtime; });
}

std::shared_ptr<JitVersion> JitVersions::compile(const JitCall& call, const VersionKey& key,
                                                 JitCompilation& compilation) {
  JitCompilation::Parts& parts = *compilation.parts_;
  JitVersion& made = *parts.version;
  parts.traced.program = recognized(parts.traced);
  made.executable = executable_of(parts, call.arrays());
  made.key = key.bytes;
  made.tag = key.tag;
  made.runtime = key.runtime;
  for (size_t i = 0; i < parts.in.arrays.size(); ++i)
    for (const void* address : {type_address(*call.arrays()[i]), sharding_address(*call.arrays()[i])})
      made.arrays.push_back(address);
  made.structure = std::move(parts.structure);
  return add(key, parts.version);
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
      throw_error(
          "jit: the pattern \"{}\" of donate_paths matches no array of the arguments; write ARGUMENT/PATH, such as "
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

std::string JitVersions::warning_of_static_numbers(const JitVersion& made) {
  if (warned || versions.size() + 1 < kManyVersions) return "";
  std::map<size_t, std::vector<std::string>> values;  // by position in the structure
  for (const auto& entry : versions) {
    const JitVersion& other = *entry.value;
    if (other.tag != made.tag || other.runtime != made.runtime || other.arrays != made.arrays) continue;
    if (const std::optional<size_t> found = only_difference(other.structure, made.structure))
      values[*found].push_back(other.structure[*found].second);
  }
  for (auto& [position, seen] : values) {
    const auto& [path, text] = made.structure[position];
    if (seen.size() + 1 < kManyVersions || !is_number_text(text)) continue;
    std::reverse(seen.begin(), seen.end());  // the first that was used comes first
    seen.push_back(text);
    warned = true;
    std::string list;
    for (size_t i = 0; i < 3; ++i) list += seen[i] + ", ";
    return fmt::format(
        "jit: argument {} of the function compiled at {} is a static number and has had {} values ({}..., {}), each of "
        "which compiled a new version; make it an Array (Array rate instead of float rate) to compile once\n",
        path, to_string(at), seen.size(), list, text);
  }
  return "";
}

std::shared_ptr<Executable> JitVersions::executable_of(const JitCompilation::Parts& made,
                                                       const Array* const* arrays) const {
  const size_t arguments = made.in.counts.size();
  for (const size_t argument : options.donate)
    if (argument >= arguments)
      throw_error("jit: donate names argument {}, but the call has {} arguments; positions start at 0", argument,
                  arguments);
  if (options.in_shardings.size() > arguments)
    throw_error("jit: in_shardings has {} entries for {} arguments; give at most one per argument",
                options.in_shardings.size(), arguments);
  Shardings in = values_of_arguments(options.in_shardings, made.in, "jit: in_shardings"), out;
  for (size_t i = 0; i < in.size(); ++i)
    if (!in[i].defined()) in[i] = known_sharding(*arrays[i]);
  if (!options.out_shardings.empty())
    out = values_of_result(options.out_shardings, made.out, "jit: out_shardings", [](size_t given, size_t elements) {
      if (given != elements)
        throw_error(
            "jit: out_shardings has {} entries for a result of {} elements; give one for the whole result or one per "
            "element",
            given, elements);
    });
  check_one_mesh(made.traced, options, at);
  return detail::compile(made.traced, donated_arrays(options, made.in), in, out);
}

}  // namespace lockstep::detail
