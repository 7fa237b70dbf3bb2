#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/names.h"
#include "base/printable.h"
#include "jobs/kubernetes/template_tree.h"

namespace lockstep::detail {
namespace {

using Expression = TemplateExpression;

constexpr int kMaxDepth = 64;    // of nested parentheses, and of nested blocks
constexpr int kMaxHeight = 256;  // of an expression: chained operators and filters

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

struct Token {
  enum class Kind { name, number, text, sign, close };
  Kind kind = Kind::close;
  std::string text = {};
};

class Parser {
 public:
  Parser(const std::string& name, std::string_view text) : name_(name), text_(text) {}

  std::vector<TemplateNode> operator()() {
    std::vector<TemplateNode> out = nodes({});
    return out;
  }

 private:
  [[noreturn]] void fail(int line, const std::string& message) const { throw_error("{}:{}: {}", name_, line, message); }

  // Text and tags.

  std::vector<TemplateNode> nodes(const std::vector<std::string>& until) {
    enter_block(line_);
    std::vector<TemplateNode> out;
    for (;;) {
      const size_t tag = next_tag();
      std::string plain(text_.substr(at_, tag - at_));
      const bool trimmed = tag < text_.size() && text_.substr(tag + 2).starts_with('-');
      move_to(tag);
      if (trim_) plain.erase(0, std::min(plain.find_first_not_of(" \t\r\n"), plain.size()));
      trim_ = false;
      if (trimmed) plain.erase(plain.find_last_not_of(" \t\r\n") + 1);
      if (!plain.empty()) out.push_back({.kind = TemplateNode::Kind::text, .line = line_, .text = std::move(plain)});
      if (tag == text_.size()) {
        if (!until.empty())
          fail(block_line_, fmt::format("{{% {} %}} is not closed by {{% {} %}}", block_, until.back()));
        break;
      }
      const char kind = text_[tag + 1];
      move_to(tag + (trimmed ? 3 : 2));
      tag_line_ = line_;
      if (kind == '#') {
        comment();
      } else if (kind == '{') {
        closing_ = "}}";
        advance();
        out.push_back({.kind = TemplateNode::Kind::output, .line = tag_line_, .expression = expression()});
        close_tag();
      } else if (!statement(out, until)) {
        break;
      }
    }
    --blocks_;
    return out;
  }

  size_t next_tag() const {
    for (size_t at = at_; (at = text_.find('{', at)) != text_.npos && at + 1 < text_.size(); ++at)
      if (text_[at + 1] == '{' || text_[at + 1] == '%' || text_[at + 1] == '#') return at;
    return text_.size();
  }

  void move_to(size_t at) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    at_ = at;
  }

  void comment() {
    const size_t end = text_.find("#}", at_);
    if (end == text_.npos) fail(tag_line_, "the comment {# is not closed by #}");
    trim_ = end > at_ && text_[end - 1] == '-';
    move_to(end + 2);
  }

  // Parses a {% %} tag. Returns false if it is one of `until`, and stores that word in word_.
  bool statement(std::vector<TemplateNode>& out, const std::vector<std::string>& until) {
    closing_ = "%}";
    advance();
    const std::string word = token_.kind == Token::Kind::name ? token_.text : "";
    const int line = tag_line_;
    if (std::ranges::find(until, word) != until.end()) {
      advance();
      word_ = word;
      return false;
    }
    if (word == "if") {
      advance();
      out.push_back(condition(line));
    } else if (word == "for") {
      advance();
      out.push_back(loop(line));
    } else if (word == "filter") {
      advance();
      Expression nothing{.line = line};
      TemplateNode node{.kind = TemplateNode::Kind::filter, .line = line, .expression = filter(std::move(nothing))};
      close_tag();
      node.body = block("filter", line, {"endfilter"});
      close_tag();
      out.push_back(std::move(node));
    } else if (word == "include") {
      advance();
      if (token_.kind != Token::Kind::text) fail(line, "include: expected the name of a template in quotes");
      out.push_back({.kind = TemplateNode::Kind::include, .line = line, .text = token_.text});
      advance();
      close_tag();
    } else {
      static const std::vector<std::string> words = {"if", "for", "filter", "include"};
      if (!until.empty() && (word.starts_with("end") || word == "else" || word == "elif"))
        fail(line, fmt::format("{{% {} %}} inside the {{% {} %}} of line {}, which is not closed by {{% {} %}}", word,
                               block_, block_line_, until.back()));
      if (word.starts_with("end") || word == "else" || word == "elif")
        fail(line, fmt::format("{{% {} %}} without an open block", word));
      fail(line, fmt::format("unknown tag {{% {} %}};{} known: if, elif, else, for, filter and include",
                             token_.text.empty() ? "%}" : token_.text, suggestion(word, words)));
    }
    return true;
  }

  // Parses the body of a block up to one of the words `until`. The tag of that word is still open.
  std::vector<TemplateNode> block(const std::string& word, int line, const std::vector<std::string>& until) {
    const std::string outer = std::exchange(block_, word);
    const int outer_line = std::exchange(block_line_, line);
    std::vector<TemplateNode> out = nodes(until);
    block_ = outer;
    block_line_ = outer_line;
    return out;
  }

  void enter_block(int line) {
    if (++blocks_ > kMaxDepth) fail(line, fmt::format("blocks are nested more than {} levels deep", kMaxDepth));
  }

  // Parses from after `if` or `elif` to the end of endif.
  TemplateNode condition(int line) {
    TemplateNode node{.kind = TemplateNode::Kind::condition, .line = line, .expression = expression()};
    close_tag();
    node.body = block("if", line, {"elif", "else", "endif"});
    if (word_ == "elif") {
      enter_block(line);
      node.other.push_back(condition(tag_line_));
      --blocks_;
    } else if (word_ == "else") {
      close_tag();
      node.other = block("if", line, {"endif"});
      close_tag();
    } else {
      close_tag();
    }
    return node;
  }

  TemplateNode loop(int line) {
    TemplateNode node{.kind = TemplateNode::Kind::loop, .line = line};
    if (token_.kind != Token::Kind::name) fail(line, "for: expected a name, as in {% for each in list %}");
    node.text = token_.text;
    if (node.text == "loop")
      fail(line, "for: the name \"loop\" is reserved for the state of the loop; choose another name");
    advance();
    if (token_.kind != Token::Kind::name || token_.text != "in")
      fail(line, fmt::format("for: expected \"in\" after {}, as in {{% for each in list %}}", node.text));
    advance();
    node.expression = expression();
    close_tag();
    node.body = block("for", line, {"endfor"});
    close_tag();
    return node;
  }

  // Expressions.

  Expression expression() {
    if (++depth_ > kMaxDepth) fail(line_, fmt::format("parentheses are nested more than {} levels deep", kMaxDepth));
    Expression left = conjunction();
    while (is_word("or")) {
      advance();
      left = pair(Expression::Kind::either, "or", std::move(left), conjunction());
    }
    --depth_;
    return left;
  }
  Expression conjunction() {
    Expression left = negation();
    while (is_word("and")) {
      advance();
      left = pair(Expression::Kind::both, "and", std::move(left), negation());
    }
    return left;
  }
  Expression negation() {
    bool negative = false, any = false;
    for (; is_word("not"); advance()) any = true, negative = !negative;
    Expression inner = comparison();
    if (!any) return inner;
    // An even number of `not` still converts the value to true or false.
    Expression once = wrap(Expression::Kind::negation, "not", std::move(inner));
    return negative ? once : wrap(Expression::Kind::negation, "not", std::move(once));
  }
  Expression comparison() {
    static const std::vector<std::string> signs = {"==", "!=", "<", "<=", ">", ">="};
    Expression left = filtered();
    if (is_word("is")) {
      advance();
      const bool negative = is_word("not");
      if (negative) advance();
      if (!is_word("defined"))
        fail(line_, fmt::format("expected \"defined\" or \"not defined\" after \"is\"{}", found()));
      advance();
      left = wrap(Expression::Kind::defined, "is defined", std::move(left));
      return negative ? wrap(Expression::Kind::negation, "not", std::move(left)) : left;
    }
    if (token_.kind != Token::Kind::sign || std::ranges::find(signs, token_.text) == signs.end()) return left;
    const std::string sign = token_.text;
    advance();
    return pair(Expression::Kind::comparison, sign, std::move(left), filtered());
  }
  Expression filtered() {
    Expression value = primary();
    while (is_sign("|")) {
      advance();
      value = filter(std::move(value));
    }
    return value;
  }
  // REQUIRES: the current token is the name of the filter.
  Expression filter(Expression value) {
    if (token_.kind != Token::Kind::name) fail(line_, fmt::format("expected the name of a filter{}", found()));
    const std::vector<std::string>& names = template_filters();
    if (std::ranges::find(names, token_.text) == names.end())
      fail(line_, fmt::format("unknown filter \"{}\";{} known: {}", token_.text, suggestion(token_.text, names),
                              fmt::join(names, ", ")));
    Expression out = wrap(Expression::Kind::filter, token_.text, std::move(value));
    advance();
    if (!is_sign("(")) return out;
    advance();
    while (!is_sign(")")) {
      add_part(out, expression());
      if (is_sign(","))
        advance();
      else if (!is_sign(")"))
        fail(line_, fmt::format("missing \")\" after the arguments of {}{}", out.text, found()));
    }
    advance();
    return out;
  }
  Expression primary() {
    Expression out{.line = line_};
    if (token_.kind == Token::Kind::text) {
      out.value = token_.text;
    } else if (token_.kind == Token::Kind::number) {
      out.value = number(token_.text);
    } else if (token_.kind == Token::Kind::name) {
      named(out);
    } else if (is_sign("(")) {
      advance();
      out = expression();
      if (!is_sign(")")) fail(line_, fmt::format("missing \")\"{}", found()));
    } else {
      fail(line_, fmt::format("expected a value{}", found()));
    }
    advance();
    return parts_of(std::move(out));
  }
  void named(Expression& out) const {
    static const std::vector<std::string> reserved = {"and", "or", "in", "is", "if", "else"};
    if (token_.text == "true" || token_.text == "false") {
      out.value = token_.text == "true";
    } else if (std::ranges::find(reserved, token_.text) != reserved.end()) {
      fail(line_, fmt::format("expected a value{}", found()));
    } else if (token_.text != "none") {
      out.kind = Expression::Kind::name;
      out.text = token_.text;
    }
  }
  // `.member` and `[element]` after a value.
  Expression parts_of(Expression value) {
    for (int parts = 0;; ++parts) {
      if (parts > kMaxDepth) fail(line_, fmt::format("more than {} members and indexes in a row", kMaxDepth));
      if (is_sign(".")) {
        advance();
        if (token_.kind != Token::Kind::name) fail(line_, fmt::format("expected a name after \".\"{}", found()));
        value = wrap(Expression::Kind::member, token_.text, std::move(value));
        advance();
      } else if (is_sign("[")) {
        advance();
        value = pair(Expression::Kind::element, "[]", std::move(value), expression());
        if (!is_sign("]")) fail(line_, fmt::format("missing \"]\"{}", found()));
        advance();
      } else {
        return value;
      }
    }
  }

  nlohmann::ordered_json number(const std::string& text) const {
    int64_t integer = 0;
    const char* const end = text.data() + text.size();
    if (const auto [stop, error] = std::from_chars(text.data(), end, integer); error == std::errc() && stop == end)
      return integer;
    try {
      if (auto value = parse_json<nlohmann::ordered_json>(text, "a number"); value.is_number()) return value;
    } catch (const Error&) {  // not a number
    }
    fail(line_, fmt::format("\"{}\" is not a number", printable(text)));
  }

  Expression wrap(Expression::Kind kind, std::string text, Expression inner) const {
    Expression out{.kind = kind, .line = line_, .text = std::move(text)};
    add_part(out, std::move(inner));
    return out;
  }
  void add_part(Expression& parent, Expression part) const {
    parent.height = std::max(parent.height, part.height + 1);
    if (parent.height > kMaxHeight)
      fail(line_, fmt::format("more than {} chained operators and filters in one expression", kMaxHeight));
    parent.parts.push_back(std::move(part));
  }
  Expression pair(Expression::Kind kind, std::string text, Expression left, Expression right) {
    Expression out = wrap(kind, std::move(text), std::move(left));
    add_part(out, std::move(right));
    if (++operators_ > 10'000) fail(line_, "more than 10000 operators in one template");
    return out;
  }

  // Tokens inside a tag.

  bool is_word(std::string_view word) const { return token_.kind == Token::Kind::name && token_.text == word; }
  bool is_sign(std::string_view sign) const { return token_.kind == Token::Kind::sign && token_.text == sign; }
  std::string found() const {
    return token_.kind == Token::Kind::close ? fmt::format("; found the end of the tag, {}", closing_)
                                             : fmt::format("; found \"{}\"", printable(token_.text));
  }

  void close_tag() {
    if (token_.kind != Token::Kind::close) fail(line_, fmt::format("expected {}{}", closing_, found()));
  }

  void advance() {
    while (at_ < text_.size() && is_space(text_[at_])) move_to(at_ + 1);
    token_ = {};
    if (at_ == text_.size())
      fail(tag_line_, fmt::format("the tag {} is not closed by {}", closing_ == "}}" ? "{{" : "{%", closing_));
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with(closing_) || (rest[0] == '-' && rest.substr(1).starts_with(closing_))) {
      trim_ = rest[0] == '-';
      move_to(at_ + (trim_ ? 3 : 2));
      return;
    }
    size_t size = 1;
    if (rest[0] == '"' || rest[0] == '\'') {
      token_.kind = Token::Kind::text;
      size = quoted(rest);
    } else if (is_letter(rest[0])) {
      token_.kind = Token::Kind::name;
      while (size < rest.size() && (is_letter(rest[size]) || is_digit(rest[size]))) ++size;
      token_.text = rest.substr(0, size);
    } else if (is_digit(rest[0]) || (rest[0] == '-' && rest.size() > 1 && is_digit(rest[1]))) {
      token_.kind = Token::Kind::number;
      while (size < rest.size() && (is_letter(rest[size]) || is_digit(rest[size]) || rest[size] == '.')) ++size;
      token_.text = rest.substr(0, size);
    } else {
      token_.kind = Token::Kind::sign;
      if (rest.size() > 1 && rest[1] == '=' && std::string_view("=!<>").find(rest[0]) != std::string_view::npos)
        size = 2;
      token_.text = rest.substr(0, size);
      if (size == 1 && std::string_view("<>.[]()|,").find(rest[0]) == std::string_view::npos)
        fail(line_, fmt::format("unexpected \"{}\"", printable(rest.substr(0, 1))));
    }
    move_to(at_ + size);
  }

  // Parses a quoted string into token_.text and returns its length with the quotes.
  size_t quoted(std::string_view rest) {
    for (size_t i = 1; i < rest.size(); ++i) {
      if (rest[i] == rest[0]) return i + 1;
      if (rest[i] == '\\' && i + 1 < rest.size()) {
        static constexpr std::string_view from = "nt\\\"'", to = "\n\t\\\"'";
        const size_t which = from.find(rest[++i]);
        if (which == from.npos)
          fail(line_, fmt::format("unknown escape \\{} in a string", printable(rest.substr(i, 1))));
        token_.text += to[which];
      } else {
        token_.text += rest[i];
      }
    }
    fail(line_, "a string is not closed by its quote");
  }

  const std::string& name_;
  const std::string_view text_;
  size_t at_ = 0;
  int line_ = 1, tag_line_ = 1;  // the lines of at_ and of the current tag
  int blocks_ = 0, depth_ = 0, operators_ = 0;
  bool trim_ = false;  // the previous tag ended with a -
  std::string_view closing_;
  Token token_;
  std::string word_, block_;  // the word that ended the last block; the kind of the current block
  int block_line_ = 0;
};

}  // namespace

std::vector<TemplateNode> parse_template(const std::string& name, const std::string& text) {
  return Parser(name, text)();
}

}  // namespace lockstep::detail
