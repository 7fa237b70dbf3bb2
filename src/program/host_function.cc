#include "program/host_function.h"

#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "base/check.h"

namespace lockstep {

// The functions of this process. Never destroyed: programs in static objects may outlive it.
class HostFunction::Registry {
 public:
  static Registry& all() {
    static auto* const registry = new Registry;
    return *registry;
  }

  HostFunctionPtr add(HostCall call, const std::string& key) {
    const std::lock_guard lock(mutex_);
    if (!key.empty())
      if (const auto at = by_key_.find(key); at != by_key_.end())
        if (HostFunctionPtr found = find(at->second)) return found;
    const HostFunctionPtr made(new HostFunction(++last_, std::move(call), key));
    by_number_[made->number_] = made;
    if (!key.empty()) by_key_[key] = made->number_;
    return made;
  }

  HostFunctionPtr of_number(int64_t number) {
    {
      const std::lock_guard lock(mutex_);
      if (HostFunctionPtr found = find(number)) return found;
    }
    return HostFunctionPtr(new HostFunction(number, {}, ""));
  }

  void remove(const HostFunction& function) {
    if (!function.call_) return;
    const std::lock_guard lock(mutex_);
    by_number_.erase(function.number_);
    if (const auto at = by_key_.find(function.key_); at != by_key_.end() && at->second == function.number_)
      by_key_.erase(at);
  }

  size_t count() {
    const std::lock_guard lock(mutex_);
    return by_number_.size();
  }

 private:
  HostFunctionPtr find(int64_t number) const {
    const auto at = by_number_.find(number);
    return at == by_number_.end() ? nullptr : at->second.lock();
  }

  std::mutex mutex_;
  int64_t last_ = 0;
  std::unordered_map<int64_t, std::weak_ptr<const HostFunction>> by_number_;
  std::map<std::string, int64_t> by_key_;
};

HostFunctionPtr HostFunction::make(HostCall call, const std::string& key) {
  return Registry::all().add(std::move(call), key);
}

HostFunctionPtr HostFunction::none() {
  static const auto* const function = new HostFunctionPtr(new HostFunction(
      0,
      [](Types, const void* const*, Types out, void* const* results) {
        for (size_t k = 0; k < out.size(); ++k) std::memset(results[k], 0, static_cast<size_t>(out[k].bytes()));
      },
      ""));
  return *function;
}

HostFunctionPtr HostFunction::of_number(int64_t number) {
  return number == 0 ? none() : Registry::all().of_number(number);
}

HostFunction::~HostFunction() { Registry::all().remove(*this); }

const HostCall& HostFunction::call() const {
  if (!call_)
    throw_error(
        "callback: the program refers to function {} of the host, which this process does not have; a program with "
        "callbacks runs only in the process that traced it",
        number_);
  return call_;
}

size_t HostFunction::count() { return Registry::all().count(); }

}  // namespace lockstep
