#include "data/text/text_spec.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "data/catalog.h"
#include "lockstep/text_data.h"

namespace lockstep {
namespace detail {
namespace {

constexpr std::string_view kTextPrefix = "text:", kTokensPrefix = "tokens:";

bool is_named_text(std::string_view name) {
  const std::vector<std::string> names = named_text_sets();
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The prefix of the paths of a validation set for this training set.
std::string_view prefix_of(TextSpec::Kind kind) { return kind == TextSpec::Kind::tokens ? kTokensPrefix : kTextPrefix; }

}  // namespace

std::vector<std::string> named_text_sets() {
  std::vector<std::string> out;
  for (const DatasetSpec& spec : catalog())
    if (spec.kind == DatasetKind::text) out.push_back(spec.name);
  return out;
}

TextSpec parse_text_spec(std::string_view dataset) {
  if (!is_text_dataset(dataset))
    throw_error("text: \"{}\" is not a data set of text; choose {}, text:FILE, text:FOLDER or tokens:FILE", dataset,
                fmt::join(named_text_sets(), ", "));
  TextSpec out;
  const size_t comma = dataset.find(',');
  std::string_view train = dataset.substr(0, comma);
  if (train.starts_with(kTextPrefix)) out.kind = TextSpec::Kind::text;
  if (train.starts_with(kTokensPrefix)) out.kind = TextSpec::Kind::tokens;
  if (out.kind != TextSpec::Kind::named) train.remove_prefix(prefix_of(out.kind).size());
  out.train = train;
  if (comma != dataset.npos) {
    std::string_view validation = dataset.substr(comma + 1);
    if (validation.starts_with(prefix_of(out.kind))) validation.remove_prefix(prefix_of(out.kind).size());
    out.validation = validation;
  }
  if (out.validation.find(',') != std::string::npos)
    throw_error("text: \"{}\" has more than two paths; give one, or TRAIN,VALIDATION", dataset);
  if (out.train.empty() || (comma != dataset.npos && out.validation.empty()))
    throw_error("text: \"{}\" has an empty path; give one path, or TRAIN,VALIDATION", dataset);
  return out;
}

}  // namespace detail

bool is_text_dataset(std::string_view dataset) {
  return dataset.starts_with(detail::kTextPrefix) || dataset.starts_with(detail::kTokensPrefix) ||
         detail::is_named_text(dataset.substr(0, dataset.find(',')));
}

std::vector<std::string> text_dataset_paths(std::string_view dataset) {
  const detail::TextSpec spec = detail::parse_text_spec(dataset);
  std::vector<std::string> out;
  if (spec.kind != detail::TextSpec::Kind::named) out.push_back(spec.train);
  if (!spec.validation.empty()) out.push_back(spec.validation);
  return out;
}

}  // namespace lockstep
