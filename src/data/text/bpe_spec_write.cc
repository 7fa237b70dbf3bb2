#include <nlohmann/json.hpp>

#include "data/text/bpe_spec.h"

namespace lockstep::detail {
namespace {

using Ordered = nlohmann::ordered_json;

Ordered added_json(const std::vector<AddedToken>& tokens) {
  Ordered list = Ordered::array();
  for (const AddedToken& token : tokens)
    list.push_back({{"id", token.id},
                    {"content", token.content},
                    {"single_word", token.single_word},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  return list;
}

Ordered words_json(const BpeSpec& spec) {
  std::vector<WordRule> rules = spec.rules;
  const bool use_regex = !rules.empty() && rules.back() == WordRule::gpt2;
  if (use_regex) rules.pop_back();
  Ordered steps = Ordered::array();
  for (const WordRule rule : rules) {
    if (rule == WordRule::digits) {
      steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
    } else {
      steps.push_back(
          {{"type", "Split"}, {"pattern", {{"Regex", regex_of(rule)}}}, {"behavior", "Isolated"}, {"invert", false}});
    }
  }
  steps.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", spec.add_prefix_space},
                   {"trim_offsets", true},
                   {"use_regex", use_regex}});
  if (steps.size() == 1) return steps[0];
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

Ordered template_json(const BpeSpec& spec) {
  const Ordered byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}};
  if (spec.prefix.empty() && spec.suffix.empty()) return byte_level;
  Ordered single = Ordered::array(), specials = Ordered::object();
  const auto add = [&](const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) {
      const std::string& token = spec.tokens[static_cast<size_t>(id)];
      single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
      specials[token] = {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
    }
  };
  const auto add_text = [](Ordered& items, const char* text, int type) {
    items.push_back({{"Sequence", {{"id", text}, {"type_id", type}}}});
  };
  add(spec.prefix);
  add_text(single, "A", 0);
  add(spec.suffix);
  Ordered pair = Ordered::array();
  add_text(pair, "A", 0);
  add_text(pair, "B", 1);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", specials}};
}

// Writes an object or list of a model line by line: these are long, and ordered_json inserts in linear time.
std::string model_json(const BpeSpec& spec) {
  const auto quoted = [](const std::string& text) { return Ordered(text).dump(); };
  std::vector<bool> only_added(spec.tokens.size());
  for (const AddedToken& token : spec.added)
    if (!token.in_vocabulary) only_added[static_cast<size_t>(token.id)] = true;

  std::string out = "{\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": ";
  out += spec.unknown ? quoted(spec.tokens[static_cast<size_t>(*spec.unknown)]) : "null";
  out += ",\n    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": ";
  out += spec.fuse_unknown ? "true" : "false";
  out += ",\n    \"byte_fallback\": false,\n    \"ignore_merges\": ";
  out += spec.ignore_merges ? "true" : "false";
  out += ",\n    \"vocab\": {";
  const char* separator = "\n";
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.tokens[id].empty() || only_added[id]) continue;
    out += separator + ("      " + quoted(spec.tokens[id])) + ": " + std::to_string(id);
    separator = ",\n";
  }
  out += "\n    },\n    \"merges\": [";
  separator = "\n";
  for (const BpeMerge& merge : spec.merges) {
    const std::string &left = spec.tokens[static_cast<size_t>(merge.left)],
                      &right = spec.tokens[static_cast<size_t>(merge.right)];
    out += separator + ("      [" + quoted(left)) + ", " + quoted(right) + "]";
    separator = ",\n";
  }
  return out + "\n    ]\n  }";
}

}  // namespace

std::string tokenizer_json(const BpeSpec& spec) {
  Ordered head = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  head["added_tokens"] = added_json(spec.added);
  head["normalizer"] = spec.nfc ? Ordered{{"type", "NFC"}} : Ordered(nullptr);
  head["pre_tokenizer"] = words_json(spec);
  head["post_processor"] = template_json(spec);
  head["decoder"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  std::string text = head.dump(2);
  text.resize(text.rfind('\n'));
  return text + ",\n  \"model\": " + model_json(spec) + "\n}\n";
}

}  // namespace lockstep::detail
