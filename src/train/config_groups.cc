#include <charconv>
#include <cmath>
#include <set>

#include "base/check.h"
#include "base/names.h"
#include "train/config.h"

namespace lockstep {
namespace {

// A group under construction.
class GroupText {
 public:
  explicit GroupText(std::string_view text) : text_(text) {}

  [[noreturn]] void refuse(const std::string& why) const {
    throw_error(
        "group: \"{}\" {}; write PATTERN=SETTINGS with rate:FACTOR, decay:X, optimizer:NAME or frozen, separated by "
        "commas, such as '*embed*=rate:0.1,decay:0'",
        text_, why);
  }

  // Applies one setting, such as "rate:0.1".
  void add(std::string_view item) {
    const size_t colon = std::min(item.find(':'), item.size());
    const std::string name(item.substr(0, colon));
    const std::string_view value = item.substr(std::min(colon + 1, item.size()));
    if (name == "frozen" && colon == item.size())
      group.frozen = true;
    else if (name == "rate")
      group.rate = number(name, value);
    else if (name == "decay")
      group.weight_decay = number(name, value);
    else if (name == "optimizer")
      group.kind = optimizer_kind(value);
    else
      refuse(fmt::format("has the unknown setting \"{}\"{}{}", item, suggestion(name, kNames).empty() ? "" : ";",
                         suggestion(name, kNames)));
    if (!seen_.insert(name).second) refuse(fmt::format("has {} twice", name));
  }

  void check_complete() const {
    if (group.frozen && seen_.size() > 1) refuse("freezes the parameters, so its other settings have no effect");
  }

  ParameterGroup group;

 private:
  double number(const std::string& name, std::string_view value) const {
    double out = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
    if (value.empty() || error != std::errc() || end != value.data() + value.size() || !std::isfinite(out) || out < 0)
      refuse(fmt::format("has the {} \"{}\", which is not a number of at least 0", name, value));
    return out;
  }

  inline static const std::vector<std::string> kNames = {"rate", "decay", "optimizer", "frozen"};
  std::string_view text_;
  std::set<std::string> seen_;
};

}  // namespace

ParameterGroup parse_parameter_group(std::string_view given) {
  GroupText out(given);
  std::string text;
  for (const char c : given)
    if (c != ' ' && c != '\t') text += c;
  // The last =, because a pattern may contain one too.
  const size_t equals = text.rfind('=');
  if (equals == text.npos) out.refuse("has no =");
  if (equals == 0) out.refuse("has no pattern");
  out.group.pattern = text.substr(0, equals);
  const std::string_view settings = std::string_view(text).substr(equals + 1);
  for (size_t at = 0; at <= settings.size();) {
    const size_t comma = std::min(settings.find(',', at), settings.size());
    if (comma == at) out.refuse("has an empty setting");
    out.add(settings.substr(at, comma - at));
    at = comma + 1;
  }
  out.check_complete();
  return out.group;
}

std::vector<ParameterGroup> make_parameter_groups(const TrainConfig& config) {
  std::vector<ParameterGroup> out;
  for (const std::string& text : config.group) out.push_back(parse_parameter_group(text));
  return out;
}

}  // namespace lockstep
