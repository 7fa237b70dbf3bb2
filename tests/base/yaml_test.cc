#include "base/yaml.h"

#include "base/throws.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

std::string repeated(size_t n, const std::string& text) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += text;
  return out;
}

TEST(Yaml, ParsesDocuments) {
  const std::vector<YAML::Node> all = load_yaml("a: [1, 2]\n---\nb: &x {c: d}\ne: *x\n", "x");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1]["e"]["c"].Scalar(), "d");
  EXPECT_THROW(load_yaml("a: [", "x"), YAML::Exception);
}

TEST(Yaml, DepthIsLimited) {
  EXPECT_NO_THROW(load_yaml(repeated(64, "[") + repeated(64, "]"), "x"));
  const size_t deep = 20'000;
  std::string indented;
  for (size_t i = 0; i < 300; ++i) indented += std::string(i, ' ') + "a:\n";
  for (const std::string& text : {repeated(65, "[") + repeated(65, "]"), repeated(deep, "["), repeated(deep, "{a: "),
                                  repeated(deep, "- "), repeated(deep, "? "), repeated(deep, "[a: "), indented})
    EXPECT_THROWS(load_yaml(text, "x.yaml"), Error, "more than 64 maps or lists are nested");
}

TEST(Yaml, AliasesCountAsTheirExpansion) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 10; ++i)
    text += fmt::format("a{}: &a{} [{}*a{}]\n", i, i, repeated(9, fmt::format("*a{}, ", i - 1)), i - 1);
  EXPECT_THROWS(load_yaml(text, "x.yaml"), Error, "a document has more than 50000 values");
  std::string deep = "a0: &a0 [x]\n";
  for (int i = 1; i < 100; ++i) deep += fmt::format("a{}: &a{} [*a{}]\n", i, i, i - 1);
  EXPECT_THROWS(load_yaml(deep, "x.yaml"), Error, "x.yaml:64: more than 64 maps or lists are nested");
  EXPECT_THROWS(load_yaml("a: &a [*a]\n", "x.yaml"), Error, "x.yaml:1: an alias is inside its own anchor");
}

TEST(Yaml, SizesAndCountsAreLimited) {
  EXPECT_THROWS(load_yaml("a: b", "x", {.bytes = 3}), Error, "x: the YAML text has 4 bytes; the limit is 3");
  EXPECT_THROWS(load_yaml("{a: 1, b: 2}", "x", {.keys = 1}), Error, "a map has more than 1 keys");
  EXPECT_THROWS(load_yaml("[1, 2, 3]", "x", {.values = 3}), Error, "a document has more than 3 values");
  EXPECT_THROWS(load_yaml("a: {bcd: 1}", "x", {.key_bytes = 2}), Error, "a key has 3 bytes; the limit is 2");
  EXPECT_THROWS(load_yaml("a\n---\nb\n", "x", {.documents = 1}), Error, "it has more than 1 documents");
}

}  // namespace
}  // namespace lockstep
