// Mistakes in users' programs give one sentence with a remedy in the first lines of the compiler's output.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::compile_errors {
namespace {

constexpr int kLines = 10;

struct Mistake {
  const char* name;
  const char* code;
  const char* message;  // part of the sentence
  const char* names;    // what the lines also name; may be empty
};

const Mistake kMistakes[] = {
    {"WrongNumberOfArguments", "jit([](Array x, Array y) { return x + y; })(x);", "the number of arguments does not match", ""},
    {"DefaultArgument", "jit([](Array x, int n = 3) { return x * n; })(x);", "default arguments must be passed, too", ""},
    {"ReturnsNothing", "jit([](Array x) { x + 1; })(x);", "the function returns nothing", ""},
    {"ReturnsAPointer", "jit([&](Array) { return &x; })(x);", "not a tree: a pointer", ""},
    {"Mutable", "int n = 0; jit([n](Array x) mutable { return x + n++; })(x);", "the function is a mutable lambda", ""},
    {"MutableGeneric", "int n = 0; vmap([n](auto x) mutable { return x + n++; })(x);", "the function is a mutable lambda", ""},
    {"ReferenceParameter", "jit([](Array& x) { x += 1; return x; })(x);", "takes an argument by reference", ""},
    {"CArray", "struct S { Array a; float w[3]; }; jit([](S s) { return s.a; })(S{});", "is a C array; use std::array", "S, 1"},
    {"BaseClass", "struct B { Array a; }; struct S : B { Array b; }; jit([](S s) { return s.b; })(S{});", "has a base class", "S"},
    {"PrivateMember", "class S { public: Array a; private: Array b; }; jit([](S s) { return s.a; })(S{});", "constructors or private members", "S"},
    {"ConstMember", "struct S { Array a; const Array b; }; jit([](S s) { return s.a; })(S{x, x});", "is const, so transforms cannot replace it", "S, 1"},
    {"ReferenceMember", "struct S { Array& a; }; jit([](S s) { return s.a; })(S{x});", "has a reference as a member", "S"},
    {"UnorderedMap", "struct S { Array a, b; std::unordered_map<std::string, Array> m; }; jit([](S s) { return s.a; })(S{});",
     "std::unordered_map has no order; use std::map", "S, 2"},
    {"StringView", "struct S { std::string_view v; Array a; }; jit([](S s) { return s.a; })(S{});", "use std::string", "S, 0"},
    {"Text", "jit([](const char*, Array x) { return x; })(\"name\", x);", "text in a const char* or a string literal", ""},
    {"TooManyFields",
     "struct S { Array a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y; }; jit([](S s) { return s.a; })(S{});",
     "at most 24 fields", "S"},
    {"MemberOfAMember", "struct T { int* p; }; struct S { std::vector<T> list; }; grad([](S) { return Array(1.f); })(S{});", "not a tree: a pointer", "T, 0"},
    {"WrongArgument", "jit([](int, Array y) { return y; })(1, std::string(\"x\"));", "the argument at this position does not convert", "1"},
    {"BranchTypes", "cond(x > 0, [](Array y) { return y; }, [](Array y) { return std::pair{y, y}; }, x);", "the branches return different types", ""},
    {"ScanBody", "scan([](Array c, Array) { return c; }, x, x);", "scan: the body must return a std::pair{carry, y}", ""},
    {"LogicalAnd", "const Array b = (x > 0) && (x < 1);", "&& of two arrays: use &", ""},
    {"LogicalOr", "if ((x > 0) || (x < 1)) return;", "|| of two arrays: use |", ""},
    {"Subscript", "const Array y = x[0];", "an array is indexed by x(i)", ""},
    {"MapToAnotherType", "struct S { Array a; }; tree_map([](const Array& a) { return a.shape(); }, S{});", "make it a template", "S"},
    {"LossWithoutAnArray", "grad([](Array x) { return std::pair{1, x}; })(x);", "grad: the function must return an Array, or a std::pair", ""},
};

std::string run(const std::string& command) {
  std::string out;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  for (int c = 0; pipe && (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
  if (pipe) ::pclose(pipe);
  return out;
}

std::string first_lines(const std::string& text, int n) {
  size_t at = 0;
  while (n-- > 0 && at != text.npos) at = text.find('\n', at + 1);
  return text.substr(0, at);
}

// The compiler's output for each mistake, from two compilers at a time with one precompiled header.
std::vector<std::string> outputs(const std::string& compiler, const std::string& folder) {
  const std::string header = folder + "/all.h";
  std::ofstream(header) << "#include <string_view>\n#include <unordered_map>\n#include \"lockstep/lockstep.h\"\n";
  const std::string options = " -std=c++20 -w -I" LOCKSTEP_SOURCE_DIR "/include ";
  const bool clang = compiler == "clang++";
  const std::string compiled = header + (clang ? ".pch" : ".gch");
  EXPECT_EQ(run(compiler + options + "-x c++-header " + header + " -o " + compiled), "");
  const size_t n = std::size(kMistakes);
  std::vector<std::string> out(n);
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i; (i = next++) < n;) {
      const std::string file = folder + "/" + kMistakes[i].name + ".cc";
      std::ofstream(file) << (clang ? "" : "#include \"all.h\"\n") << "using namespace lockstep;\nvoid mistake(Array x) {\n  "
                          << kMistakes[i].code << "\n}\n";
      out[i] = run(compiler + options + (clang ? "-include-pch " + compiled + " " : "") + "-fsyntax-only " + file);
    }
  };
  std::thread other(work);
  work();
  other.join();
  return out;
}

class CompileErrors : public testing::TestWithParam<const char*> {};

TEST_P(CompileErrors, AreASentenceInTheFirstLines) {
  const std::string compiler = GetParam();
  if (run("command -v " + compiler).empty()) GTEST_SKIP() << compiler << " is not installed";
  char folder[] = "/tmp/lockstep_compile_errors_XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::vector<std::string> texts = outputs(compiler, folder);
  for (size_t i = 0; i < texts.size(); ++i) {
    SCOPED_TRACE(kMistakes[i].name);
    const std::string lines = first_lines(texts[i], kLines);
    EXPECT_NE(lines.find(kMistakes[i].message), lines.npos) << first_lines(texts[i], 3 * kLines);
    EXPECT_NE(lines.find(kMistakes[i].names), lines.npos) << lines;
  }
  run("rm -r " + std::string(folder));
}

INSTANTIATE_TEST_SUITE_P(Of, CompileErrors, testing::Values("g++", "clang++"),
                         [](const auto& at) { return at.param == std::string("g++") ? "Gcc" : "Clang"; });

}  // namespace
}  // namespace lockstep::compile_errors
