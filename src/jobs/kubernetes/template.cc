#include "jobs/kubernetes/template.h"

#include <algorithm>
#include <compare>
#include <utility>

#include "base/check.h"
#include "base/names.h"
#include "jobs/kubernetes/template_tree.h"

namespace lockstep {
namespace detail {

const std::vector<std::string>& template_filters() {
  static const std::vector<std::string> names = {"default", "indent", "tojson"};
  return names;
}

namespace {

using Json = nlohmann::ordered_json;
using Expression = TemplateExpression;

constexpr int kMaxIncludeDepth = 8;
constexpr int64_t kMaxNodes = 1'000'000;            // rendered: texts, tags and loop iterations
constexpr size_t kMaxTextBytes = size_t{16} << 20;  // of the result, and of the result of each filter

// The remaining work of a rendering, shared with its includes.
struct Budget {
  int64_t nodes = kMaxNodes;
};

// The value of an expression. If a name is unknown, `missing` is the error message; it is thrown only if the value is
// used, so that `is defined` and default() work.
struct TemplateValue {
  Json json;
  std::string missing = {};
};

const char* type_of(const Json& json) {
  if (json.is_string()) return "a string";
  if (json.is_boolean()) return "a boolean";
  if (json.is_number()) return "a number";
  if (json.is_array()) return "a list";
  return json.is_object() ? "an object" : "null";
}

bool is_true(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number()) return json.get<double>() != 0;
  if (json.is_string()) return !json.get_ref<const std::string&>().empty();
  return !json.empty();
}

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [key, value] : object.items()) names.push_back(key);
  return names;
}

// As in Jinja: the text after an include continues its last line.
std::string without_last_line_end(const std::string& text) {
  return text.ends_with('\n') ? text.substr(0, text.size() - 1) : text;
}

class Renderer {
 public:
  Renderer(const std::string& name, const Json& variables, const TemplateFinder& find, int depth, Budget& budget)
      : name_(name), variables_(variables), find_(find), depth_(depth), budget_(budget) {}

  void render(const std::vector<TemplateNode>& nodes, std::string& out) {
    for (const TemplateNode& node : nodes) render(node, out);
  }

 private:
  [[noreturn]] void fail(int line, const std::string& message) const { throw_error("{}:{}: {}", name_, line, message); }

  void spend(int line, size_t bytes) {
    if (--budget_.nodes < 0)
      fail(line, fmt::format("more than {} texts, tags and loop iterations; shorten the loops", kMaxNodes));
    check_size(line, bytes);
  }
  void check_size(int line, size_t bytes) const {
    if (bytes > kMaxTextBytes) fail(line, fmt::format("the result is longer than {} bytes", kMaxTextBytes));
  }

  void render(const TemplateNode& node, std::string& out) {
    spend(node.line, out.size());
    switch (node.kind) {
      case TemplateNode::Kind::text:
        out += node.text;
        return;
      case TemplateNode::Kind::output:
        out += text_of(node.line, value(node.expression));
        return;
      case TemplateNode::Kind::condition:
        return render(is_true(value(node.expression)) ? node.body : node.other, out);
      case TemplateNode::Kind::loop:
        return loop(node, out);
      case TemplateNode::Kind::filter: {
        std::string inner;
        render(node.body, inner);
        out += text_of(node.line, filter(node.expression, {Json(std::move(inner))}).json);
        return;
      }
      case TemplateNode::Kind::include:
        return include(node, out);
    }
  }

  std::string text_of(int line, const Json& json) const {
    if (json.is_string()) return json.get<std::string>();
    if (json.is_boolean() || json.is_number()) return json.dump();
    fail(line, fmt::format("{} cannot be printed; {}", type_of(json),
                           json.is_null() ? "set a value, or use default(...)" : "use the filter tojson"));
  }

  void loop(const TemplateNode& node, std::string& out) {
    const Json list = value(node.expression);
    if (!list.is_array()) fail(node.line, fmt::format("for: expected a list, found {}", type_of(list)));
    const size_t before = locals_.size();
    for (size_t i = 0; i < list.size(); ++i) {
      spend(node.line, out.size());
      locals_.emplace_back(node.text, list[i]);
      locals_.emplace_back("loop",
                           Json{{"index", i + 1}, {"index0", i}, {"first", i == 0}, {"last", i + 1 == list.size()}});
      render(node.body, out);
      locals_.resize(before);
    }
  }

  void include(const TemplateNode& node, std::string& out) {
    if (depth_ == kMaxIncludeDepth)
      fail(node.line, fmt::format("include: templates are nested more than {} levels deep", kMaxIncludeDepth));
    const std::optional<std::string> text = find_ ? find_(node.text) : std::nullopt;
    if (!text) fail(node.line, fmt::format("include: unknown template \"{}\"", node.text));
    Renderer inner(node.text, variables_, find_, depth_ + 1, budget_);
    inner.locals_ = locals_;
    inner.render(parse_template(node.text, without_last_line_end(*text)), out);
  }

  // The value of an expression. Throws if it is missing.
  Json value(const Expression& expression) const {
    TemplateValue found = evaluate(expression);
    if (!found.missing.empty()) fail(expression.line, found.missing);
    return std::move(found.json);
  }

  TemplateValue evaluate(const Expression& expression) const {
    const auto part = [&](size_t i) { return value(expression.parts[i]); };
    switch (expression.kind) {
      case Expression::Kind::literal:
        return {expression.value};
      case Expression::Kind::name:
        return variable(expression.text);
      case Expression::Kind::member:
        return member(expression.line, part(0), expression.text);
      case Expression::Kind::element:
        return element(expression.line, part(0), part(1));
      case Expression::Kind::filter:
        return filter(expression, evaluate(expression.parts[0]));
      case Expression::Kind::defined:
        return {evaluate(expression.parts[0]).missing.empty()};
      case Expression::Kind::negation:
        return {!is_true(part(0))};
      case Expression::Kind::both:
      case Expression::Kind::either: {
        Json left = part(0);
        const bool decided = is_true(left) == (expression.kind == Expression::Kind::either);
        return {decided ? std::move(left) : part(1)};
      }
      case Expression::Kind::comparison:
        return {compare(expression, part(0), part(1))};
    }
    return {};
  }

  TemplateValue variable(const std::string& name) const {
    for (auto at = locals_.rbegin(); at != locals_.rend(); ++at)
      if (at->first == name) return {at->second};
    if (const auto at = variables_.find(name); at != variables_.end()) return {*at};
    std::vector<std::string> names = keys_of(variables_);
    for (const auto& [local, value] : locals_) names.push_back(local);
    return {{}, fmt::format("unknown variable \"{}\";{}{}", name, suggestion(name, names), list_of(names))};
  }

  static std::string list_of(std::vector<std::string> names) {
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names.empty() ? " none are defined" : fmt::format(" defined: {}", fmt::join(names, ", "));
  }

  TemplateValue member(int line, const Json& object, const std::string& name) const {
    if (!object.is_object())
      fail(line, fmt::format("cannot read member \"{}\" of {}; only objects have members", name, type_of(object)));
    if (const auto at = object.find(name); at != object.end()) return {*at};
    const std::vector<std::string> names = keys_of(object);
    return {{}, fmt::format("unknown member \"{}\";{}{}", name, suggestion(name, names), list_of(names))};
  }

  TemplateValue element(int line, const Json& container, const Json& index) const {
    if (container.is_object() && index.is_string()) return member(line, container, index.get<std::string>());
    if (!container.is_array() || !index.is_number_integer())
      fail(line, fmt::format("cannot index {1} with {0}; use a number for a list, a string for an object",
                             type_of(index), type_of(container)));
    const int64_t i = index.get<int64_t>(), size = static_cast<int64_t>(container.size());
    if (i < -size || i >= size) return {{}, fmt::format("index {} is out of range for a list of {}", i, size)};
    return {container[static_cast<size_t>(i < 0 ? i + size : i)]};
  }

  bool compare(const Expression& expression, const Json& a, const Json& b) const {
    const std::string& sign = expression.text;
    if (sign == "==" || sign == "!=") return (a == b) == (sign == "==");
    if (!(a.is_number() && b.is_number()) && !(a.is_string() && b.is_string()))
      fail(expression.line,
           fmt::format("cannot compare {1} {0} {2}; use two numbers or two strings", sign, type_of(a), type_of(b)));
    const bool less = a < b, greater = b < a;
    if (sign == "<") return less;
    if (sign == ">") return greater;
    return sign == "<=" ? !greater : !less;
  }

  TemplateValue filter(const Expression& expression, TemplateValue in) const {
    const std::string& name = expression.text;
    const size_t given = expression.parts.size() - 1;
    const auto check_count = [&](size_t least, size_t most) {
      if (given < least || given > most)
        fail(expression.line,
             fmt::format("{} takes {} argument{}, not {}", name,
                         least == most ? fmt::format("{}", most) : fmt::format("{} or {}", least, most),
                         most == 1 ? "" : "s", given));
    };
    if (name == "default") {
      check_count(1, 1);
      return in.missing.empty() ? std::move(in) : TemplateValue{value(expression.parts[1])};
    }
    if (!in.missing.empty()) fail(expression.parts[0].line, in.missing);
    if (name == "tojson") {
      check_count(0, 0);
      std::string text = in.json.dump(-1, ' ', false, Json::error_handler_t::replace);
      check_size(expression.line, text.size());
      return {std::move(text)};
    }
    check_count(0, 2);
    const Json width = given > 0 ? value(expression.parts[1]) : Json(4);
    if (!in.json.is_string() || !width.is_number_integer() || width < 0 || width > 1000)
      fail(expression.line, fmt::format("indent: expected a string and a width from 0 to 1000, found {} and {}",
                                        type_of(in.json), width.dump()));
    const bool first = given == 2 && is_true(value(expression.parts[2]));
    const auto& text = in.json.get_ref<const std::string&>();
    const auto lines = static_cast<size_t>(std::ranges::count(text, '\n')) + 1;
    check_size(expression.line, text.size() + lines * width.get<size_t>());
    return {indented(text, width.get<size_t>(), first)};
  }

  // As in Jinja: indents all lines except the first (unless `first`) and except empty lines.
  static std::string indented(const std::string& text, size_t width, bool first) {
    const std::string spaces(width, ' ');
    std::string out;
    for (size_t at = 0; at <= text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      if (end > at && (at > 0 || first)) out += spaces;
      out.append(text, at, end - at);
      if (end < text.size()) out += '\n';
      at = end + 1;
    }
    return out;
  }

  const std::string& name_;
  const Json& variables_;
  const TemplateFinder& find_;
  const int depth_;
  Budget& budget_;
  std::vector<std::pair<std::string, Json>> locals_;
};

}  // namespace
}  // namespace detail

std::string render_template(const std::string& name, const std::string& text, const nlohmann::ordered_json& variables,
                            const TemplateFinder& find) {
  LOCKSTEP_CHECK(variables.is_object());
  std::string out;
  detail::Budget budget;
  detail::Renderer(name, variables, find, 0, budget)
      .render(detail::parse_template(name, detail::without_last_line_end(text)), out);
  return out;
}

}  // namespace lockstep
