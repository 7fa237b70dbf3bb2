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
using Piece = TemplatePiece;

constexpr int kDeepestInclude = 8;
constexpr int64_t kMostPieces = 1'000'000;      // texts, tags and rounds of loops
constexpr size_t kMostText = size_t{16} << 20;  // of the result, and of what a filter makes

// What a whole rendering has left to do, includes counted in.
struct Budget {
  int64_t pieces = kMostPieces;
};

// A value, or the complaint that there is none, which is made only when it is used.
struct Value {
  Json json;
  std::string missing = {};
};

const char* type_of(const Json& json) {
  if (json.is_string()) return "a text";
  if (json.is_boolean()) return "true or false";
  if (json.is_number()) return "a number";
  if (json.is_array()) return "a list";
  return json.is_object() ? "an object" : "nothing (null)";
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

// As Jinja does: what stands behind an include begins on its last line.
std::string without_last_line_end(const std::string& text) {
  return text.ends_with('\n') ? text.substr(0, text.size() - 1) : text;
}

class Renderer {
 public:
  Renderer(const std::string& name, const Json& variables, const TemplateFinder& find, int depth, Budget& budget)
      : name_(name), variables_(variables), find_(find), depth_(depth), budget_(budget) {}

  void render(const std::vector<Piece>& pieces, std::string& out) {
    for (const Piece& piece : pieces) render(piece, out);
  }

 private:
  [[noreturn]] void fail(int line, const std::string& message) const { throw_error("{}:{}: {}", name_, line, message); }

  void spend(int line, size_t bytes) {
    if (--budget_.pieces < 0)
      fail(line, fmt::format("more than {} pieces are rendered; are loops too long?", kMostPieces));
    check_size(line, bytes);
  }
  void check_size(int line, size_t bytes) const {
    if (bytes > kMostText) fail(line, fmt::format("the text grows beyond {} bytes", kMostText));
  }

  void render(const Piece& piece, std::string& out) {
    spend(piece.line, out.size());
    switch (piece.kind) {
      case Piece::Kind::text:
        out += piece.text;
        return;
      case Piece::Kind::output:
        out += text_of(piece.line, value(piece.expression));
        return;
      case Piece::Kind::condition:
        return render(is_true(value(piece.expression)) ? piece.body : piece.other, out);
      case Piece::Kind::loop:
        return loop(piece, out);
      case Piece::Kind::filter: {
        std::string inner;
        render(piece.body, inner);
        out += text_of(piece.line, filter(piece.expression, {Json(std::move(inner))}).json);
        return;
      }
      case Piece::Kind::include:
        return include(piece, out);
    }
  }

  std::string text_of(int line, const Json& json) const {
    if (json.is_string()) return json.get<std::string>();
    if (json.is_boolean() || json.is_number()) return json.dump();
    fail(line, fmt::format("{} cannot be written as it is; {}", type_of(json),
                           json.is_null() ? "give it a value, or use default(...)" : "use the filter tojson"));
  }

  void loop(const Piece& piece, std::string& out) {
    const Json list = value(piece.expression);
    if (!list.is_array()) fail(piece.line, fmt::format("for: a list is needed, and this is {}", type_of(list)));
    const size_t before = locals_.size();
    for (size_t i = 0; i < list.size(); ++i) {
      spend(piece.line, out.size());
      locals_.emplace_back(piece.text, list[i]);
      locals_.emplace_back("loop",
                           Json{{"index", i + 1}, {"index0", i}, {"first", i == 0}, {"last", i + 1 == list.size()}});
      render(piece.body, out);
      locals_.resize(before);
    }
  }

  void include(const Piece& piece, std::string& out) {
    if (depth_ == kDeepestInclude)
      fail(piece.line, fmt::format("include: more than {} templates within each other", kDeepestInclude));
    const std::optional<std::string> text = find_ ? find_(piece.text) : std::nullopt;
    if (!text) fail(piece.line, fmt::format("include: there is no template \"{}\"", piece.text));
    Renderer inner(piece.text, variables_, find_, depth_ + 1, budget_);
    inner.locals_ = locals_;
    inner.render(parse_template(piece.text, without_last_line_end(*text)), out);
  }

  // What an expression must have a value for.
  Json value(const Expression& expression) const {
    Value found = evaluate(expression);
    if (!found.missing.empty()) fail(expression.line, found.missing);
    return std::move(found.json);
  }

  Value evaluate(const Expression& expression) const {
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

  Value variable(const std::string& name) const {
    for (auto at = locals_.rbegin(); at != locals_.rend(); ++at)
      if (at->first == name) return {at->second};
    if (const auto at = variables_.find(name); at != variables_.end()) return {*at};
    std::vector<std::string> names = keys_of(variables_);
    for (const auto& [local, value] : locals_) names.push_back(local);
    return {{}, fmt::format("there is no variable \"{}\";{}{}", name, suggestion(name, names), those(names))};
  }

  static std::string those(std::vector<std::string> names) {
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names.empty() ? " there are none" : fmt::format(" there are {}", fmt::join(names, ", "));
  }

  Value member(int line, const Json& object, const std::string& name) const {
    if (!object.is_object()) fail(line, fmt::format("\".{}\" of {}; only objects have members", name, type_of(object)));
    if (const auto at = object.find(name); at != object.end()) return {*at};
    const std::vector<std::string> names = keys_of(object);
    return {{}, fmt::format("there is no member \"{}\";{}{}", name, suggestion(name, names), those(names))};
  }

  Value element(int line, const Json& whole, const Json& which) const {
    if (whole.is_object() && which.is_string()) return member(line, whole, which.get<std::string>());
    if (!whole.is_array() || !which.is_number_integer())
      fail(line, fmt::format("[{}] of {}; a list has numbers, an object names", type_of(which), type_of(whole)));
    const int64_t i = which.get<int64_t>(), size = static_cast<int64_t>(whole.size());
    if (i < -size || i >= size) return {{}, fmt::format("there is no [{}] in a list of {}", i, size)};
    return {whole[static_cast<size_t>(i < 0 ? i + size : i)]};
  }

  bool compare(const Expression& expression, const Json& a, const Json& b) const {
    const std::string& sign = expression.text;
    if (sign == "==" || sign == "!=") return (a == b) == (sign == "==");
    if (!(a.is_number() && b.is_number()) && !(a.is_string() && b.is_string()))
      fail(expression.line,
           fmt::format("{} of {} and {}; two numbers or two texts are needed", sign, type_of(a), type_of(b)));
    const bool less = a < b, greater = b < a;
    if (sign == "<") return less;
    if (sign == ">") return greater;
    return sign == "<=" ? !greater : !less;
  }

  Value filter(const Expression& expression, Value in) const {
    const std::string& name = expression.text;
    const size_t given = expression.parts.size() - 1;
    const auto want = [&](size_t least, size_t most) {
      if (given < least || given > most)
        fail(expression.line,
             fmt::format("{} takes {} argument{}, not {}", name,
                         least == most ? fmt::format("{}", most) : fmt::format("{} or {}", least, most),
                         most == 1 ? "" : "s", given));
    };
    if (name == "default") {
      want(1, 1);
      return in.missing.empty() ? std::move(in) : Value{value(expression.parts[1])};
    }
    if (!in.missing.empty()) fail(expression.parts[0].line, in.missing);
    if (name == "tojson") {
      want(0, 0);
      std::string text = in.json.dump(-1, ' ', false, Json::error_handler_t::replace);
      check_size(expression.line, text.size());
      return {std::move(text)};
    }
    want(0, 2);
    const Json width = given > 0 ? value(expression.parts[1]) : Json(4);
    if (!in.json.is_string() || !width.is_number_integer() || width < 0 || width > 1000)
      fail(expression.line, fmt::format("indent: a text and a width from 0 to 1000 are needed, not {} and {}",
                                        type_of(in.json), width.dump()));
    const bool first = given == 2 && is_true(value(expression.parts[2]));
    const auto& text = in.json.get_ref<const std::string&>();
    const auto lines = static_cast<size_t>(std::ranges::count(text, '\n')) + 1;
    check_size(expression.line, text.size() + lines * width.get<size_t>());
    return {indented(text, width.get<size_t>(), first)};
  }

  // As Jinja does: all lines but the first one, or that too; empty ones stay empty.
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
