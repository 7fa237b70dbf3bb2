// Compares imported models with golden.json, and writes the logits of exported ones; see run.sh:
// hf_logits GOLDEN RUNS EXPORTED LOGITS_JSON.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "lockstep/checkpoint.h"
#include "lockstep/hf.h"
#include "lockstep/math.h"
#include "lockstep/random.h"
#include "lockstep/tree.h"
#include "train/gpt_settings.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
constexpr double kTolerance = 1e-4;

// [batch][length] tokens -> [batch][length][vocabulary] logits.
Json logits_of(const GptConfig& config, const Gpt& params, const Json& tokens) {
  std::vector<int32_t> ids;
  for (const Json& row : tokens)
    for (const Json& id : row) ids.push_back(id);
  const auto batch = static_cast<int64_t>(tokens.size()), length = static_cast<int64_t>(tokens[0].size());
  const Array logits = apply(config, params, Array::from(ids, {batch, length}), {});
  const std::vector<float> values = logits.to_vector<float>();
  Json out = Json::array();
  auto at = values.begin();
  for (int64_t b = 0; b < batch; ++b) {
    out.push_back(Json::array());
    for (int64_t t = 0; t < length; ++t, at += config.vocabulary)
      out.back().push_back(std::vector<float>(at, at + config.vocabulary));
  }
  return out;
}

double largest_difference(const Json& a, const Json& b) {
  if (a.is_number()) return std::abs(a.get<double>() - b.get<double>()) / (1 + std::abs(b.get<double>()));
  if (a.size() != b.size()) throw std::runtime_error("the logits have other shapes");
  double out = 0;
  for (size_t i = 0; i < a.size(); ++i) out = std::max(out, largest_difference(a[i], b[i]));
  return out;
}

Json read_json(const std::filesystem::path& path) { return Json::parse(std::ifstream(path)); }

Json check_golden(const std::filesystem::path& golden, const std::filesystem::path& run) {
  const Json wanted = read_json(golden / "golden.json");
  const StoredGpt stored = gpt_of(find_checkpoint("", run, {}).value(), run);
  const Json logits = logits_of(stored.config, stored.params, wanted["tokens"]);
  const double difference = largest_difference(logits, wanted["logits"]);
  std::printf("%s: difference %.2e\n", golden.c_str(), difference);
  if (!(difference < kTolerance)) throw std::runtime_error(golden.string() + ": the logits differ");
  return {{"tokens", wanted["tokens"]}, {"logits", logits}};
}

// Exports a new model with a tokenizer. Returns what check_export.py compares.
Json export_new(const GptConfig& config, const TokenizerPtr& tokenizer, const std::filesystem::path& folder) {
  int64_t leaf = 0;
  const Gpt params = tree_map(
      [&](const Array& a) { return a + 0.1f * random::normal(random::fold_in(random::key(4), leaf++), a.shape()); },
      create_gpt(config, random::key(1)));
  save_hf(folder, config, params, {.tokenizer = tokenizer.get()});
  const Json tokens = Json::array({tokenizer->encode("the cat and the dog"), tokenizer->encode("dog and cat the the")});
  Json texts = Json::array();
  for (const char* text : {"the dog", "cat\n and  the\ttdog", " "}) texts.push_back({text, tokenizer->encode(text)});
  return {{"tokens", tokens}, {"logits", logits_of(config, params, tokens)}, {"texts", texts}};
}

void run(char** argv) {
  const std::filesystem::path golden = argv[1], runs = argv[2], exported = argv[3];
  Json all = Json::object();
  for (const auto& entry : std::filesystem::directory_iterator(golden))
    all[entry.path().filename()] = check_golden(entry.path(), runs / entry.path().filename());
  const std::string corpus = "the cat and the dog\n\t";
  GptConfig config{.context = 32, .layers = 2, .heads = 4, .width = 32};
  config.vocabulary = 256;
  all["bytes"] = export_new(config, byte_tokenizer(), exported / "bytes");
  const TokenizerPtr characters = char_tokenizer(corpus);
  GptConfig plain = gpt_config("char-small");
  plain.vocabulary = characters->vocabulary();
  all["chars"] = export_new(plain, characters, exported / "chars");
  std::ofstream(argv[4]) << all.dump();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 5) return std::fprintf(stderr, "usage: hf_logits GOLDEN RUNS EXPORTED LOGITS_JSON\n"), 2;
  try {
    lockstep::run(argv);
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "hf_logits: %s\n", error.what()), 1;
  }
  return 0;
}
