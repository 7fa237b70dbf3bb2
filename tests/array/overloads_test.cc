// Overload resolution under every installed compiler. A line of the snippet marked "error" must not compile;
// all others must.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace lockstep::overloads {
namespace {

constexpr const char* kSnippet = R"(
#include "lockstep/collectives.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
using namespace lockstep;
void axes(Array x, std::vector<int64_t> list, size_t n) {
  sum(x); sum(x, 0); sum(x, n); sum(x, {}); sum(x, {0}); sum(x, {1}); sum(x, {0, 1}); sum(x, {-1, 2, 3});
  sum(x, list); sum(x, Axes()); sum(x, Axes{0, 1}); sum(x, {}, {.keepdims = true}); sum(x, {0, 1}, {true});
  var(x, {}); var(x, {0}); var(x, {1}); var(x, {0, 1}); var(x, {1, 1}); var(x, {}, {.ddof = 1});
  var(x, 0, {.keepdims = true, .ddof = 1}); argmax(x, {}); argmax(x, {1}); argmax(x, std::nullopt, {true});
}
void options(Array x) {
  const ReduceOptions keep{.keepdims = true};
  sum(x, {.keepdims = true}); prod(x, {.keepdims = true}); max(x, {.keepdims = true}); min(x, {.keepdims = true});
  any(x, {.keepdims = true}); all(x, {.keepdims = true}); mean(x, {.keepdims = true}); logsumexp(x, {.keepdims = true});
  var(x, {.ddof = 1}); standard_deviation(x, {.ddof = 1}); var(x, {.keepdims = true, .ddof = 1}); sum(x, keep);
  argmax(x, {.keepdims = true}); argmin(x, {.keepdims = true});
}
void collectives(Array x, std::vector<std::string> list, std::string one) {
  psum(x, "a"); psum(x, {"a"}); psum(x, {"a", "b"}); psum(x, {one, "b"}); psum(x, one); psum(x, list);
  all_gather(x, "a", {.axis = 1}); all_gather(x, {"a", "b"}, {.axis = 1, .tiled = true});
}
void wrong(Array x) {
  sum(x, {.ddof = 1});           // error
  sum(x, {.axis = 1});           // error
  mean(x, {.anything = 1});      // error
  softmax(x, {.axis = 1});       // error
  squeeze(x, {.axis = 1});       // error
  flip(x, {.axis = 1});          // error
  argmax(x, {.axis = 1});        // error
  cumsum(x, {.axis = 1});        // error
  sum(x, true);                  // error
  max(x, 2.5);                   // error
  all_gather(x, {.axis = 0});    // error
  psum_scatter(x, {.axis = 0});  // error
}
)";

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  for (int c = 0; pipe && (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  if (pipe) ::pclose(pipe);
  return text;
}

class Overloads : public ::testing::TestWithParam<const char*> {};

TEST_P(Overloads, CompileOrFailAsMarked) {
  const std::string compiler = GetParam();
  if (output_of("command -v " + compiler).empty()) GTEST_SKIP() << compiler << " is not installed";
  const std::string file = ::testing::TempDir() + "/overloads_" + compiler + ".cc";
  std::ofstream(file) << kSnippet;
  std::set<size_t> wanted, found;
  std::istringstream lines(kSnippet);
  size_t number = 0;
  for (std::string line; std::getline(lines, line);)
    if (++number; line.find("// error") != std::string::npos) wanted.insert(number);
  const std::string output =
      output_of(compiler + " -std=c++20 -fsyntax-only -w -I" LOCKSTEP_SOURCE_DIR "/include " + file);
  for (size_t at = 0; (at = output.find(file + ":", at)) != std::string::npos;) {
    at += file.size() + 1;
    const size_t end = output.find('\n', at);
    if (output.substr(at, end - at).find(" error: ") != std::string::npos) found.insert(std::stoul(output.substr(at)));
  }
  EXPECT_EQ(found, wanted) << output;
  std::remove(file.c_str());
}

INSTANTIATE_TEST_SUITE_P(Compiled, Overloads, ::testing::Values("g++", "clang++"),
                         [](const auto& at) { return at.param == std::string("g++") ? "ByGcc" : "ByClang"; });

}  // namespace
}  // namespace lockstep::overloads
