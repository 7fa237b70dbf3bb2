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

TEST(Template, TextStaysAsItIs) {
  EXPECT_EQ(render(""), "");
  EXPECT_EQ(render("a: {b}\n  c: }} %} #}"), "a: {b}\n  c: }} %} #}");
  EXPECT_EQ(render("{"), "{");
}

TEST(Template, OneLineEndAtTheEndIsDropped) {
  EXPECT_EQ(render("a\n"), "a");
  EXPECT_EQ(render("a\n\n"), "a\n");
}

TEST(Template, ValuesAreWritten) {
  EXPECT_EQ(render("{{ hosts_count }} {{name}} {{ on }} {{ 'x' }} {{ \"y\\n\" }} {{ -3 }} {{ 1.5 }}"),
            "2 mnist true x y\n -3 1.5");
  EXPECT_EQ(render("{{ pod.image }} {{ pod['image'] }} {{ pod.ports[1] }} {{ words[-1] }}"), "x:1 x:1 81 c");
  EXPECT_EQ(render("{{ '}}' }}"), "}}");
}

TEST(Template, Conditions) {
  EXPECT_EQ(render("{% if on %}yes{% else %}no{% endif %}"), "yes");
  EXPECT_EQ(render("{% if off %}a{% elif hosts_count == 2 %}b{% else %}c{% endif %}"), "b");
  EXPECT_EQ(render("{% if off %}a{% elif off %}b{% elif off %}c{% else %}d{% endif %}!"), "d!");
  EXPECT_EQ(render("{% if off %}a{% endif %}b"), "b");
  EXPECT_EQ(render("{% if on %}{% if off %}a{% endif %}b{% endif %}c"), "bc");
}

TEST(Template, OperatorsBindAsInJinja) {
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

TEST(Template, Loops) {
  EXPECT_EQ(render("{% for w in words %}{{ loop.index }}{{ w }}{% if not loop.last %},{% endif %}{% endfor %}"),
            "1a,2b,3c");
  EXPECT_EQ(render("{% for w in words %}{% for v in words %}{{ w }}{{ v }}{{ loop.index0 }} {% endfor %}{% endfor %}"),
            "aa0 ab1 ac2 ba0 bb1 bc2 ca0 cb1 cc2 ");
  EXPECT_EQ(render("{% for w in empty %}x{% endfor %}{{ name }}"), "mnist");
  EXPECT_EQ(render("{% for name in words %}{{ name }}{% endfor %}{{ name }}"), "abcmnist");
  EXPECT_THROWS(render("{% for w in words %}{% endfor %}{{ w }}"), Error, "there is no variable \"w\"");
}

TEST(Template, DashesTrimWhitespace) {
  EXPECT_EQ(render("a  \n {{- name -}} \n b"), "amnistb");
  EXPECT_EQ(render("a:\n{%- if on %}\n  b: 1\n{%- endif %}\nc"), "a:\n  b: 1\nc");
  EXPECT_EQ(render("{#- comment {{ x }} -#}\n a{# b #}c"), "ac");
}

TEST(Template, Filters) {
  EXPECT_EQ(render("{{ words | tojson }} {{ name|tojson }} {{ 'a\"b' | tojson }}"),
            "[\"a\",\"b\",\"c\"] \"mnist\" \"a\\\"b\"");
  EXPECT_EQ(render("{{ missing | default('x') }} {{ name | default('x') }} {{ pod.no | default(3) }}"), "x mnist 3");
  EXPECT_EQ(render("{{ 'a\\nb\\n\\nc\\n' | indent }}"), "a\n    b\n\n    c\n");
  EXPECT_EQ(render("{{ 'a\\nb' | indent(2, true) }}"), "  a\n  b");
  EXPECT_EQ(render("x: {% filter indent(3) %}{{ name }}\ny{% endfilter %}."), "x: mnist\n   y.");
}

TEST(Template, IncludesOthers) {
  const TemplateFinder find = [](const std::string& name) -> std::optional<std::string> {
    if (name == "inner") return "{{ name }} {% for w in words %}{% include 'word' %}{% endfor %}\n";
    if (name == "word") return "{{ w }}\n";
    if (name == "self") return "{% include 'self' %}";
    if (name == "bad") return "\n\n{{ nam }}";
    return std::nullopt;
  };
  EXPECT_EQ(render("a {% include \"inner\" %}\nb", find), "a mnist abc\nb");
  EXPECT_THROWS(render("{% include 'none' %}", find), Error, "t.j2:1: include: there is no template \"none\"");
  EXPECT_THROWS(render("{% include 'none' %}"), Error, "t.j2:1: include: there is no template \"none\"");
  EXPECT_THROWS(render("{% include 'self' %}", find), Error,
                "self:1: include: more than 8 templates within each other");
  EXPECT_THROWS(render("{% include 'bad' %}", find), Error,
                "bad:3: there is no variable \"nam\"; did you mean \"name\"?");
}

TEST(Template, MistakesNameThePlace) {
  const auto expect = [](const std::string& text, const std::string& message) {
    SCOPED_TRACE(text);
    EXPECT_THROWS(render(text), Error, message);
  };
  expect(
      "\n{{ hots_count }}",
      "t.j2:2: there is no variable \"hots_count\"; did you mean \"hosts_count\"? there are empty, hosts_count, name, "
      "nothing, off, on, pod, words");
  expect("{{ pod.imag }}", "t.j2:1: there is no member \"imag\"; did you mean \"image\"? there are image, ports");
  expect("{{ missing.x | default(1) }}", "there is no variable \"missing\"");
  expect("{{ name.x }}", "\".x\" of a text; only objects have members");
  expect("{{ words[7] }}", "there is no [7] in a list of 3");
  expect("{{ words['a'] }}", "[a text] of a list; a list has numbers, an object names");
  expect("{{ words }}", "a list cannot be written as it is; use the filter tojson");
  expect("{{ pod }}", "an object cannot be written as it is; use the filter tojson");
  expect("{{ nothing }}", "nothing (null) cannot be written as it is; give it a value, or use default(...)");
  expect("{% if name < 2 %}{% endif %}", "< of a text and a number; two numbers or two texts are needed");
  expect("{% for x in name %}{% endfor %}", "for: a list is needed, and this is a text");
  expect("{{ name | uper }}", "there is no filter \"uper\"; there are default, indent, tojson");
  expect("{{ name | to_json }}", "there is no filter \"to_json\"; did you mean \"tojson\"?");
  expect("{{ name | default }}", "default takes 1 argument, not 0");
  expect("{{ name | tojson(1) }}", "tojson takes 0 arguments, not 1");
  expect("{{ name | indent(1,2,3) }}", "indent takes 0 or 2 arguments, not 3");
  expect("{{ name | indent('x') }}", "indent: a text and a width from 0 to 1000 are needed, not a text and \"x\"");
  expect("{{ name | indent(1 }}", "a \")\" is missing after the arguments of indent, and the tag ends: }}");
  expect("{{ name | }}", "the name of a filter is needed, and the tag ends: }}");
  expect("a\n{{ name", "t.j2:2: a tag {{ has no end }}");
  expect("{% if on", "t.j2:1: a tag {% has no end %}");
  expect("{# x", "t.j2:1: a comment {# has no end #}");
  expect("{{ }}", "a value is needed, and the tag ends: }}");
  expect("{{ and }}", "a value is needed, and here is \"and\"");
  expect("{{ name name }}", "the end }} is needed, and here is \"name\"");
  expect("{{ (name }}", "a \")\" is missing, and the tag ends: }}");
  expect("{{ words[1 }}", "a \"]\" is missing, and the tag ends: }}");
  expect("{{ pod.1 }}", "a name is needed after \".\", and here is \"1\"");
  expect("{{ 1x }}", "\"1x\" is not a number");
  expect("{{ name is good }}", "after \"is\" comes \"defined\" or \"not defined\", and here is \"good\"");
  expect("{{ name + 1 }}", "\"+\" means nothing here");
  expect("{{ \x01 }}", "\"\\x01\" means nothing here");
  expect("{{ 'a }}", "a text in quotes has no end");
  expect("{{ 'a\\q' }}", "\\q is not known in a text");
  expect("\n{% if on %}\n", "t.j2:2: {% if %} has no {% endif %}");
  expect("{% for x in words %}{% endif %}", "{% endif %} stands in the {% for %} of line 1, which has no {% endfor %}");
  expect("{% endif %}", "{% endif %} ends nothing");
  expect("{% else %}", "{% else %} ends nothing");
  expect("{% set x = 1 %}", "there is no {% set %} here; there are if, elif, else, for, filter and include");
  expect("{% fo x in words %}", "there is no {% fo %} here; did you mean \"for\"?");
  expect("{% for 1 in words %}{% endfor %}", "for: a name is needed: {% for each in list %}");
  expect("{% for loop in words %}{% endfor %}", "for: \"loop\" tells about the loop itself; choose another name");
  expect("{% for x of words %}{% endfor %}", "for: \"in\" is needed after x: {% for each in list %}");
  expect("{% include name %}", "include: the name of a template in quotes is needed");
  expect("{{ " + std::string(100, '(') + "1", "more than 64 parentheses lie within each other");
  expect("{{ pod" + std::string(100, '.'), "a name is needed after \".\"");
  std::string deep, members = "{{ pod";
  for (int i = 0; i < 100; ++i) deep += "{% if on %}", members += ".a";
  expect(deep, "more than 64 blocks lie within each other");
  expect(members + " }}", "more than 64 members of members");
  std::string many = "{{ on";
  for (int i = 0; i < 10'001; ++i) many += " or on";
  expect(many + " }}", "more than 256 operators and filters follow each other in one expression");
  std::string filters = "{{ a";
  for (int i = 0; i < 25'000; ++i) filters += " | default(1)";
  expect(filters + " }}", "more than 256 operators and filters follow each other in one expression");
  std::string pairs;
  for (int i = 0; i < 10'001; ++i) pairs += "{{ on or on }}";
  expect(pairs, "more than 10000 operators in one template");
}

TEST(Template, WorkAndTextAreLimited) {
  std::string loops, ends;
  for (int i = 0; i < 30; ++i) loops += fmt::format("{{% for x{} in words %}}", i), ends += "{% endfor %}";
  EXPECT_THROWS(render(loops + ends), Error, "more than 1000000 pieces are rendered; are loops too long?");
  std::string quotes = "{{ '\"\"\"\"'";
  for (int i = 0; i < 100; ++i) quotes += " | tojson";
  EXPECT_THROWS(render(quotes + " }}"), Error, "the text grows beyond 16777216 bytes");
  std::string indents = "{{ '" + std::string(10'000, 'x');
  for (int i = 0; i < 20'000; ++i) indents += "\\n";
  EXPECT_THROWS(render(indents + "' | indent(1000) }}"), Error, "the text grows beyond 16777216 bytes");
}

// Whatever the text, the answer is a text or an Error.
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
