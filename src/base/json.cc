#include "base/json.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "base/check.h"
#include "base/printable.h"

namespace lockstep {
namespace {

// Parses a text without building a value, and throws where it exceeds a limit. The parser keeps its levels on the heap,
// so deep nesting does not overflow the stack.
class JsonChecker final : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonChecker(std::string_view text, std::string_view what, const JsonLimits& limits)
      : text_(text), what_(what), limits_(limits) {}

  bool null() override { return count(); }
  bool boolean(bool) override { return count(); }
  bool number_integer(number_integer_t) override { return count(); }
  bool number_unsigned(number_unsigned_t) override { return count(); }
  bool number_float(number_float_t, const string_t&) override { return count(); }
  bool string(string_t&) override { return count(); }
  bool binary(binary_t&) override { return count(); }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Level& level = levels_.back();
    if (++level.keys > limits_.keys) fail(fmt::format("an object has more than {} keys", limits_.keys));
    if (name.size() > limits_.key_bytes)
      fail(fmt::format("a key has {} bytes; the limit is {}", name.size(), limits_.key_bytes));
    if (!limits_.repeated_keys && !level.names.insert(name).second)
      throw_error("{}: the key \"{}\" occurs twice in one object; remove one", what_, printable(name));
    return count();
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    const std::string_view before = text_.substr(0, position > 0 ? position - 1 : 0);
    const int64_t line = 1 + std::ranges::count(before, '\n');
    throw JsonSyntaxError(
        fmt::format("{}: not JSON: {}", what_, json_error_text(static_cast<const nlohmann::json::exception&>(error))),
        line);
  }

 private:
  struct Level {
    size_t keys = 0;
    std::set<std::string> names = {};
  };

  [[noreturn]] void fail(const std::string& fact) const {
    throw_error("{}: {}; the text is damaged, or was not written for lockstep", what_, fact);
  }

  bool count() {
    if (++values_ > limits_.values) fail(fmt::format("it has more than {} values", limits_.values));
    return true;
  }
  bool open() {
    if (static_cast<int>(levels_.size()) >= limits_.depth)
      fail(fmt::format("more than {} objects or lists are nested", limits_.depth));
    levels_.emplace_back();
    return count();
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  const std::string_view text_, what_;
  const JsonLimits& limits_;
  std::vector<Level> levels_;  // open objects and arrays
  size_t values_ = 0;
};

template <class Json>
std::string dumped(const Json& value) {
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), 100);
}

}  // namespace

template <class Json>
Json parse_json(std::string_view text, std::string_view what, const JsonLimits& limits) {
  if (text.size() > limits.bytes)
    throw_error("{}: the JSON text has {} bytes; the limit is {}", what, text.size(), limits.bytes);
  JsonChecker checker(text, what, limits);
  nlohmann::json::sax_parse(text.begin(), text.end(), &checker);
  return Json::parse(text.begin(), text.end());
}

template nlohmann::json parse_json<nlohmann::json>(std::string_view, std::string_view, const JsonLimits&);
template nlohmann::ordered_json parse_json<nlohmann::ordered_json>(std::string_view, std::string_view,
                                                                   const JsonLimits&);

std::string json_error_text(const nlohmann::json::exception& error) {
  std::string_view text = error.what();
  if (const size_t end = text.find("] "); text.starts_with("[json.exception") && end != text.npos)
    text.remove_prefix(end + 2);
  return printable(text);
}

std::string printable_json(const nlohmann::json& value) { return dumped(value); }
std::string printable_json(const nlohmann::ordered_json& value) { return dumped(value); }

template <class Json>
int64_t integer_in(const Json& value, std::string_view what, int64_t low, int64_t high) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() ||
                     value.template get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) &&
                    value.template get<int64_t>() >= low && value.template get<int64_t>() <= high;
  if (!fits) throw_error("{} is {}; it must be a whole number from {} to {}", what, printable_json(value), low, high);
  return value.template get<int64_t>();
}

template int64_t integer_in<nlohmann::json>(const nlohmann::json&, std::string_view, int64_t, int64_t);
template int64_t integer_in<nlohmann::ordered_json>(const nlohmann::ordered_json&, std::string_view, int64_t, int64_t);

}  // namespace lockstep
