#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <random>

#include "base/throws.h"
#include "jobs/model/object.h"
#include "jobs/model/yaml_document.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json read(const std::string& text) {
  const std::vector<YamlDocument> documents = parse_yaml_documents(text, "a.yaml");
  return documents.empty() ? Json() : documents[0].value;
}

TEST(YamlDocument, PlainScalarsHaveTypes) {
  EXPECT_EQ(read("[1, -2, +3, 0x1f, 0o17, 0644, 18446744073709551615]").dump(),
            "[1,-2,3,31,15,420,18446744073709551615]");
  EXPECT_EQ(read("[1.5, -.5, 1e3, 2., 1.0]").dump(), "[1.5,-0.5,1000.0,2.0,1.0]");
  EXPECT_EQ(read("[true, True, FALSE, null, ~, Null]").dump(), "[true,true,false,null,null,null]");
  EXPECT_EQ(read("a:\nb: ''").dump(), R"({"a":null,"b":""})");
  EXPECT_EQ(read("[yes, 1_000, 1.2.3, 12:30, 2024-12-18, a, -, 08, '1', \"true\", !!str 5, e5, 1e, 1e+, .]").dump(),
            R"(["yes","1_000","1.2.3","12:30","2024-12-18","a","-",8.0,"1","true","5","e5","1e","1e+","."])");
  EXPECT_EQ(read("99999999999999999999").dump(), "1e+20");
}

TEST(YamlDocument, AnchorsAndMergeKeysAreResolved) {
  EXPECT_EQ(read("base: &b {x: 1, y: 2}\nother:\n  <<: *b\n  y: 3\nagain: *b\n").dump(),
            R"({"base":{"x":1,"y":2},"other":{"y":3,"x":1},"again":{"x":1,"y":2}})");
  EXPECT_EQ(read("[&a {x: 1}, &b {x: 2, z: 3}, {<<: [*a, *b]}]").dump(), R"([{"x":1},{"x":2,"z":3},{"x":1,"z":3}])");
  EXPECT_EQ(read("'<<': 1").dump(), R"({"<<":1})");
  EXPECT_THROWS(read("a: 1\n<<: 5\n"), Error, "a.yaml:2: << needs a map or a list of maps; write an alias");
}

TEST(YamlDocument, LinesAreKnownByPath) {
  const auto documents = parse_yaml_documents("---\na: 1\n---\n# nothing\n---\nb:\n  c:\n  - x\n  - d: 2\n", "a.yaml");
  ASSERT_EQ(documents.size(), 2U);
  EXPECT_EQ(documents[0].lines.at("a"), 2);
  EXPECT_EQ(documents[1].line, 6);
  EXPECT_EQ(documents[1].lines.at("b.c"), 7);
  EXPECT_EQ(documents[1].lines.at("b.c[0]"), 8);
  EXPECT_EQ(documents[1].lines.at("b.c[1].d"), 9);
}

TEST(YamlDocument, AcceptsJson) {
  EXPECT_EQ(read("{\"a\": [1, 2.5, \"x\\u00e9\", null, true]}").dump(), R"({"a":[1,2.5,"xé",null,true]})");
  EXPECT_EQ(read("{\n\t\"a\":\t{\n\t\t\"b\": \"\\ud83d\\ude00 \\/\"\n\t}\n}").dump(), R"({"a":{"b":"😀 /"}})");
}

TEST(YamlDocument, RejectsInvalidYaml) {
  EXPECT_THROWS(read("a: 1\nb: [1, 2\nc: 3\n"), Error, "a.yaml:");
  EXPECT_THROWS(read("a: 1\nb: [1, 2\nc: 3\n"), Error, "not YAML: ");
  EXPECT_THROWS(read("a: 'x"), Error, "check the indentation, quotes and colons there");
  EXPECT_THROWS(read("a: *nowhere"), Error, "not YAML: ");
  EXPECT_THROWS(read("a: 1\nb: 2\na: 3\n"), Error, "a.yaml:3: a appears twice; remove one");
  EXPECT_THROWS(read("a:\n  - b: 1\n    b: 2\n"), Error, "a.yaml:3: a[0].b appears twice; remove one");
  EXPECT_THROWS(read("[a]: 1"), Error, "a.yaml:1: a key is a list or map; keys must be strings");
  EXPECT_THROWS(read("a: .inf"), Error, "a.yaml:1: \".inf\" is not a finite number; write it in quotes");
  EXPECT_THROWS(read("a: 1\nb: -.Inf"), Error, "a.yaml:2: \"-.Inf\" is not a finite number");
  EXPECT_THROWS(read("a: .nan"), Error, "\".nan\" is not a finite number");
  EXPECT_THROWS(read("a: 1e999"), Error, "\"1e999\" is not a finite number");
  EXPECT_THROWS(read("a: !!binary aGVsbG8="), Error, "a.yaml:1: !!binary is not supported; write the text in quotes");
  EXPECT_THROWS(read("a: 1\nb: \xff"), Error, "a.yaml:2: byte 0xff is not valid UTF-8");
  EXPECT_THROWS(read("a: \xc0\xaf"), Error, "a.yaml:1: byte 0xc0 is not valid UTF-8");
  EXPECT_THROWS(read("a: \xed\xa0\x80"), Error, "a.yaml:1: byte 0xed is not valid UTF-8");
  EXPECT_THROWS(read(std::string("a: \0", 4)), Error, "a.yaml:1: byte 0x00 is not valid UTF-8");
}

TEST(YamlDocument, LimitsTheExpansionOfAnchors) {
  std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 9; ++j) laughs += before + ", ";
    laughs += before + "]\n";
  }
  EXPECT_THROWS(read(laughs), Error, "a document has more than 50000 values");
  EXPECT_THROWS(read("a: &a\n  b: *a\n"), Error, "a.yaml:2: an alias is inside its own anchor");
  std::string merged = "a0: &a0 {x0: 1, y0: 1, z0: 1}\n";  // merge keys multiply values too
  for (int i = 1; i < 40; ++i) merged += fmt::format("a{0}: &a{0} {{<<: [*a{1}, *a{1}], x{0}: 1}}\n", i, i - 1);
  EXPECT_THROWS(read(merged), Error, "more than 50000 values");
}

TEST(YamlDocument, RejectsDeepNesting) {
  const auto nested = [](size_t n, const std::string& open, const std::string& close) {
    std::string out;
    for (size_t i = 0; i < n; ++i) out += open;
    for (size_t i = 0; i < n; ++i) out += close;
    return out;
  };
  EXPECT_NO_THROW(read(nested(64, "[", "]")));
  for (const std::string& deep :
       {nested(65, "[", "]"), nested(100'000, "[", "]"), "{\"apiVersion\":" + nested(100'000, "[", "]") + "}",
        "{\"a\":\t" + nested(100'000, "[", "]") + "}", nested(100'000, "{\"a\":[", "]}")})
    EXPECT_THROWS(read(deep), Error, "are nested");
}

TEST(YamlDocument, RejectsLongPaths) {
  std::string text;
  for (size_t level = 0; level < 4; ++level) text += std::string(level, ' ') + std::string(1000, 'k') + ":\n";
  for (int i = 0; i < 9000; ++i) text += fmt::format("    x{}: [1, 2]\n", i);
  EXPECT_THROWS(read(text), Error, "the paths of nested fields are too long; shorten the keys");
}

struct WrittenYaml {
  Json value;
  const char* text;
};

TEST(ToYaml, WritesKubectlsStyle) {
  const WrittenYaml table[] = {
      {{{"b", 1}, {"a", {{"z", true}, {"y", nullptr}}}}, "a:\n  \"y\": null\n  z: true\nb: 1\n"},
      {{{"list", {1, "x", {{"k", "v"}, {"j", "w"}}}}}, "list:\n- 1\n- x\n- j: w\n  k: v\n"},
      {{{"a", Json::array()}, {"b", Json::object()}, {"c", {Json::object(), Json::array()}}},
       "a: []\nb: {}\nc:\n- {}\n- []\n"},
      {Json::parse("[[1, [2]], [{\"a\": [3]}]]"), "- - 1\n  - - 2\n- - a:\n    - 3\n"},
      {{{"a10", 1}, {"a9", 2}, {"a_b", 3}, {"aB", 4}, {"a", 5}, {"1", 6}},
       "\"1\": 6\na: 5\na_b: 3\na9: 2\na10: 1\naB: 4\n"},
      {{{"t", "one\ntwo\n"}, {"u", "one\n\n  two"}, {"v", "x\n\n"}},
       "t: |\n  one\n  two\nu: |-\n  one\n\n    two\nv: |+\n  x\n\n"},
      {{{"l", {"one\ntwo\n"}}}, "l:\n- |\n  one\n  two\n"},
      {{{"s", " first\nsecond"}}, "s: |2-\n   first\n  second\n"},
      {{{"s", "trailing \nspace"}}, "s: \"trailing \\nspace\"\n"},
      {"top\nlevel", "\"top\\nlevel\"\n"},
      {1.5, "1.5\n"},
  };
  for (const WrittenYaml& row : table) EXPECT_EQ(to_yaml(row.value), row.text) << row.value;
}

TEST(ToYaml, QuotesOnlyAmbiguousStrings) {
  const std::pair<const char*, const char*> table[] = {
      {"plain", "plain"},
      {"two words", "two words"},
      {"a:b", "a:b"},
      {"example.org/x/y:latest", "example.org/x/y:latest"},
      {"a=b,c=d", "a=b,c=d"},
      {"-x", "-x"},
      {"--flag", "--flag"},
      {"a#b", "a#b"},
      {"a'b", "a'b"},
      {"a\"b", "a\"b"},
      {"1.2.3", "1.2.3"},
      {"v1", "v1"},
      {"500m", "500m"},
      {"10Gi", "10Gi"},
      {"Infinity", "Infinity"},
      {"ünïcode 😀", "ünïcode 😀"},
      {"", "\"\""},
      {"True", "\"True\""},
      {"false", "\"false\""},
      {"null", "\"null\""},
      {"~", "\"~\""},
      {"yes", "\"yes\""},
      {"y", "\"y\""},
      {"off", "\"off\""},
      {"<<", "\"<<\""},
      {"3620", "\"3620\""},
      {"-1", "\"-1\""},
      {"0x1f", "\"0x1f\""},
      {"0644", "\"0644\""},
      {"0b11", "\"0b11\""},
      {"1_000", "\"1_000\""},
      {"1e3", "\"1e3\""},
      {".5", "\".5\""},
      {".inf", "\".inf\""},
      {".NaN", "\".NaN\""},
      {"12:30", "\"12:30\""},
      {"2024-12-18", "\"2024-12-18\""},
      {"2024-12-18T16:47:28Z", "\"2024-12-18T16:47:28Z\""},
      {"a: b", "'a: b'"},
      {"a:", "'a:'"},
      {"a #b", "'a #b'"},
      {"#a", "'#a'"},
      {"- a", "'- a'"},
      {"-", "'-'"},
      {"---", "'---'"},
      {"*a", "'*a'"},
      {"&a", "'&a'"},
      {"!a", "'!a'"},
      {"{a}", "'{a}'"},
      {"[a]", "'[a]'"},
      {"%a", "'%a'"},
      {"@a", "'@a'"},
      {"`a`", "'`a`'"},
      {"'a'", "'''a'''"},
      {"\"a\"", "'\"a\"'"},
      {" a", "' a'"},
      {"a ", "'a '"},
      {"a\tb", "\"a\\tb\""},
      {"a\x01", "\"a\\x01\""},
      {"a\r\n", "\"a\\r\\n\""},
      {"a\u2028b", "\"a\\u2028b\""},
      {"\ufeff", "\"\\uFEFF\""},
      {"\u0085", "\"\\x85\""},
  };
  for (const auto& [value, text] : table) EXPECT_EQ(to_yaml({{"k", value}}), "k: " + std::string(text) + "\n");
}

// Random JSON values, with strings that are hard to write as YAML.
class RandomTrees {
 public:
  explicit RandomTrees(uint32_t seed) : random_(seed) {}

  Json tree(int levels) {
    const int kind = below(levels > 0 ? 9 : 6);
    if (kind == 6 || kind == 7) {
      Json map = Json::object();
      for (int i = below(5); i > 0; --i) map[text()] = tree(levels - 1);
      return map;
    }
    if (kind == 8) {
      Json list = Json::array();
      for (int i = below(5); i > 0; --i) list.push_back(tree(levels - 1));
      return list;
    }
    if (kind == 0) return nullptr;
    if (kind == 1) return below(2) == 0;
    if (kind == 2) return static_cast<int64_t>(random_()) - (int64_t{1} << 31);
    if (kind == 3) return std::ldexp(static_cast<double>(random_()) - 2e9, below(80) - 40);
    return text();
  }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<uint32_t>(limit)); }

  std::string text() {
    static const std::vector<std::string> kPieces = {
        "a",  "b",  "Z",  "1",    "0",    "9",  " ",    " ",      "\n",     "\n",   ":",   "-",  "#", "'", "\"",
        "\\", ",",  "[",  "]",    "{",    "}",  "&",    "*",      "!",      "|",    ">",   "%",  "@", "`", "?",
        "=",  "~",  "<<", "null", "y",    "no", "true", ".",      "_",      "e",    "+",   "x",  "/", "$", "(",
        ")",  "\t", "\r", "é",    "日本", "😀",  "\x01", "\u2028", "\u0085", "\x7f", "---", "..."};
    std::string out;
    for (int i = below(8); i > 0; --i) out += kPieces[static_cast<size_t>(below(static_cast<int>(kPieces.size())))];
    return out;
  }

  std::mt19937 random_;
};

TEST(ToYaml, RoundTripsRandomValues) {
  RandomTrees trees(7);
  for (int i = 0; i < 4000 && !testing::Test::HasFailure(); ++i) {
    const Json value = trees.tree(4);
    const std::string text = to_yaml(value);
    const Json back = read(text);
    EXPECT_EQ(nlohmann::json(back), nlohmann::json(value)) << text;
    EXPECT_EQ(to_yaml(back), text);
  }
}

TEST(Yaml, SkipsEmptyDocuments) {
  for (const char* text : {"", "---\n", "~\n", "null", "!tag\n", "# nothing\n", "\tnull"})
    EXPECT_TRUE(parse_yaml_documents(text, "x").empty()) << text;
  EXPECT_EQ(parse_yaml_documents("!tag\n---\na: 1\n", "x").size(), 1u);
}

TEST(Yaml, LongKeysRoundTrip) {
  const std::string long_key(1500, 'k');
  const Json inner = {{long_key, "x"}, {"short", 1}};
  const Json value = {{long_key, {1, {{"a", 2}}}}, {long_key + "2", inner}, {"list", {inner, inner}}};
  const std::string text = to_yaml(value);
  EXPECT_EQ(to_yaml(parse_yaml_documents(text, "x").at(0).value), text);
  EXPECT_EQ(parse_yaml_documents(text, "x").at(0).value["list"][1][long_key], "x");
}

TEST(Yaml, NegativeZeroRoundTrips) {
  EXPECT_EQ(to_yaml(parse_yaml_documents("a: -0.0\n", "x").at(0).value), "a: -0.0\n");
}

TEST(Yaml, DecodesEscapesAsUtf8) {
  EXPECT_EQ(parse_yaml_documents("a: \"x\\_y\\N\\L\\xe9\"\n", "x").at(0).value["a"], "x\u00a0y\u0085\u2028\u00e9");
  EXPECT_EQ(parse_yaml_documents("\"\\_\": \u00e9\n", "x").at(0).value["\u00a0"], "\u00e9");
}

}  // namespace
}  // namespace lockstep
