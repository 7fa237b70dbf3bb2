#include "jobs/model/manifest_field.h"

#include <algorithm>

#include "base/check.h"
#include "base/names.h"

namespace lockstep {
namespace {

constexpr size_t kLongestShown = 60;

// A value as a message shows it.
std::string shown(const nlohmann::ordered_json& value) {
  if (value.is_object()) return "a map";
  if (value.is_array()) return "a list";
  std::string text = value.dump();
  if (text.size() <= kLongestShown) return text;
  size_t end = kLongestShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

}  // namespace

Field Field::child(const nlohmann::ordered_json& value, std::string path) const {
  Field out = *this;
  out.value_ = &value;
  out.path_ = std::move(path);
  return out;
}

std::string Field::place() const {
  if (path_.empty()) return fmt::format("{}:{}", *source_, document_->line);
  const auto found = document_->lines.find(path_);
  return found == document_->lines.end() ? *source_ : fmt::format("{}:{}", *source_, found->second);
}

void Field::fail(const std::string& what) const {
  throw_error("{}: {} {}", place(), path_.empty() ? "the manifest" : path_, what);
}

std::optional<Field> Field::find(std::string_view key) const {
  if (!value_->is_object()) fail(fmt::format("is {}; a map is wanted, with the field {}", shown(*value_), key));
  const auto found = value_->find(std::string(key));
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return child(*found, path_of(path_, key));
}

Field Field::need(std::string_view key, std::string_view remedy) const {
  const std::optional<Field> found = find(key);
  if (!found) fail(fmt::format("has no {}; {}", key, remedy));
  return *found;
}

std::vector<Field> Field::elements() const {
  if (!value_->is_array())
    fail(fmt::format("is {}; a list is wanted: one line with `- ` for each element", shown(*value_)));
  std::vector<Field> out;
  for (size_t i = 0; i < value_->size(); ++i) out.push_back(child((*value_)[i], path_of(path_, i)));
  return out;
}

void Field::allow(const std::vector<std::string>& keys,
                  const std::vector<std::pair<std::string, std::string>>& elsewhere) const {
  if (!value_->is_object()) fail(fmt::format("is {}; a map is wanted", shown(*value_)));
  for (const auto& [key, value] : value_->items()) {
    if (std::ranges::find(keys, key) != keys.end()) continue;
    const Field wrong = child(value, path_of(path_, key));
    for (const auto& [name, home] : elsewhere)
      if (name == key) wrong.fail(fmt::format("is in the wrong place; it belongs to {}", home));
    const std::string meant = suggestion(key, keys);
    std::string list;
    for (size_t i = 0; i < keys.size() && meant.empty(); ++i) list += (i == 0 ? "" : ", ") + keys[i];
    wrong.fail(meant.empty() ? "is no field that is known there; those are " + list
                             : "is no field that is known there;" + meant);
  }
}

std::string Field::text() const {
  if (value_->is_string()) return value_->get<std::string>();
  fail(value_->is_structured()
           ? fmt::format("is {}; text is wanted", shown(*value_))
           : fmt::format("is {}; text is wanted: write it in quotes, \"{}\"", shown(*value_), value_->dump()));
}

bool Field::boolean() const {
  if (!value_->is_boolean()) fail(fmt::format("is {}; write true or false", shown(*value_)));
  return value_->get<bool>();
}

int64_t Field::integer(int64_t least, int64_t most, std::string_view remedy) const {
  const bool fits = value_->is_number_integer() &&
                    (!value_->is_number_unsigned() || value_->get<uint64_t>() <= uint64_t{INT64_MAX}) &&
                    value_->get<int64_t>() >= least && value_->get<int64_t>() <= most;
  if (!fits)
    fail(fmt::format("is {}; give a whole number from {} to {}{}{}{}", shown(*value_), least, most,
                     value_->is_string() ? " without quotes" : "", remedy.empty() ? "" : ": ", remedy));
  return value_->get<int64_t>();
}

size_t Field::choice(const std::vector<std::string>& names) const {
  const std::string name = value_->is_string() ? value_->get<std::string>() : shown(*value_);
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  std::string list;
  for (size_t i = 0; i < names.size(); ++i) list += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  const std::string meant = suggestion(name, names);
  fail(fmt::format("is {}; choose {}{}{}", shown(*value_), list, meant.empty() ? "" : ";", meant));
}

}  // namespace lockstep
