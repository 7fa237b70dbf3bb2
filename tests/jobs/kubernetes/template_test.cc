#include "jobs/kubernetes/template.h"

#include <gtest/gtest.h>

#include <random>

#include "base/throws.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

const Json kVariables = {{"hosts_count", 2},
                         {"name", "mnist"},
                         {"on", true},
                         {"off", false},
                         {"nothing", nullptr},
                         {"words", {"a", "b", "c"}},
                         {"empty", Json::array()},
                         {"pod", {{"image", "x:1"}, {"ports", {80, 81}}}}};

std::string render(const std::string& text, const TemplateFinder& find = {}) {
  return render_template("t.j2", text, kVariables, find);
}

TEST(Template, TextIsCopiedUnchanged) {
  EXPECT_EQ(render(""), "");
  EXPECT_EQ(render("a: {b}\n  c: }} %} #}"), "a: {b}\n  c: }} %} #}");
  EXPECT_EQ(render("{"), "{");
}

TEST(Template, OneNewlineAtTheEndIsDropped) {
  EXPECT_EQ(render("a\n"), "a");
  EXPECT_EQ(render("a\n\n"), "a\n");
}

TEST(Template, ValuesArePrinted) {
  EXPECT_EQ(render("{{ hosts_count }} {{name}} {{ on }} {{ 'x' }} {{ \"y\\n\" }} {{ -3 }} {{ 1.5 }}"),
            "2 mnist true x y\n -3 1.5");
  EXPECT_EQ(render("{{ pod.image }} {{ pod['image'] }} {{ pod.ports[1] }} {{ words[-1] }}"), "x:1 x:1 81 c");
  EXPECT_EQ(render("{{ '}}' }}"), "}}");
}

TEST(Template, ConditionsSelectOneBranch) {
  EXPECT_EQ(render("{% if on %}yes{% else %}no{% endif %}"), "yes");
  EXPECT_EQ(render("{% if off %}a{% elif hosts_count == 2 %}b{% else %}c{% endif %}"), "b");
  EXPECT_EQ(render("{% if off %}a{% elif off %}b{% elif off %}c{% else %}d{% endif %}!"), "d!");
  EXPECT_EQ(render("{% if off %}a{% endif %}b"), "b");
  EXPECT_EQ(render("{% if on %}{% if off %}a{% endif %}b{% endif %}c"), "bc");
}

TEST(Template, OperatorsHaveThePrecedenceOfJinja) {
  const auto is = [](const std::string& condition) {
    return render("{% if " + condition + " %}1{% else %}0{% endif %}") == "1";
  };
  EXPECT_TRUE(is("on or off and off"));
  EXPECT_TRUE(is("not off and on"));
  EXPECT_FALSE(is("not (on or off)"));
  EXPECT_TRUE(is("not not on"));
  EXPECT_TRUE(is("hosts_count > 1 and hosts_count <= 2 and hosts_count >= 2 and hosts_count < 3"));
  EXPECT_TRUE(is("name == 'mnist' and name != 'x' and name < 'n'"));
  EXPECT_FALSE(is("name == 2"));
  EXPECT_TRUE(is("words == words and 2 == 2.0"));
  EXPECT_FALSE(is("empty or nothing or 0 or ''"));
  EXPECT_TRUE(is("words and pod and 'x' and 1"));
  EXPECT_TRUE(is("missing is not defined and name is defined and not missing is defined"));
  EXPECT_TRUE(is("missing | default(on)"));
  EXPECT_TRUE(is("pod.missing is not defined and pod.image is defined"));
  EXPECT_EQ(render("{{ off or name }} {{ on and name }}"), "mnist mnist");
}

TEST(Template, LoopsRepeatTheirBody) {
  EXPECT_EQ(render("{% for w in words %}{{ loop.index }}{{ w }}{% if not loop.last %},{% endif %}{% endfor %}"),
            "1a,2b,3c");
  EXPECT_EQ(render("{% for w in words %}{% for v in words %}{{ w }}{{ v }}{{ loop.index0 }} {% endfor %}{% endfor %}"),
            "aa0 ab1 ac2 ba0 bb1 bc2 ca0 cb1 cc2 ");
  EXPECT_EQ(render("{% for w in empty %}x{% endfor %}{{ name }}"), "mnist");
  EXPECT_EQ(render("{% for name in words %}{{ name }}{% endfor %}{{ name }}"), "abcmnist");
  EXPECT_THROWS(render("{% for w in words %}{% endfor %}{{ w }}"), Error, "unknown variable \"w\"");
}

TEST(Template, DashesTrimWhitespace) {
  EXPECT_EQ(render("a  \n {{- name -}} \n b"), "amnistb");
  EXPECT_EQ(render("a:\n{%- if on %}\n  b: 1\n{%- endif %}\nc"), "a:\n  b: 1\nc");
  EXPECT_EQ(render("{#- comment {{ x }} -#}\n a{# b #}c"), "ac");
}

TEST(Template, FiltersTransformValuesAndBlocks) {
  EXPECT_EQ(render("{{ words | tojson }} {{ name|tojson }} {{ 'a\"b' | tojson }}"),
            "[\"a\",\"b\",\"c\"] \"mnist\" \"a\\\"b\"");
  EXPECT_EQ(render("{{ missing | default('x') }} {{ name | default('x') }} {{ pod.no | default(3) }}"), "x mnist 3");
  EXPECT_EQ(render("{{ 'a\\nb\\n\\nc\\n' | indent }}"), "a\n    b\n\n    c\n");
  EXPECT_EQ(render("{{ 'a\\nb' | indent(2, true) }}"), "  a\n  b");
  EXPECT_EQ(render("x: {% filter indent(3) %}{{ name }}\ny{% endfilter %}."), "x: mnist\n   y.");
}

TEST(Template, IncludesRenderOtherTemplates) {
  const TemplateFinder find = [](const std::string& name) -> std::optional<std::string> {
    if (name == "inner") return "{{ name }} {% for w in words %}{% include 'word' %}{% endfor %}\n";
    if (name == "word") return "{{ w }}\n";
    if (name == "self") return "{% include 'self' %}";
    if (name == "bad") return "\n\n{{ nam }}";
    return std::nullopt;
  };
  EXPECT_EQ(render("a {% include \"inner\" %}\nb", find), "a mnist abc\nb");
  EXPECT_THROWS(render("{% include 'none' %}", find), Error, "t.j2:1: include: unknown template \"none\"");
  EXPECT_THROWS(render("{% include 'none' %}"), Error, "t.j2:1: include: unknown template \"none\"");
  EXPECT_THROWS(render("{% include 'self' %}", find), Error,
                "self:1: include: templates are nested more than 8 levels deep");
  EXPECT_THROWS(render("{% include 'bad' %}", find), Error, "bad:3: unknown variable \"nam\"; did you mean \"name\"?");
}

void expect_mistake(const std::string& text, const std::string& message) {
  SCOPED_TRACE(text);
  EXPECT_THROWS(render(text), Error, message);
}

TEST(Template, WrongValuesAreReportedWithTheirLine) {
  expect_mistake(
      "\n{{ hots_count }}",
      "t.j2:2: unknown variable \"hots_count\"; did you mean \"hosts_count\"? defined: empty, hosts_count, name, "
      "nothing, off, on, pod, words");
  expect_mistake("{{ pod.imag }}", "t.j2:1: unknown member \"imag\"; did you mean \"image\"? defined: image, ports");
  expect_mistake("{{ missing.x | default(1) }}", "unknown variable \"missing\"");
  expect_mistake("{{ name.x }}", "cannot read member \"x\" of a string; only objects have members");
  expect_mistake("{{ words[7] }}", "index 7 is out of range for a list of 3");
  expect_mistake("{{ words['a'] }}",
                 "cannot index a list with a string; use a number for a list, a string for an object");
  expect_mistake("{{ words }}", "a list cannot be printed; use the filter tojson");
  expect_mistake("{{ pod }}", "an object cannot be printed; use the filter tojson");
  expect_mistake("{{ nothing }}", "null cannot be printed; set a value, or use default(...)");
  expect_mistake("{% if name < 2 %}{% endif %}", "cannot compare a string < a number; use two numbers or two strings");
  expect_mistake("{% for x in name %}{% endfor %}", "for: expected a list, found a string");
  expect_mistake("{{ name | uper }}", "unknown filter \"uper\"; known: default, indent, tojson");
  expect_mistake("{{ name | to_json }}", "unknown filter \"to_json\"; did you mean \"tojson\"?");
  expect_mistake("{{ name | default }}", "default takes 1 argument, not 0");
  expect_mistake("{{ name | tojson(1) }}", "tojson takes 0 arguments, not 1");
  expect_mistake("{{ name | indent(1,2,3) }}", "indent takes 0 or 2 arguments, not 3");
  expect_mistake("{{ name | indent('x') }}",
                 "indent: expected a string and a width from 0 to 1000, found a string and \"x\"");
}

TEST(Template, SyntaxErrorsAreReportedWithTheirLine) {
  expect_mistake("{{ name | indent(1 }}", "missing \")\" after the arguments of indent; found the end of the tag, }}");
  expect_mistake("{{ name | }}", "expected the name of a filter; found the end of the tag, }}");
  expect_mistake("a\n{{ name", "t.j2:2: the tag {{ is not closed by }}");
  expect_mistake("{% if on", "t.j2:1: the tag {% is not closed by %}");
  expect_mistake("{# x", "t.j2:1: the comment {# is not closed by #}");
  expect_mistake("{{ }}", "expected a value; found the end of the tag, }}");
  expect_mistake("{{ and }}", "expected a value; found \"and\"");
  expect_mistake("{{ name name }}", "expected }}; found \"name\"");
  expect_mistake("{{ (name }}", "missing \")\"; found the end of the tag, }}");
  expect_mistake("{{ words[1 }}", "missing \"]\"; found the end of the tag, }}");
  expect_mistake("{{ pod.1 }}", "expected a name after \".\"; found \"1\"");
  expect_mistake("{{ 1x }}", "\"1x\" is not a number");
  expect_mistake("{{ name is good }}", "expected \"defined\" or \"not defined\" after \"is\"; found \"good\"");
  expect_mistake("{{ name + 1 }}", "unexpected \"+\"");
  expect_mistake("{{ \x01 }}", "unexpected \"\\x01\"");
  expect_mistake("{{ 'a }}", "a string is not closed by its quote");
  expect_mistake("{{ 'a\\q' }}", "unknown escape \\q in a string");
  expect_mistake("\n{% if on %}\n", "t.j2:2: {% if %} is not closed by {% endif %}");
  expect_mistake("{% for x in words %}{% endif %}",
                 "{% endif %} inside the {% for %} of line 1, which is not closed by {% endfor %}");
  expect_mistake("{% endif %}", "{% endif %} without an open block");
  expect_mistake("{% else %}", "{% else %} without an open block");
  expect_mistake("{% set x = 1 %}", "unknown tag {% set %}; known: if, elif, else, for, filter and include");
  expect_mistake("{% fo x in words %}", "unknown tag {% fo %}; did you mean \"for\"?");
  expect_mistake("{% for 1 in words %}{% endfor %}", "for: expected a name, as in {% for each in list %}");
  expect_mistake("{% for loop in words %}{% endfor %}",
                 "for: the name \"loop\" is reserved for the state of the loop; choose another name");
  expect_mistake("{% for x of words %}{% endfor %}", "for: expected \"in\" after x, as in {% for each in list %}");
  expect_mistake("{% include name %}", "include: expected the name of a template in quotes");
}

TEST(Template, NestingAndChainsAreLimited) {
  expect_mistake("{{ " + std::string(100, '(') + "1", "parentheses are nested more than 64 levels deep");
  expect_mistake("{{ pod" + std::string(100, '.'), "expected a name after \".\"");
  std::string deep, members = "{{ pod";
  for (int i = 0; i < 100; ++i) deep += "{% if on %}", members += ".a";
  expect_mistake(deep, "blocks are nested more than 64 levels deep");
  expect_mistake(members + " }}", "more than 64 members and indexes in a row");
  std::string many = "{{ on";
  for (int i = 0; i < 10'001; ++i) many += " or on";
  expect_mistake(many + " }}", "more than 256 chained operators and filters in one expression");
  std::string filters = "{{ a";
  for (int i = 0; i < 25'000; ++i) filters += " | default(1)";
  expect_mistake(filters + " }}", "more than 256 chained operators and filters in one expression");
  std::string pairs;
  for (int i = 0; i < 10'001; ++i) pairs += "{{ on or on }}";
  expect_mistake(pairs, "more than 10000 operators in one template");
}

TEST(Template, WorkAndResultAreLimited) {
  std::string loops, ends;
  for (int i = 0; i < 30; ++i) loops += fmt::format("{{% for x{} in words %}}", i), ends += "{% endfor %}";
  for (int i = 0; i < 100; ++i) loops += "{{ '' }}";
  EXPECT_THROWS(render(loops + ends), Error, "more than 1000000 texts, tags and loop iterations; shorten the loops");
  std::string quotes = "{{ '\"\"\"\"'";
  for (int i = 0; i < 100; ++i) quotes += " | tojson";
  EXPECT_THROWS(render(quotes + " }}"), Error, "the result is longer than 16777216 bytes");
  std::string indents = "{{ '" + std::string(10'000, 'x');
  for (int i = 0; i < 20'000; ++i) indents += "\\n";
  EXPECT_THROWS(render(indents + "' | indent(1000) }}"), Error, "the result is longer than 16777216 bytes");
}

// Any input either renders or throws Error.
TEST(Template, RandomTextNeverCrashes) {
  const std::vector<std::string> parts = {
      "{{",  "}}",      "{%",     "%}",        "{#",     "#}",     "-",     " ",        "\n",
      "if ", "elif ",   "else",   "endif",     "for ",   "in ",    "words", "name",     "pod",
      ".",   "[",       "]",      "(",         ")",      "|",      ",",     "==",       "<",
      "not", " and ",   " or ",   "'",         "\"",     "\\",     "1",     "-2.5",     "endfor",
      "is",  "defined", "filter", "endfilter", "indent", "tojson", "\xff",  "\xc3\xa4", "default"};
  std::mt19937 random(7);
  int rendered = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    const size_t count = random() % 24;
    for (size_t i = 0; i < count; ++i) text += parts[random() % parts.size()];
    try {
      render(text);
      ++rendered;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).substr(0, 5), "t.j2:") << text;
    }
  }
  EXPECT_GT(rendered, 1000);
}

}  // namespace
}  // namespace lockstep
