#include "jobs/json_path.h"

#include <gtest/gtest.h>

#include "base/throws.h"

namespace lockstep {
namespace {

const nlohmann::ordered_json& list() {
  static const auto value = nlohmann::ordered_json::parse(R"({
    "kind": "List",
    "items": [
      {"metadata": {"name": "a", "labels": {"app.kubernetes.io/name": "x"}}, "status": {"phase": "Running"}, "n": 1},
      {"metadata": {"name": "b"}, "status": {"phase": "Failed"}, "n": 10},
      {"metadata": {"name": "c"}, "status": {"phase": "Running"}, "n": 2.5, "ready": true}
    ]})");
  return value;
}
std::string format(std::string_view text) { return format_json_path(text, list()); }

TEST(JsonPath, FindsFieldsAndElements) {
  EXPECT_EQ(format("{.kind}"), "List");
  EXPECT_EQ(format("{$.kind}{kind}{@.kind}"), "ListListList");
  EXPECT_EQ(format("{.items[*].metadata.name}"), "a b c");
  EXPECT_EQ(format("{.items[0]['metadata'][\"name\"]}"), "a");
  EXPECT_EQ(format("{.items[-1].metadata.name}"), "c");
  EXPECT_EQ(format("{.items[1:].metadata.name}/{.items[:-1].metadata.name}/{.items[0:1].n}"), "b c/a b/1");
  EXPECT_EQ(format("{.items[0].metadata.labels.app\\.kubernetes\\.io/name}"), "x");
  EXPECT_EQ(format("{.items[0].metadata.*}"), "a {\"app.kubernetes.io/name\":\"x\"}");
  EXPECT_EQ(format("{.items[2].ready} {.items[2].n}"), "true 2.5");
}

TEST(JsonPath, OfAMissingFieldIsEmpty) {
  EXPECT_EQ(format("<{.items[*].nothing}{.items[7].n}{.kind.x}{.kind[0]}>"), "<>");
}

TEST(JsonPath, FiltersElements) {
  EXPECT_EQ(format(R"({.items[?(@.status.phase=="Running")].metadata.name})"), "a c");
  EXPECT_EQ(format(R"({.items[?(@.status.phase != 'Running')].metadata.name})"), "b");
  EXPECT_EQ(format("{.items[?(@.n>2)].metadata.name}"), "b c");
  EXPECT_EQ(format("{.items[?(@.n<=2.5)].metadata.name}"), "a c");
  EXPECT_EQ(format("{.items[?(@.ready)].metadata.name}"), "c");
  EXPECT_EQ(format("{.items[?(@.ready==true)].metadata.name}"), "c");
  EXPECT_EQ(format(R"({.items[?(@.metadata.labels['app.kubernetes.io/name']=="x")].n})"), "1");
}

TEST(JsonPath, RangesRepeatTheirTemplate) {
  EXPECT_EQ(format(R"({range .items[*]}{.metadata.name}{"\t"}{.n}{"\n"}{end}.)"), "a\t1\nb\t10\nc\t2.5\n.");
  EXPECT_EQ(format("{range .items[?(@.n>9)]}<{range .metadata.*}{@}{end}>{end}"), "<b>");
  EXPECT_EQ(format("{range .nothing[*]}{.x}{end}done"), "done");
  EXPECT_EQ(format("no braces"), "no braces");
}

TEST(JsonPath, SyntaxErrorsNameThePosition) {
  const auto fails = [](std::string_view text, const std::string& part) {
    EXPECT_THROWS(format(text), Error, part);
    EXPECT_THROWS(format_json_path(text, {}), Error, part);  // also without any values
  };
  fails("{.items", "jsonpath: a { is not closed at character 8 of \"{.items\"");
  fails("{.items[x]}", "\"x\" is not the number of an element");
  fails("{.items[1:x]}", "\"1:x\" is not a range of elements");
  fails("{.items[0}", "expected \"]\"");
  fails("{..name}", "\"..\" is not supported");
  fails("{.items[0]name}", "expected \".\" or \"[\"");
  fails("{.a.}", "a name is missing");
  fails("{\"x}", "a { is not closed");
  fails("{['x]}", "a { is not closed");
  fails("{end}", "{end} without {range}");
  fails("{range .items[*]}x", "{end} is missing");
  fails("{range .none[*]}{.a[}{end}", "is not the number of an element");
  fails("{.items[?(n>1)]}", "expected \"@\"");
  fails("{.items[?(@.n>x)]}", "expected a quoted text or a number");
  fails("{.items[?(@.n>1]}", "expected a quoted text or a number");
  fails("{.items[?(@.n>1 x]}", "expected \")\"");
}

TEST(CustomColumns, HaveACellForEachPath) {
  const auto columns = parse_custom_columns("NAME:.metadata.name,PHASE:{.status.phase},X:.x,ALL:.metadata.*");
  ASSERT_EQ(columns.size(), 4u);
  EXPECT_EQ(columns[1].header, "PHASE");
  EXPECT_EQ(custom_row(columns, list()["items"][0]),
            (std::vector<std::string>{"a", "Running", "<none>", "a,{\"app.kubernetes.io/name\":\"x\"}"}));
  for (const char* wrong : {"NAME", "", ":.x", "NAME:", "A:.a,"})
    EXPECT_THROWS(parse_custom_columns(wrong), Error, "is not HEADER:PATH; write columns such as NAME:.metadata.name");
}

}  // namespace
}  // namespace lockstep
