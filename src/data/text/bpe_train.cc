// Learns merges: counts the words of the texts, then merges the most frequent pair of tokens until the vocabulary is
// complete. Of equally frequent pairs the one with the smaller ids goes first, so the result does not depend on the
// machine.
//
// `places` of a pair are the words that may contain it; a merge visits only these.
#include <algorithm>
#include <queue>
#include <set>
#include <unordered_map>

#include "base/check.h"
#include "data/text/bpe_tokenizer.h"

namespace lockstep {
namespace detail {
namespace {

constexpr const char* kEndOfText = "<|endoftext|>";

struct CountedWord {
  std::vector<int32_t> ids;
  int64_t count = 0;
};

// The distinct words of the texts, in the order of their bytes.
std::vector<CountedWord> count_words(std::span<const std::string_view> texts,
                                     const std::array<int32_t, 256>& byte_ids) {
  std::unordered_map<std::string_view, int64_t> counts;
  for (const std::string_view text : texts) {
    const char* const end = text.data() + text.size();
    for (const char* at = text.data(); at < end;) {
      const char* next = word_end(WordRule::gpt2, at, end);
      ++counts[{at, static_cast<size_t>(next - at)}];
      at = next;
    }
  }
  std::vector<std::pair<std::string_view, int64_t>> sorted(counts.begin(), counts.end());
  std::ranges::sort(sorted);
  std::vector<CountedWord> words;
  for (const auto& [text, count] : sorted) {
    CountedWord word{.ids = {}, .count = count};
    for (const char c : text) word.ids.push_back(byte_ids[static_cast<uint8_t>(c)]);
    if (word.ids.size() > 1) words.push_back(std::move(word));
  }
  return words;
}

using IdPair = std::pair<int32_t, int32_t>;

class MergeLearner {
 public:
  explicit MergeLearner(std::vector<CountedWord> words) : words_(std::move(words)) {
    for (size_t w = 0; w < words_.size(); ++w)
      for (size_t i = 0; i + 1 < words_[w].ids.size(); ++i) add(w, {words_[w].ids[i], words_[w].ids[i + 1]});
    for (const auto& [key, entry] : pairs_) candidates_.push({entry.count, pair_of(key)});
  }

  // The most frequent pair; empty if there is none.
  std::optional<IdPair> next() {
    while (!candidates_.empty()) {
      const Candidate best = candidates_.top();
      candidates_.pop();
      const auto at = pairs_.find(key_of(best.pair));
      const int64_t count = at == pairs_.end() ? 0 : at->second.count;
      if (count == best.count) return best.pair;
      // The count has changed since. Pairs that became more frequent have a newer candidate.
      if (count > 0 && count < best.count) candidates_.push({count, best.pair});
    }
    return std::nullopt;
  }

  // Replaces the pair by this id everywhere.
  void merge(IdPair pair, int32_t id) {
    const std::vector<uint32_t> places = std::move(pairs_[key_of(pair)].places);
    pairs_.erase(key_of(pair));
    grown_.clear();
    for (const uint32_t word : places) merge_in_word(word, pair, id);
    std::ranges::sort(grown_);
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const IdPair& each : grown_)
      if (const auto at = pairs_.find(key_of(each)); at != pairs_.end() && at->second.count > 0)
        candidates_.push({at->second.count, each});
  }

 private:
  struct PairEntry {
    int64_t count = 0;
    std::vector<uint32_t> places;
  };
  struct Candidate {
    int64_t count;
    IdPair pair;
    friend bool operator<(const Candidate& a, const Candidate& b) {
      return a.count != b.count ? a.count < b.count : a.pair > b.pair;
    }
  };

  static uint64_t key_of(IdPair pair) {
    return static_cast<uint64_t>(static_cast<uint32_t>(pair.first)) << 32 | static_cast<uint32_t>(pair.second);
  }
  static IdPair pair_of(uint64_t key) {
    return {static_cast<int32_t>(key >> 32), static_cast<int32_t>(key & 0xffffffff)};
  }

  void add(size_t word, IdPair pair) {
    PairEntry& entry = pairs_[key_of(pair)];
    entry.count += words_[word].count;
    if (entry.places.empty() || entry.places.back() != word) entry.places.push_back(static_cast<uint32_t>(word));
  }

  void merge_in_word(uint32_t word, IdPair pair, int32_t id) {
    std::vector<int32_t>& ids = words_[word].ids;
    const int64_t count = words_[word].count;
    const auto remove = [&](IdPair old) {
      if (const auto at = pairs_.find(key_of(old)); at != pairs_.end()) at->second.count -= count;
    };
    size_t out = 0;
    bool just_merged = false;  // the id before this one
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool found = i + 1 < ids.size() && ids[i] == pair.first && ids[i + 1] == pair.second;
      if (!found) {
        ids[out++] = ids[i];
        just_merged = false;
        continue;
      }
      if (out > 0) {
        // A merge just before this one has already removed the pair between them.
        if (!just_merged) remove({ids[out - 1], pair.first});
        grow(word, {ids[out - 1], id});
      }
      if (i + 2 < ids.size()) {
        remove({pair.second, ids[i + 2]});
        // If a merge follows at once, it adds the pair between them.
        const bool follows = i + 3 < ids.size() && ids[i + 2] == pair.first && ids[i + 3] == pair.second;
        if (!follows) grow(word, {id, ids[i + 2]});
      }
      ids[out++] = id;
      just_merged = true;
      ++i;
    }
    ids.resize(out);
  }

  void grow(uint32_t word, IdPair pair) {
    add(word, pair);
    grown_.push_back(pair);
  }

  std::vector<CountedWord> words_;
  std::unordered_map<uint64_t, PairEntry> pairs_;
  std::priority_queue<Candidate> candidates_;
  std::vector<IdPair> grown_;  // pairs that became more frequent
};

}  // namespace
}  // namespace detail

TokenizerPtr train_tokenizer(std::span<const std::string_view> texts, int64_t vocabulary, const std::string& name) {
  constexpr int64_t kLeast = 257;
  if (vocabulary < kLeast || vocabulary > detail::kMaxVocabulary)
    throw_error("train tokenizer: the vocabulary is {}; it must have 256 bytes and {}, so at least {}, and at most {}",
                vocabulary, detail::kEndOfText, kLeast, detail::kMaxVocabulary);
  if (std::ranges::all_of(texts, [](std::string_view text) { return text.empty(); }))
    throw_error("train tokenizer: the texts are empty; give files with text");

  detail::BpeSpec spec;
  spec.name = name;
  spec.rules = {detail::WordRule::gpt2};
  // Bytes in the order of their symbols, as in GPT-2's vocabulary.
  for (int byte = 0; byte < 256; ++byte) detail::append_symbol(static_cast<uint8_t>(byte), spec.tokens.emplace_back());
  std::ranges::sort(spec.tokens);
  std::array<int32_t, 256> byte_ids = {};
  for (size_t id = 0; id < spec.tokens.size(); ++id)
    byte_ids[static_cast<uint8_t>(detail::bytes_of_symbols(spec.tokens[id])->front())] = static_cast<int32_t>(id);

  // Different pairs may make the same token, and a pair may occur again after it was merged.
  std::unordered_map<std::string, int32_t> ids;
  std::set<detail::IdPair> merged;
  detail::MergeLearner learner(detail::count_words(texts, byte_ids));
  while (static_cast<int64_t>(spec.tokens.size()) < vocabulary - 1) {
    const std::optional<detail::IdPair> pair = learner.next();
    if (!pair) break;
    const auto& [left, right] = *pair;
    std::string token = spec.tokens[static_cast<size_t>(left)] + spec.tokens[static_cast<size_t>(right)];
    const auto [at, is_new] = ids.try_emplace(token, static_cast<int32_t>(spec.tokens.size()));
    if (is_new) spec.tokens.push_back(std::move(token));
    learner.merge(*pair, at->second);
    if (merged.insert(*pair).second) spec.merges.push_back({left, right, at->second});
  }
  const auto end_of_text = static_cast<int32_t>(spec.tokens.size());
  spec.tokens.emplace_back(detail::kEndOfText);
  spec.added.push_back(
      {.content = detail::kEndOfText, .id = end_of_text, .special = true, .normalized = false, .in_vocabulary = true});
  return std::make_shared<const detail::BpeTokenizer>(std::move(spec));
}

}  // namespace lockstep
