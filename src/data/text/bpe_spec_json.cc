#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/check.h"
#include "base/json.h"
#include "base/printable.h"
#include "data/text/bpe_spec.h"
#include "data/text/unicode.h"

namespace lockstep::detail {
namespace {

using Json = nlohmann::json;

// The code points of GPT-2's alphabet by byte.
std::array<uint16_t, 256> make_alphabet() {
  std::array<uint16_t, 256> codes = {};
  uint16_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable_itself = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    codes[static_cast<size_t>(byte)] = printable_itself ? static_cast<uint16_t>(byte) : next++;
  }
  return codes;
}

const std::array<uint16_t, 256>& byte_alphabet() {
  static const std::array<uint16_t, 256> codes = make_alphabet();
  return codes;
}

// The bytes by code point; -1: not in the alphabet.
const std::array<int16_t, 512>& bytes_of_codes() {
  static const std::array<int16_t, 512> bytes = [] {
    std::array<int16_t, 512> all;
    all.fill(-1);
    for (size_t byte = 0; byte < 256; ++byte) all[byte_alphabet()[byte]] = static_cast<int16_t>(byte);
    return all;
  }();
  return bytes;
}

using TokenIds = std::unordered_map<std::string_view, int32_t>;

// Reads the parts of a tokenizer.json one by one. Every message starts with the name of the tokenizer.
class SpecReader {
 public:
  explicit SpecReader(const std::string& name) : what_("tokenizer " + printable(name)) { spec_.name = name; }

  BpeSpec read(const Json& root) {
    if (!root.is_object()) fail("the JSON text is not an object; give a tokenizer.json of Hugging Face");
    const Json& model = part(root, "model");
    check_model(model);
    read_normalizer(part(root, "normalizer"));
    read_words(part(root, "pre_tokenizer"));
    read_vocabulary(part(model, "vocab"));
    for (const Json& merge : list_part(model, "merges")) read_merge(merge);
    for (const Json& token : list_part(root, "added_tokens")) read_added(token);
    read_unknown(model);
    read_template(part(root, "post_processor"));
    return std::move(spec_);
  }

  void read_vocabulary(const Json& vocabulary) {
    if (!vocabulary.is_object() || vocabulary.empty()) fail("the vocabulary is not an object with token: id");
    int64_t largest = 0;
    for (auto at = vocabulary.begin(); at != vocabulary.end(); ++at) largest = std::max(largest, id_of(*at, at.key()));
    spec_.tokens.resize(static_cast<size_t>(largest) + 1);
    for (auto at = vocabulary.begin(); at != vocabulary.end(); ++at) {
      set_token(at.key(), at->get<int32_t>());
      ids_.emplace(at.key(), at->get<int32_t>());  // the key stays valid: the JSON value outlives the reader
    }
  }

  void read_merge(std::string_view left, std::string_view right) {
    const size_t number = spec_.merges.size() + 1;
    const auto find = [&](std::string_view token, std::string_view role) {
      const auto at = ids_.find(token);
      if (at == ids_.end())
        fail("merge {} (\"{}\" and \"{}\") {} \"{}\", which is not in the vocabulary", number, printable(left),
             printable(right), role, printable(token));
      return at->second;
    };
    const int32_t left_id = find(left, "names"), right_id = find(right, "names");
    spec_.merges.push_back({left_id, right_id, find(std::string(left).append(right), "makes")});
  }

  void read_merge_line(std::string_view line) {
    const size_t space = line.find(' ');
    if (space == line.npos || space == 0 || space + 1 == line.size() || line.find(' ', space + 1) != line.npos)
      fail("merge {} is \"{}\"; a merge is two tokens with a space between them", spec_.merges.size() + 1,
           printable(line));
    read_merge(line.substr(0, space), line.substr(space + 1));
  }

  void add(AddedToken token) {
    if (token.content.empty()) fail("an added token with the id {} is empty", token.id);
    if (const auto at = ids_.find(token.content); at != ids_.end() && at->second != token.id)
      fail("the added token \"{}\" has the id {}, but the vocabulary gives it {}", printable(token.content), token.id,
           at->second);
    if (!added_.emplace(token.content, token.id).second)
      fail("the token \"{}\" is added twice", printable(token.content));
    if (static_cast<size_t>(token.id) >= spec_.tokens.size()) spec_.tokens.resize(static_cast<size_t>(token.id) + 1);
    set_token(token.content, token.id);
    token.in_vocabulary = ids_.contains(token.content);
    spec_.added.push_back(std::move(token));
  }

  const TokenIds& ids() const { return ids_; }
  BpeSpec& spec() { return spec_; }

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(what_ + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  // A member of an object; null if it has none.
  static const Json& part(const Json& object, const char* key) {
    static const Json none;
    const auto at = object.is_object() ? object.find(key) : object.end();
    return object.is_object() && at != object.end() ? *at : none;
  }
  const Json& list_part(const Json& object, const char* key) const {
    static const Json none = Json::array();
    const Json& found = part(object, key);
    if (found.is_null()) return none;
    if (!found.is_array()) fail("{} is {}; it must be a list", key, printable_json(found));
    return found;
  }
  bool flag(const Json& object, const char* key, bool otherwise) const {
    const Json& found = part(object, key);
    if (found.is_null()) return otherwise;
    if (!found.is_boolean()) fail("{} is {}; it must be true or false", key, printable_json(found));
    return found.get<bool>();
  }
  std::string text(const Json& object, const char* key) const {
    const Json& found = part(object, key);
    if (found.is_null()) return "";
    if (!found.is_string()) fail("{} is {}; it must be a string", key, printable_json(found));
    return found.get<std::string>();
  }
  int64_t id_of(const Json& id, std::string_view token) const {
    return integer_in(id, fmt::format("{}: the id of \"{}\"", what_, printable(token)), 0, kMaxVocabulary - 1);
  }

  void set_token(const std::string& token, int32_t id) {
    std::string& place = spec_.tokens[static_cast<size_t>(id)];
    if (!place.empty() && place != token)
      fail("the tokens \"{}\" and \"{}\" have the same id {}", printable(place), printable(token), id);
    place = token;
  }

  void check_model(const Json& model) const {
    if (!model.is_object()) fail("it has no model; give a tokenizer.json of Hugging Face");
    const std::string type = text(model, "type");
    if (!type.empty() && type != "BPE") fail("its model is {}; only byte-level BPE is supported", printable(type));
    if (const Json& dropout = part(model, "dropout"); dropout.is_number() && dropout.get<double>() != 0)
      fail("its dropout of merges is {}; only 0 is supported", dropout.get<double>());
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (const std::string value = text(model, key); !value.empty())
        fail("its {} is \"{}\"; only byte-level BPE is supported, which has none", key, printable(value));
  }

  void read_normalizer(const Json& normalizer) {
    if (normalizer.is_null()) return;
    const std::string type = text(normalizer, "type");
    if (type == "Sequence") {
      for (const Json& each : list_part(normalizer, "normalizers")) read_normalizer(each);
    } else if (type == "NFC") {
      spec_.nfc = true;
    } else {
      fail("its normalizer is {}; only NFC, or none, is supported", printable(type));
    }
  }

  void read_words(const Json& words) {
    std::vector<const Json*> steps;
    collect_steps(words, steps);
    bool is_byte_level = false;
    for (const Json* step : steps) {
      if (is_byte_level) fail("its pre_tokenizer has a step after ByteLevel; ByteLevel must be the last one");
      is_byte_level = read_step(*step);
    }
    if (!is_byte_level) fail("its pre_tokenizer does not end with ByteLevel; only byte-level BPE is supported");
  }

  void collect_steps(const Json& words, std::vector<const Json*>& steps) const {
    if (text(words, "type") != "Sequence") {
      if (!words.is_null()) steps.push_back(&words);
      return;
    }
    for (const Json& each : list_part(words, "pretokenizers")) collect_steps(each, steps);
  }

  // Reads one step; returns whether it is ByteLevel.
  bool read_step(const Json& step) {
    const std::string type = text(step, "type");
    if (type == "ByteLevel") {
      spec_.add_prefix_space = flag(step, "add_prefix_space", true);
      if (spec_.add_prefix_space && !spec_.rules.empty())
        fail("its pre_tokenizer adds a space after it has split the text; only a space before the text is supported");
      if (flag(step, "use_regex", true)) spec_.rules.push_back(WordRule::gpt2);
      return true;
    }
    if (type == "Split") {
      const Json& pattern = part(step, "pattern");
      const std::string behavior = text(step, "behavior");
      const bool invert = flag(step, "invert", false);
      if (!(behavior == "Isolated" && !invert) && !(behavior == "Removed" && invert))
        fail("its pre_tokenizer has a Split with the behavior {}{}; only Isolated is supported", printable(behavior),
             invert ? ", inverted" : "");
      if (part(pattern, "Regex").is_null())
        fail("its pre_tokenizer splits by {}; only regular expressions are supported", printable_json(pattern));
      spec_.rules.push_back(word_rule_of(text(pattern, "Regex"), what_));
      return false;
    }
    if (type == "Digits" && flag(step, "individual_digits", false)) {
      spec_.rules.push_back(WordRule::digits);
      return false;
    }
    fail("its pre_tokenizer has a step {}; supported are ByteLevel, Split and Digits with individual digits",
         printable_json(step));
  }

  void read_merge(const Json& merge) {
    if (merge.is_string()) return read_merge_line(merge.get_ref<const std::string&>());
    if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string())
      fail("merge {} is {}; a merge is a string or a pair of strings", spec_.merges.size() + 1, printable_json(merge));
    read_merge(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>());
  }

  void read_added(const Json& token) {
    if (!token.is_object()) fail("an added token is {}; it must be an object", printable_json(token));
    const std::string content = text(token, "content");
    add({.content = content,
         .id = static_cast<int32_t>(id_of(part(token, "id"), content)),
         .special = flag(token, "special", false),
         .single_word = flag(token, "single_word", false),
         .lstrip = flag(token, "lstrip", false),
         .rstrip = flag(token, "rstrip", false),
         .normalized = flag(token, "normalized", !flag(token, "special", false))});
  }

  void read_unknown(const Json& model) {
    spec_.ignore_merges = flag(model, "ignore_merges", false);
    spec_.fuse_unknown = flag(model, "fuse_unk", false);
    if (const std::string unknown = text(model, "unk_token"); !unknown.empty())
      spec_.unknown = find_token(unknown, "unk_token");
  }

  int32_t find_token(const std::string& token, const char* role) const {
    if (const auto at = ids_.find(token); at != ids_.end()) return at->second;
    if (const auto at = added_.find(token); at != added_.end()) return at->second;
    fail("its {} \"{}\" is not in the vocabulary", role, printable(token));
  }

  void read_template(const Json& processor) {
    const std::string type = text(processor, "type");
    if (processor.is_null() || type == "ByteLevel") return;
    if (type == "Sequence") {
      for (const Json& each : list_part(processor, "processors")) read_template(each);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      spec_.prefix = {id_of_pair(processor, "cls")};
      spec_.suffix = {id_of_pair(processor, "sep")};
    } else if (type == "TemplateProcessing") {
      read_template_items(processor);
    } else {
      fail(
          "its post_processor is {}; supported are ByteLevel, TemplateProcessing, RobertaProcessing and BertProcessing",
          printable_json(processor));
    }
  }

  int32_t id_of_pair(const Json& processor, const char* key) const {
    const Json& pair = part(processor, key);
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string())
      fail("the {} of its post_processor is {}; it must be a token and an id", key, printable_json(pair));
    return checked_id(pair[1], pair[0].get<std::string>());
  }

  int32_t checked_id(const Json& id, const std::string& token) const {
    const int64_t found = id_of(id, token);
    if (found >= static_cast<int64_t>(spec_.tokens.size()))
      fail("its post_processor names the id {} of \"{}\", but the vocabulary has {} ids", found, printable(token),
           spec_.tokens.size());
    return static_cast<int32_t>(found);
  }

  void read_template_items(const Json& processor) {
    const Json& specials = part(processor, "special_tokens");
    bool before = true;
    for (const Json& item : list_part(processor, "single")) {
      if (!part(item, "Sequence").is_null()) {
        before = false;
        continue;
      }
      const std::string token = text(part(item, "SpecialToken"), "id");
      for (const Json& id : list_part(part(specials, token.c_str()), "ids"))
        (before ? spec_.prefix : spec_.suffix).push_back(checked_id(id, token));
    }
  }

  std::string what_;
  BpeSpec spec_;
  TokenIds ids_;                                    // of the vocabulary
  std::unordered_map<std::string, int32_t> added_;  // ids of the added tokens
};

// Limits for vocabularies: their objects and lists are long.
constexpr JsonLimits kVocabularyLimits = {.bytes = static_cast<size_t>(kMaxTokenizerBytes),
                                          .values = 16'000'000,
                                          .keys = static_cast<size_t>(kMaxVocabulary),
                                          .key_bytes = size_t{1} << 16};

}  // namespace

std::optional<std::string> bytes_of_symbols(std::string_view symbols) {
  std::string bytes;
  const char* at = symbols.data();
  const char* const end = at + symbols.size();
  while (at < end) {
    const Utf8Character c = character_at(at, end);
    const int16_t byte = c.code < bytes_of_codes().size() ? bytes_of_codes()[c.code] : int16_t{-1};
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
    at += c.size;
  }
  if (bytes.empty()) return std::nullopt;
  return bytes;
}

void append_symbol(uint8_t byte, std::string& text) { append_utf8(byte_alphabet()[byte], text); }

BpeSpec parse_tokenizer_json(std::string_view json, const std::string& name) {
  const Json root = parse_json<Json>(json, "tokenizer " + printable(name), kVocabularyLimits);
  return SpecReader(name).read(root);
}

BpeSpec parse_vocabulary(std::string_view vocabulary, const std::string& vocabulary_path, std::string_view merges,
                         const std::string& merges_path, const std::string& name) {
  const Json tokens = parse_json<Json>(vocabulary, vocabulary_path, kVocabularyLimits);
  SpecReader reader(vocabulary_path);
  reader.read_vocabulary(tokens);
  reader.spec().name = name;
  reader.spec().rules = {WordRule::gpt2};
  for (size_t begin = 0, line = 1; begin < merges.size(); ++line) {
    const size_t end = std::min(merges.find('\n', begin), merges.size());
    std::string_view text = merges.substr(begin, end - begin);
    begin = end + 1;
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.empty() || (line == 1 && text.starts_with("#version"))) continue;
    try {
      reader.read_merge_line(text);
    } catch (const Error& error) {
      throw Error(fmt::format("{}, line {}: {}", merges_path, line, error.what()));
    }
  }
  if (const auto at = reader.ids().find("<|endoftext|>"); at != reader.ids().end())
    reader.add({.content = "<|endoftext|>", .id = at->second, .special = true, .normalized = false});
  return std::move(reader.spec());
}

}  // namespace lockstep::detail
