#include <charconv>
#include <cmath>
#include <limits>
#include <map>

#include "base/check.h"
#include "program/op.h"

namespace lockstep {
namespace {

constexpr int kMaxNesting = 64;

// Recursive descent over the grammar of docs/reference/programs.md.
class Parser {
 public:
  Parser(std::string_view text, std::span<const Op* const> ops) : text_(text), ops_(ops) {}

  Program parse_all() {
    Program p = program();
    skip();
    if (at_ < text_.size()) fail("expected the end of the text");
    return p;
  }

 private:
  // The depth is bounded: nested programs are parsed, checked and printed recursively.
  Program program() {
    if (++depth_ > kMaxNesting) fail(fmt::format("programs are nested more than {} deep", kMaxNesting));
    Program p = equations();
    --depth_;
    return p;
  }

  Program equations() {
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
        p.eqns.push_back({});
        body(p, use);
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
      p.eqns.push_back({});
      body(p, use);
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

  template <class Use>
  void body(Program& p, const Use& use) {
    Eqn eqn;
    const std::string name = identifier();
    for (const Op* op : ops_)
      if (op->name == name) eqn.op = op;
    if (!eqn.op) fail(fmt::format("unknown op '{}'", name));
    if (accept('[')) {
      do {
        std::string key = identifier();
        expect('=');
        eqn.attrs.set(std::move(key), attr());
      } while (accept(','));
      expect(']');
    }
    for (skip_blanks(); peek() == '%'; skip_blanks()) eqn.in.push_back(use());
    p.eqns.back() = std::move(eqn);
  }

  Attr attr() {
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
    if (auto t = dtype_from_name(name)) return *t;
    fail(fmt::format("'{}' is not an attribute value", name));
  }

  Attr number() {
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

  Attr string() {
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

  std::vector<int64_t> integers() {
    std::vector<int64_t> out;
    expect('[');
    if (accept(']')) return out;
    do out.push_back(integer());
    while (accept(','));
    expect(']');
    return out;
  }

  Type type() {
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

  int64_t reference() {
    expect('%');
    return integer();
  }

  int64_t integer() {
    skip();
    int64_t i = 0;
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), i);
    if (error != std::errc{}) fail("expected an integer");
    at_ = static_cast<size_t>(end - text_.data());
    return i;
  }

  std::string identifier() {
    skip();
    const size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    if (start == at_) fail("expected a name");
    return std::string(text_.substr(start, at_ - start));
  }

  void word(std::string_view wanted) {
    if (identifier() != wanted) fail(fmt::format("expected '{}'", wanted));
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool accept(char c) {
    skip();
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("expected '{}'", c));
  }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  [[noreturn]] void fail(const std::string& what) const {
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

  std::string_view text_;
  std::span<const Op* const> ops_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Program parse(std::string_view text, std::span<const Op* const> ops) {
  Program p = Parser(text, ops).parse_all();
  check(p);
  return p;
}

}  // namespace lockstep
