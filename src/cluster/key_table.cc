#include "cluster/key_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace lockstep {

namespace {

bool in_directory(const std::string& key, const std::string& directory) {
  return directory.empty() || (key.size() > directory.size() && key.starts_with(directory) &&
                               (directory.back() == '/' || key[directory.size()] == '/'));
}

}  // namespace

bool KeyTable::check_key(uint64_t call, const char* operation, const std::string& key) {
  if (key.empty()) {
    answer(call, Outcome::refused, fmt::format("{}: the key is empty", operation));
  } else if (key.size() > limits_.key_bytes) {
    answer(call, Outcome::refused,
           fmt::format("{}: the key has {} bytes (\"{}...\"); at most {} are allowed", operation, key.size(),
                       key.substr(0, 32), limits_.key_bytes));
  } else if (std::ranges::any_of(key, [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; })) {
    answer(call, Outcome::refused, fmt::format("{}: the key contains a control character", operation));
  } else {
    return true;
  }
  return false;
}

bool KeyTable::store(uint64_t call, const char* operation, const std::string& key, const std::string& value) {
  if (value.size() > limits_.value_bytes) {
    answer(call, Outcome::refused,
           fmt::format("{}: the value of \"{}\" has {} bytes; at most {} are allowed: use several keys, or a file",
                       operation, key, value.size(), limits_.value_bytes));
    return false;
  }
  const auto found = values_.find(key);
  if (found == values_.end() && values_.size() >= limits_.count) {
    answer(call, Outcome::refused,
           fmt::format("{}: the store has {} keys, the maximum, so \"{}\" cannot be added; remove some keys", operation,
                       values_.size(), key));
    return false;
  }
  const size_t before = found == values_.end() ? 0 : key.size() + found->second.size();
  const size_t after = key.size() + value.size();
  if (bytes_ - before + after > limits_.total_bytes) {
    answer(call, Outcome::refused,
           fmt::format(
               "{}: \"{}\" does not fit: all keys and values together would have {} bytes; at most {} are allowed: "
               "remove some keys",
               operation, key, bytes_ - before + after, limits_.total_bytes));
    return false;
  }
  bytes_ = bytes_ - before + after;
  values_[key] = value;
  for (auto waiter = waiting_.begin(); waiter != waiting_.end();) {
    if (waiter->second.key == key) {
      answer(waiter->first, Outcome::ok, value);
      waiter = waiting_.erase(waiter);
    } else {
      ++waiter;
    }
  }
  return true;
}

void KeyTable::get(uint64_t call, const request::Get& request, Time deadline) {
  if (!check_key(call, "get", request.key)) return;
  if (const auto found = values_.find(request.key); found != values_.end()) {
    answer(call, Outcome::ok, found->second);
  } else if (!request.wait) {
    answer(call, Outcome::absent, fmt::format("get: the key \"{}\" is not set", request.key));
  } else {
    waiting_.emplace(call, Waiter{request.key, deadline, request.timeout});
  }
}

void KeyTable::set(uint64_t call, const request::Set& request) {
  if (!check_key(call, "set", request.key)) return;
  if (!request.overwrite && values_.contains(request.key)) {
    answer(call, Outcome::refused,
           fmt::format("set: the key \"{}\" is already set; remove it first, or use overwrite()", request.key));
    return;
  }
  if (store(call, "set", request.key, request.value)) answer(call, Outcome::ok, "");
}

void KeyTable::increment(uint64_t call, const request::Increment& request) {
  if (!check_key(call, "increment", request.key)) return;
  int64_t value = 0;
  if (const auto found = values_.find(request.key); found != values_.end()) {
    const char* end = found->second.data() + found->second.size();
    const auto [stop, error] = std::from_chars(found->second.data(), end, value);
    if (error != std::errc() || stop != end) {
      answer(call, Outcome::refused,
             fmt::format("increment: the value of \"{}\" is \"{}\", which is not a number", request.key,
                         found->second.substr(0, 32)));
      return;
    }
  }
  if (__builtin_add_overflow(value, request.by, &value)) {
    answer(call, Outcome::refused,
           fmt::format("increment: \"{}\" plus {} does not fit 64 bits", request.key, request.by));
    return;
  }
  if (store(call, "increment", request.key, std::to_string(value))) answers_.push_back({.call = call, .number = value});
}

void KeyTable::list(uint64_t call, const request::List& request) {
  Answer out{.call = call};
  size_t bytes = 0;
  for (auto entry = values_.lower_bound(request.directory);
       entry != values_.end() && entry->first.starts_with(request.directory); ++entry) {
    if (!in_directory(entry->first, request.directory)) continue;
    bytes += entry->first.size() + entry->second.size();
    if (bytes > limits_.list_bytes) {
      answer(call, Outcome::refused,
             fmt::format(
                 "list: the entries below \"{}\" have more than {} bytes, the maximum of an answer; get them one by "
                 "one",
                 request.directory, limits_.list_bytes));
      return;
    }
    out.entries.emplace_back(*entry);
  }
  answers_.push_back(std::move(out));
}

void KeyTable::remove(uint64_t call, const request::Remove& request) {
  if (!check_key(call, "remove", request.key)) return;
  int64_t removed = 0;
  for (auto entry = values_.lower_bound(request.key);
       entry != values_.end() && entry->first.starts_with(request.key);) {
    if (entry->first == request.key || in_directory(entry->first, request.key)) {
      bytes_ -= entry->first.size() + entry->second.size();
      entry = values_.erase(entry);
      ++removed;
    } else {
      ++entry;
    }
  }
  answers_.push_back({.call = call, .number = removed});
}

void KeyTable::expire(Time now) {
  for (auto waiter = waiting_.begin(); waiter != waiting_.end();) {
    if (waiter->second.deadline <= now) {
      answer(waiter->first, Outcome::timeout,
             fmt::format("get: no process has set the key \"{}\" within {}", waiter->second.key,
                         describe(waiter->second.timeout)));
      waiter = waiting_.erase(waiter);
    } else {
      ++waiter;
    }
  }
}

std::vector<uint64_t> KeyTable::take_waiting() {
  std::vector<uint64_t> calls;
  for (const auto& [call, waiter] : waiting_) calls.push_back(call);
  waiting_.clear();
  return calls;
}

KeyTable::Time KeyTable::next_deadline() const {
  Time next = Time::max();
  for (const auto& [call, waiter] : waiting_) next = std::min(next, waiter.deadline);
  return next;
}

}  // namespace lockstep
