// Recursive descent over the grammar of docs/reference/programs.md.
#include "program/text_parser.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "base/check.h"
#include "program/host_function.h"

namespace lockstep {

constexpr int kMaxNesting = 64;

// The depth is bounded: nested programs are parsed, checked and printed recursively.
Program TextParser::program() {
  if (++depth_ > kMaxNesting) fail(fmt::format("programs are nested more than {} deep", kMaxNesting));
  Program p = equations();
  --depth_;
  return p;
}

Program TextParser::equations() {
  word("program");
  Program p;
  std::map<int64_t, ValueId> ids;
  auto define = [&]() {
    const int64_t n = reference();
    expect(':');
    if (!ids.emplace(n, static_cast<ValueId>(p.types.size())).second) fail(fmt::format("%{} is defined twice", n));
    p.types.push_back(type());
    return static_cast<ValueId>(p.types.size() - 1);
  };
  auto use = [&]() {
    const int64_t n = reference();
    auto it = ids.find(n);
    if (it == ids.end()) fail(fmt::format("%{} is used before it is defined", n));
    return it->second;
  };
  auto equation = [&]() {
    Eqn eqn;
    std::tie(eqn.op, eqn.attrs) = op();
    for (skip_blanks(); peek() == '%'; skip_blanks()) eqn.in.push_back(use());
    return eqn;
  };
  expect('(');
  if (!accept(')')) {
    do p.inputs.push_back(define());
    while (accept(','));
    expect(')');
  }
  expect('{');
  while (true) {
    skip();
    if (peek() != '%') {
      const size_t start = at_;
      const std::string name = identifier();
      if (name == "return") break;
      at_ = start;
      p.eqns.push_back(equation());
      continue;
    }
    // Results are defined after the operands are read, so remember them.
    std::vector<std::pair<int64_t, Type>> results;
    do {
      const int64_t n = reference();
      expect(':');
      results.emplace_back(n, type());
    } while (accept(','));
    expect('=');
    p.eqns.push_back(equation());
    for (auto& [n, t] : results) {
      if (!ids.emplace(n, static_cast<ValueId>(p.types.size())).second) fail(fmt::format("%{} is defined twice", n));
      p.eqns.back().out.push_back(static_cast<ValueId>(p.types.size()));
      p.types.push_back(std::move(t));
    }
  }
  for (skip(); peek() == '%'; skip()) p.outputs.push_back(use());
  expect('}');
  return p;
}

std::pair<const Op*, Attrs> TextParser::op() {
  std::pair<const Op*, Attrs> out{nullptr, {}};
  const std::string name = identifier();
  for (const Op* each : ops_)
    if (each->name == name) out.first = each;
  if (!out.first) fail(fmt::format("unknown op '{}'", name));
  if (!accept('[')) return out;
  do {
    std::string key = identifier();
    expect('=');
    out.second.set(std::move(key), attr());
  } while (accept(','));
  expect(']');
  return out;
}

Attr TextParser::attr() {
  skip();
  const char c = peek();
  if (c == '"') return string();
  if (c == '[') return integers();
  if (c == '-' || (c >= '0' && c <= '9')) return number();
  const size_t start = at_;
  const std::string name = identifier();
  if (name == "true") return true;
  if (name == "false") return false;
  if (name == "inf") return std::numeric_limits<double>::infinity();
  if (name == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (name == "program") {
    at_ = start;
    return std::make_shared<const Program>(program());
  }
  if (name == "host") {
    expect('(');
    const int64_t function = integer();
    expect(')');
    return HostFunction::of_number(function);
  }
  if (auto t = dtype_from_name(name)) return *t;
  fail(fmt::format("'{}' is not an attribute value", name));
}

Attr TextParser::number() {
  const size_t start = at_;
  if (peek() == '-') ++at_;
  if (text_.substr(at_, 3) == "inf") {
    at_ += 3;
    return -std::numeric_limits<double>::infinity();
  }
  while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '.' ||
                                ((text_[at_] == '-' || text_[at_] == '+') && text_[at_ - 1] == 'e')))
    ++at_;
  const std::string_view s = text_.substr(start, at_ - start);
  int64_t i = 0;
  if (auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), i);
      error == std::errc{} && end == s.data() + s.size())
    return i;
  double x = 0;
  if (auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), x);
      error == std::errc{} && end == s.data() + s.size())
    return x;
  fail(fmt::format("'{}' is not a number", s));
}

Attr TextParser::string() {
  expect('"');
  std::string out;
  while (at_ < text_.size() && text_[at_] != '"') {
    if (text_[at_] == '\\') ++at_;
    if (at_ < text_.size()) out += text_[at_++];
  }
  if (at_ == text_.size()) fail("unterminated string");
  ++at_;
  return out;
}

std::vector<int64_t> TextParser::integers() {
  std::vector<int64_t> out;
  expect('[');
  if (accept(']')) return out;
  do out.push_back(integer());
  while (accept(','));
  expect(']');
  return out;
}

Type TextParser::type() {
  const std::string name = identifier();
  const auto dtype = dtype_from_name(name);
  if (!dtype) fail(fmt::format("'{}' is not an element type", name));
  Type type{*dtype, integers()};
  if (peek() == '{') {  // directly after the bracket: "f32[8]{data}"
    ++at_;
    do type.varying.push_back(identifier());
    while (accept(','));
    expect('}');
  }
  return type;
}

int64_t TextParser::reference() {
  expect('%');
  return integer();
}

int64_t TextParser::integer() {
  skip();
  int64_t i = 0;
  auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), i);
  if (error != std::errc{}) fail("expected an integer");
  at_ = static_cast<size_t>(end - text_.data());
  return i;
}

std::string TextParser::identifier() {
  skip();
  const size_t start = at_;
  while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
  if (start == at_) fail("expected a name");
  return std::string(text_.substr(start, at_ - start));
}

void TextParser::word(std::string_view wanted) {
  if (identifier() != wanted) fail(fmt::format("expected '{}'", wanted));
}

bool TextParser::accept_word(std::string_view wanted) {
  skip();
  const size_t start = at_;
  if (std::isalpha(static_cast<unsigned char>(peek())) && identifier() == wanted) return true;
  at_ = start;
  return false;
}

void TextParser::expect_end() {
  skip();
  if (at_ < text_.size()) fail("expected the end of the text");
}

bool TextParser::accept(char c) {
  skip();
  if (peek() != c) return false;
  ++at_;
  return true;
}
void TextParser::expect(char c) {
  if (!accept(c)) fail(fmt::format("expected '{}'", c));
}
void TextParser::skip() {
  while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
}
void TextParser::skip_blanks() {
  while (at_ < text_.size() && text_[at_] == ' ') ++at_;
}

void TextParser::fail(const std::string& what) const {
  size_t line = 1, column = 1;
  for (char c : text_.substr(0, std::min(at_, text_.size()))) {
    ++column;
    if (c == '\n') {
      ++line;
      column = 1;
    }
  }
  throw_error("parse: line {}, column {}: {}", line, column, what);
}

Program parse(std::string_view text, std::span<const Op* const> ops) {
  TextParser parser(text, ops);
  Program p = parser.program();
  parser.expect_end();
  check(p);
  return p;
}

}  // namespace lockstep
