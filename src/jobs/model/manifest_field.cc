#include "jobs/model/manifest_field.h"

#include <algorithm>

#include "base/check.h"
#include "base/names.h"

namespace lockstep {
namespace {

constexpr size_t kMaxShownBytes = 60;

// The value for an error message, truncated at a UTF-8 character boundary.
std::string shown(const nlohmann::ordered_json& value) {
  if (value.is_object()) return "a map";
  if (value.is_array()) return "a list";
  std::string text = value.dump();
  if (text.size() <= kMaxShownBytes) return text;
  size_t end = kMaxShownBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

}  // namespace

ManifestField ManifestField::child(const nlohmann::ordered_json& value, std::string path) const {
  ManifestField out = *this;
  out.value_ = &value;
  out.path_ = std::move(path);
  return out;
}

std::string ManifestField::location() const {
  if (path_.empty()) return fmt::format("{}:{}", *source_, document_->line);
  const auto found = document_->lines.find(path_);
  return found == document_->lines.end() ? *source_ : fmt::format("{}:{}", *source_, found->second);
}

void ManifestField::fail(const std::string& what) const {
  throw_error("{}: {} {}", location(), path_.empty() ? "the manifest" : path_, what);
}

std::optional<ManifestField> ManifestField::find(std::string_view key) const {
  if (!value_->is_object()) fail(fmt::format("is {}; expected a map with the field {}", shown(*value_), key));
  const auto found = value_->find(std::string(key));
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return child(*found, path_of(path_, key));
}

ManifestField ManifestField::require(std::string_view key, std::string_view remedy) const {
  const std::optional<ManifestField> found = find(key);
  if (!found) fail(fmt::format("has no {}; {}", key, remedy));
  return *found;
}

std::vector<ManifestField> ManifestField::elements() const {
  if (!value_->is_array())
    fail(fmt::format("is {}; expected a list: write one line with `- ` for each element", shown(*value_)));
  std::vector<ManifestField> out;
  for (size_t i = 0; i < value_->size(); ++i) out.push_back(child((*value_)[i], path_of(path_, i)));
  return out;
}

void ManifestField::allow_only(const std::vector<std::string>& keys,
                               const std::vector<std::pair<std::string, std::string>>& elsewhere) const {
  if (!value_->is_object()) fail(fmt::format("is {}; expected a map", shown(*value_)));
  for (const auto& [key, value] : value_->items()) {
    if (std::ranges::find(keys, key) != keys.end()) continue;
    const ManifestField wrong = child(value, path_of(path_, key));
    for (const auto& [name, home] : elsewhere)
      if (name == key) wrong.fail(fmt::format("is in the wrong place; move it to {}", home));
    const std::string meant = suggestion(key, keys);
    std::string list;
    for (size_t i = 0; i < keys.size() && meant.empty(); ++i) list += (i == 0 ? "" : ", ") + keys[i];
    wrong.fail(meant.empty() ? "is an unknown field; known fields: " + list : "is an unknown field;" + meant);
  }
}

std::string ManifestField::text() const {
  if (value_->is_string()) return value_->get<std::string>();
  fail(value_->is_structured()
           ? fmt::format("is {}; expected a string", shown(*value_))
           : fmt::format("is {}; expected a string: write it in quotes, \"{}\"", shown(*value_), value_->dump()));
}

bool ManifestField::boolean() const {
  if (!value_->is_boolean()) fail(fmt::format("is {}; write true or false", shown(*value_)));
  return value_->get<bool>();
}

int64_t ManifestField::integer(int64_t least, int64_t most, std::string_view remedy) const {
  const bool fits = value_->is_number_integer() &&
                    (!value_->is_number_unsigned() || value_->get<uint64_t>() <= uint64_t{INT64_MAX}) &&
                    value_->get<int64_t>() >= least && value_->get<int64_t>() <= most;
  if (!fits)
    fail(fmt::format("is {}; give a whole number from {} to {}{}{}{}", shown(*value_), least, most,
                     value_->is_string() ? " without quotes" : "", remedy.empty() ? "" : ": ", remedy));
  return value_->get<int64_t>();
}

size_t ManifestField::choice(const std::vector<std::string>& names) const {
  const std::string name = value_->is_string() ? value_->get<std::string>() : shown(*value_);
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  std::string list;
  for (size_t i = 0; i < names.size(); ++i) list += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  const std::string meant = suggestion(name, names);
  fail(fmt::format("is {}; choose {}{}{}", shown(*value_), list, meant.empty() ? "" : ";", meant));
}

}  // namespace lockstep
