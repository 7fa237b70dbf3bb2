// BpeTokenizer: byte-level byte-pair encoding. Immutable and safe from any thread: calls that run at the same time use
// different caches.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/text/bpe_merger.h"
#include "data/text/bpe_spec.h"
#include "lockstep/tokenizer.h"

namespace lockstep::detail {

// Finds added tokens in a text: the leftmost one, and of those at one place the longest.
class AddedTokenFinder {
 public:
  // Finds the tokens of the list that are normalized, or those that are not. REQUIRES: the list outlives the finder.
  AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalized);

  struct Match {
    size_t begin = 0, end = 0;
    const AddedToken* token = nullptr;  // null: no match
  };
  // REQUIRES: from <= text.size().
  Match find(std::string_view text, size_t from) const;

 private:
  const std::vector<AddedToken>& tokens_;
  // A trie: (node << 8 | byte) -> node, and the token that ends at a node. Node 0 is the root.
  std::unordered_map<uint64_t, uint32_t> nodes_;
  std::vector<int32_t> token_at_;
  std::array<bool, 256> starts_ = {};
};

class BpeTokenizer final : public Tokenizer {
 public:
  // REQUIRES: the ids of merges, added tokens and the template are ids of tokens.
  explicit BpeTokenizer(BpeSpec spec);
  ~BpeTokenizer() override;

  std::string name() const override { return spec_.name; }
  int64_t vocabulary() const override { return static_cast<int64_t>(spec_.tokens.size()); }
  std::optional<int32_t> end_of_text() const override;
  std::optional<int32_t> id_of(std::string_view token) const override;
  void append_ids(std::string_view text, std::vector<int32_t>& ids, const EncodeOptions& options) const override;
  size_t safe_cut(std::string_view text) const override;
  std::string_view token_bytes(int32_t id) const override;
  std::string to_json() const override { return tokenizer_json(spec_); }

  const BpeSpec& spec() const { return spec_; }

 private:
  class ScratchLoan;

  void append_text(std::string_view text, BpeScratch& scratch, std::vector<int32_t>& ids, bool special) const;
  void append_piece(std::string_view text, BpeScratch& scratch, std::vector<int32_t>& ids) const;

  const BpeSpec spec_;
  const std::vector<std::string> bytes_;  // by id
  const BpeMerger merger_;
  const std::vector<AddedToken> found_;  // the added tokens, with their content normalized where they are found so
  const AddedTokenFinder plain_added_, normalized_added_;
  std::unordered_map<std::string_view, int32_t> ids_;  // by the text of the token
  bool can_cut_ = false;

  mutable std::mutex mutex_;  // of the unused scratch memory
  mutable std::vector<std::unique_ptr<BpeScratch>> unused_;
};

}  // namespace lockstep::detail
