#include "base/yaml.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "base/check.h"

namespace lockstep {
namespace {

// Counts the values and levels of a document from the events of the parser. The parser recurses once per level; throwing
// at the limit stops it.
class YamlChecker final : public YAML::EventHandler {
 public:
  YamlChecker(std::string_view source, const YamlLimits& limits) : source_(source), limits_(limits) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > limits_.documents) fail(mark, fmt::format("it has more than {} documents", limits_.documents));
    levels_ = {Level{}};
    anchors_.clear();
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add_leaf(mark, anchor, 0); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, const std::string& value) override {
    add_leaf(mark, anchor, value.size());
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto at = anchors_.find(anchor);
    if (at == anchors_.end()) fail(mark, "an alias is inside its own anchor");
    add(mark, at->second);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, anchor, false);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, anchor, true);
  }
  void OnMapEnd() override { close(); }

 private:
  // Totals of a value, aliases expanded.
  struct Sum {
    size_t values = 1;
    int depth = 0;  // levels inside it
  };
  struct Level {
    Sum sum = {};
    size_t children = 0;
    bool is_map = false;
    YAML::anchor_t anchor = 0;
    YAML::Mark mark = {};
  };

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& fact) const {
    throw_error("{}:{}: {}; shorten the text, and check for aliases that expand each other", source_, mark.line + 1,
                fact);
  }

  void add_leaf(const YAML::Mark& mark, YAML::anchor_t anchor, size_t bytes) {
    const Level& level = levels_.back();
    if (level.is_map && level.children % 2 == 0 && bytes > limits_.key_bytes)
      fail(mark, fmt::format("a key has {} bytes; the limit is {}", bytes, limits_.key_bytes));
    if (anchor != 0) anchors_[anchor] = {};
    add(mark, {});
  }

  // Adds a child to the innermost open value.
  void add(const YAML::Mark& mark, const Sum& child) {
    Level& level = levels_.back();
    ++level.children;
    if (level.is_map && level.children > 2 * limits_.keys)
      fail(mark, fmt::format("a map has more than {} keys", limits_.keys));
    level.sum.values += child.values;  // both are at most the limit: no overflow
    level.sum.depth = std::max(level.sum.depth, child.depth + 1);
    if (level.sum.values > limits_.values)
      fail(mark, fmt::format("a document has more than {} values", limits_.values));
    if (static_cast<int>(levels_.size()) + child.depth > limits_.depth + 1)
      fail(mark, fmt::format("more than {} maps or lists are nested", limits_.depth));
  }

  void open(const YAML::Mark& mark, YAML::anchor_t anchor, bool is_map) {
    if (static_cast<int>(levels_.size()) > limits_.depth)
      fail(mark, fmt::format("more than {} maps or lists are nested", limits_.depth));
    levels_.push_back({.is_map = is_map, .anchor = anchor, .mark = mark});
  }

  void close() {
    const Level level = levels_.back();
    levels_.pop_back();
    if (level.anchor != 0) anchors_[level.anchor] = level.sum;
    add(level.mark, level.sum);
  }

  const std::string_view source_;
  const YamlLimits& limits_;
  size_t documents_ = 0;
  std::vector<Level> levels_;              // the document and the open values in it
  std::map<YAML::anchor_t, Sum> anchors_;  // of complete values
};

}  // namespace

std::vector<YAML::Node> load_yaml(const std::string& text, std::string_view source, const YamlLimits& limits) {
  if (text.size() > limits.bytes)
    throw_error("{}: the YAML text has {} bytes; the limit is {}", source, text.size(), limits.bytes);
  std::istringstream in(text);
  YAML::Parser parser(in);
  YamlChecker checker(source, limits);
  while (parser.HandleNextDocument(checker)) {
  }
  return YAML::LoadAll(text);
}

}  // namespace lockstep
