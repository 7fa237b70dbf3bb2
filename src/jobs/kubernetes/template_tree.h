// The syntax tree of a template: a list of nodes that contain expressions. Plain values.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::detail {

struct TemplateExpression {
  enum class Kind {
    literal,    // value
    name,       // text
    member,     // parts[0] . text
    element,    // parts[0] [ parts[1] ]
    filter,     // parts[0] | text(parts[1], parts[2]...)
    defined,    // parts[0] is defined
    negation,   // not parts[0]
    both,       // parts[0] and parts[1]
    either,     // parts[0] or parts[1]
    comparison  // parts[0] text parts[1]
  };
  Kind kind = Kind::literal;
  int line = 1;
  std::string text = {};
  nlohmann::ordered_json value = {};
  std::vector<TemplateExpression> parts = {};
  int height = 1;  // of the tree, limited because evaluation is recursive
};

struct TemplateNode {
  enum class Kind {
    text,       // text
    output,     // {{ expression }}
    condition,  // {% if expression %} body {% else %} other; an elif is the only node in `other`
    loop,       // {% for text in expression %} body
    filter,     // {% filter ... %} body: expression is the filter; its parts[0] is a placeholder for the body
    include     // {% include "text" %}
  };
  Kind kind = Kind::text;
  int line = 1;
  std::string text = {};
  TemplateExpression expression = {};
  std::vector<TemplateNode> body = {}, other = {};
};

// Throws Error with name and line.
std::vector<TemplateNode> parse_template(const std::string& name, const std::string& text);

// The names of all filters.
const std::vector<std::string>& template_filters();

}  // namespace lockstep::detail
