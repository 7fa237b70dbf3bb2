#include "jobs/json_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "base/check.h"
#include "base/printable.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Reads a text from left to right.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  char next() { return at_end() ? '\0' : text_[at_++]; }
  bool skip(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  void skip_spaces() {
    while (peek() == ' ') ++at_;
  }
  // The text up to one of these characters, which is not consumed.
  std::string until(std::string_view ends) {
    const size_t end = std::min(text_.find_first_of(ends, at_), text_.size());
    std::string out(text_.substr(at_, end - at_));
    at_ = end;
    return out;
  }
  void expect(char c) {
    if (peek() != c) fail(fmt::format("expected \"{}\"", c));
    ++at_;
  }
  [[noreturn]] void fail(std::string_view reason) const {
    throw_error("jsonpath: {} at character {} of \"{}\"; write a template such as {{.items[*].metadata.name}}", reason,
                at_ + 1, printable(text_));
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

// A text in quotes of either kind, with backslash escapes.
std::string quoted(Cursor& in) {
  const char quote = in.next();
  std::string out;
  while (in.peek() != quote) {
    if (in.at_end()) in.fail("a quote is not closed");
    const char c = in.next();
    if (c != '\\') {
      out += c;
      continue;
    }
    const char escaped = in.next();
    out += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped;
  }
  in.next();
  return out;
}

bool is_quote(char c) { return c == '"' || c == '\''; }

std::optional<int64_t> number_of(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// Whether a comparison holds: of numbers by value, of others as text.
bool compares(const Json& left, std::string_view op, const Json& right) {
  int order = 0;
  if (left.is_number() && right.is_number()) {
    const double a = left.get<double>(), b = right.get<double>();
    order = a < b ? -1 : a > b ? 1 : 0;
  } else {
    order = json_text(left).compare(json_text(right));
  }
  if (op == "==") return order == 0;
  if (op == "!=") return order != 0;
  if (op == "<") return order < 0;
  if (op == ">") return order > 0;
  return op == "<=" ? order <= 0 : order >= 0;
}

}  // namespace

// One step of a path: a field, all elements, some elements, or the elements for which a comparison holds.
struct JsonPath::Step {
  enum class Kind { field, all, slice, filter } kind = Kind::field;
  std::string key = {};
  int64_t from = 0, to = std::numeric_limits<int64_t>::max();  // slice; negative: from the end
  JsonPath left = {};                                          // filter: relative to the element
  std::string op = {};                                         // empty: the field exists
  Json right = {};

  void apply(const Json& value, std::vector<Json>& out) const {
    if (kind == Kind::field) {
      if (value.is_object() && value.contains(key)) out.push_back(value.at(key));
      return;
    }
    if (kind == Kind::all && value.is_object())
      for (const auto& [name, each] : value.items()) out.push_back(each);
    if (!value.is_array()) return;
    const auto size = static_cast<int64_t>(value.size());
    const auto bounded = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
    for (int64_t i = kind == Kind::slice ? bounded(from) : 0; i < (kind == Kind::slice ? bounded(to) : size); ++i)
      if (const Json& each = value[static_cast<size_t>(i)]; kind != Kind::filter || holds(each)) out.push_back(each);
  }

  bool holds(const Json& element) const {
    const std::vector<Json> found = left.find(element);
    return op.empty() ? !found.empty()
                      : std::ranges::any_of(found, [&](const Json& each) { return compares(each, op, right); });
  }
};

namespace {

// What a filter compares with: a quoted text, a number, true or false.
Json filter_value(Cursor& in) {
  if (is_quote(in.peek())) return quoted(in);
  const std::string word = in.until(" )");
  const Json value = Json::parse(word, nullptr, false);
  if (value.is_discarded() || value.is_structured()) in.fail("expected a quoted text or a number");
  return value;
}

// The part of a path before the comparison of a filter, without spaces. Quoted keys may contain anything.
std::string filter_path(Cursor& in) {
  std::string out;
  for (;;) {
    out += in.until("=!<> )'\"");
    if (!is_quote(in.peek())) return out;
    const char quote = in.next();
    out += quote + in.until(std::string_view(&quote, 1));
    in.expect(quote);
    out += quote;
  }
}

}  // namespace

JsonPath JsonPath::parse(std::string_view text) {
  Cursor in(text);
  JsonPath out;
  const auto add = [&](Step step) { out.steps_.push_back(std::make_shared<const Step>(std::move(step))); };
  if (in.peek() == '$' || in.peek() == '@') in.next();
  while (!in.at_end()) {
    if (in.skip(".")) {
      if (in.at_end() && out.steps_.empty()) return out;  // "." is the value itself
      if (in.peek() == '[') continue;
      if (in.peek() == '.') in.fail("\"..\" is not supported");
      std::string key = in.until(".[");
      // A dot in a name is escaped: .metadata.labels.app\.kubernetes\.io/name
      while (key.ends_with('\\') && in.skip(".")) {
        key.back() = '.';
        key += in.until(".[");
      }
      if (key.empty()) in.fail("a name is missing");
      add(key == "*" ? Step{.kind = Step::Kind::all} : Step{.kind = Step::Kind::field, .key = key});
    } else if (in.skip("[?(")) {
      in.skip_spaces();
      if (in.peek() != '@') in.fail("expected \"@\"");
      Step step{.kind = Step::Kind::filter, .left = parse(filter_path(in))};
      in.skip_spaces();
      for (const char* op : {"==", "!=", "<=", ">=", "<", ">"})
        if (step.op.empty() && in.skip(op)) step.op = op;
      if (!step.op.empty()) {
        in.skip_spaces();
        step.right = filter_value(in);
        in.skip_spaces();
      }
      in.expect(')');
      in.expect(']');
      add(std::move(step));
    } else if (in.skip("[")) {
      if (is_quote(in.peek())) {
        add({.kind = Step::Kind::field, .key = quoted(in)});
      } else {
        const std::string inside = in.until("]");
        const size_t colon = inside.find(':');
        if (inside == "*") {
          add({.kind = Step::Kind::all});
        } else if (colon != inside.npos) {
          const std::string first = inside.substr(0, colon), last = inside.substr(colon + 1);
          const auto from = first.empty() ? 0 : number_of(first);
          const auto to = last.empty() ? std::numeric_limits<int64_t>::max() : number_of(last);
          if (!from || !to) in.fail(fmt::format("\"{}\" is not a range of elements", inside));
          add({.kind = Step::Kind::slice, .from = *from, .to = *to});
        } else {
          const auto at = number_of(inside);
          if (!at) in.fail(fmt::format("\"{}\" is not the number of an element", inside));
          add({.kind = Step::Kind::slice,
               .from = *at,
               .to = *at == -1 ? std::numeric_limits<int64_t>::max() : *at + 1});
        }
      }
      in.expect(']');
    } else if (out.steps_.empty()) {
      add({.kind = Step::Kind::field, .key = in.until(".[")});  // kubectl accepts a path without the first dot
    } else {
      in.fail("expected \".\" or \"[\"");
    }
  }
  return out;
}

std::vector<Json> JsonPath::find(const Json& value) const {
  std::vector<Json> found = {value};
  for (const auto& step : steps_) {
    std::vector<Json> next;
    for (const Json& each : found) step->apply(each, next);
    found = std::move(next);
  }
  return found;
}

std::string json_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

namespace {

std::string joined(const std::vector<Json>& values, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < values.size(); ++i) out += (i == 0 ? "" : std::string(separator)) + json_text(values[i]);
  return out;
}

// The text between braces, up to the closing one. Braces in quotes do not count.
std::string inside_braces(Cursor& in) {
  in.expect('{');
  std::string out;
  for (char quote = '\0';;) {
    if (in.at_end()) in.fail("a { is not closed");
    const char c = in.next();
    if (quote == '\0' && c == '}') return out;
    if (quote != '\0' && c == '\\') {
      out += c;
      out += in.next();
      continue;
    }
    if (c == quote)
      quote = '\0';
    else if (quote == '\0' && is_quote(c))
      quote = c;
    out += c;
  }
}

// Formats up to the end of the template, or of the range if `inside` is set. Without values only the syntax is checked.
std::string format_part(Cursor& in, const Json& value, bool inside) {
  std::string out;
  while (!in.at_end()) {
    out += in.until("{");
    if (in.at_end()) break;
    const std::string part = inside_braces(in);
    Cursor words(part);
    words.skip_spaces();
    if (is_quote(words.peek())) {
      out += quoted(words);
    } else if (words.skip("range ")) {
      words.skip_spaces();
      const std::vector<Json> values = JsonPath::parse(words.until("")).find(value);
      const Cursor begin = in;
      if (values.empty()) format_part(in, {}, true);
      for (const Json& each : values) {
        in = begin;
        out += format_part(in, each, true);
      }
    } else if (part == "end") {
      if (!inside) in.fail("{end} without {range}");
      return out;
    } else {
      out += joined(JsonPath::parse(part).find(value), " ");
    }
  }
  if (inside) in.fail("{end} is missing");
  return out;
}

}  // namespace

std::string format_json_path(std::string_view text, const Json& value) {
  Cursor in(text);
  return format_part(in, value, false);
}

std::vector<CustomColumn> parse_custom_columns(std::string_view text) {
  std::vector<CustomColumn> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view column = text.substr(at, comma - at);
    at = comma + 1;
    const size_t colon = column.find(':');
    if (colon == column.npos || colon == 0 || colon + 1 == column.size())
      throw_error("custom-columns: \"{}\" is not HEADER:PATH; write columns such as NAME:.metadata.name",
                  printable(column));
    std::string_view path = column.substr(colon + 1);
    if (path.starts_with('{') && path.ends_with('}')) path = path.substr(1, path.size() - 2);
    out.push_back({std::string(column.substr(0, colon)), JsonPath::parse(path)});
  }
  return out;
}

std::vector<std::string> custom_row(const std::vector<CustomColumn>& columns, const Json& object) {
  std::vector<std::string> out;
  for (const CustomColumn& column : columns) {
    const std::vector<Json> values = column.path.find(object);
    out.push_back(values.empty() ? "<none>" : joined(values, ","));
  }
  return out;
}

}  // namespace lockstep
