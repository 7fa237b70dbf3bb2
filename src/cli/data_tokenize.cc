#include "cli/data_tokenize.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "base/print_stderr.h"
#include "base/text_bytes.h"
#include "command/choice_check.h"
#include "command/help.h"
#include "command/number_check.h"
#include "command/runtime_flags.h"
#include "data/text/bpe_spec.h"
#include "data/text/tokenizer_files.h"
#include "lockstep/tokenizer.h"

namespace lockstep::cli {
namespace {

struct TokenizeArguments {
  std::vector<std::string> inputs;
  std::string tokenizer, output, format;
  double validation = 0;
  int threads = 0, vocabulary = 0;
  RuntimeFlags cache;
};

using TokenizeClock = std::chrono::steady_clock;

double seconds_since(TokenizeClock::time_point start) {
  return std::chrono::duration<double>(TokenizeClock::now() - start).count();
}
std::string count_files(size_t n) { return fmt::format("{} file{}", n, n == 1 ? "" : "s"); }
double megabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

// A line that shows how much text is tokenized, on a terminal only.
class TokenizeProgress {
 public:
  explicit TokenizeProgress(int64_t total) : total_(total) {}
  ~TokenizeProgress() {
    if (terminal_) write_stderr("\r\x1b[K");
  }
  TokenizeProgress(const TokenizeProgress&) = delete;
  TokenizeProgress& operator=(const TokenizeProgress&) = delete;

  void operator()(int64_t bytes) {
    if (!terminal_ || TokenizeClock::now() - last_ < std::chrono::milliseconds(100)) return;
    last_ = TokenizeClock::now();
    write_stderr(fmt::format("\r\x1b[K{:.1f} of {:.1f} MB, {:.0f} MB/s", megabytes(bytes), megabytes(total_),
                             megabytes(bytes) / seconds_since(start_)));
  }

 private:
  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  const TokenizeClock::time_point start_ = TokenizeClock::now();
  const int64_t total_;
  TokenizeClock::time_point last_ = {};
};

// The tokenizer goes beside the ids, which mean nothing without it: train.tokenizer.json for train.bin.
std::string tokenizer_path(const std::string& output) {
  return std::filesystem::path(output).replace_extension(".tokenizer.json").string();
}

detail::TokenFormat format_of(const TokenizeArguments& arguments, int64_t vocabulary) {
  constexpr int64_t kMost16 = 1 << 16;
  if (arguments.format == "llmc" || (arguments.format.empty() && vocabulary > kMost16))
    return detail::TokenFormat::header;
  return detail::TokenFormat::flat;
}

TokenizerPtr tokenizer_for(const std::string& spec, const detail::TextDocuments& documents) {
  if (spec != "chars") return load_tokenizer(spec);
  return char_tokenizer(detail::distinct_characters(documents));
}

int tokenize(const TokenizeArguments& arguments) {
  export_flags(arguments.cache);
  const detail::TextDocuments documents = detail::gather_documents(arguments.inputs, {});
  const TokenizerPtr tokenizer = tokenizer_for(arguments.tokenizer, documents);
  const int64_t bytes = detail::total_bytes(documents);
  const auto start = TokenizeClock::now();
  detail::TokenizeResult result;
  {
    TokenizeProgress progress(bytes);
    result = detail::tokenize_documents(documents, *tokenizer,
                                        {.output = arguments.output,
                                         .format = format_of(arguments, tokenizer->vocabulary()),
                                         .validation = arguments.validation,
                                         .threads = arguments.threads,
                                         .progress = [&](int64_t done) { progress(done); }});
  }
  const double seconds = seconds_since(start);
  const std::string stored = tokenizer_path(arguments.output);
  FileSystem::real().write_atomic(stored, text_bytes(tokenizer->to_json()));
  fmt::print("{:.2f} MB of text, {}: {} tokens of {} in {:.2f} s, {:.0f} MB/s\n", megabytes(bytes),
             count_files(documents.size()), result.tokens + result.validation_tokens, tokenizer->vocabulary(), seconds,
             megabytes(bytes) / seconds);
  fmt::print("{:>12} tokens in {}\n", result.tokens, arguments.output);
  if (arguments.validation > 0)
    fmt::print("{:>12} tokens in {}\n", result.validation_tokens, detail::validation_path(arguments.output));
  fmt::print("{:>12} in {}\n", "tokenizer", stored);
  return 0;
}

int train_tokenizer_file(const TokenizeArguments& arguments) {
  export_flags(arguments.cache);
  const detail::TextDocuments documents = detail::gather_documents(arguments.inputs, {});
  const auto start = TokenizeClock::now();
  const TokenizerPtr tokenizer = detail::train_on_documents(documents, arguments.vocabulary, arguments.output);
  FileSystem::real().write_atomic(arguments.output, text_bytes(tokenizer->to_json()));
  fmt::print("{:.2f} MB of text, {}: {} tokens in {:.2f} s\n", megabytes(detail::total_bytes(documents)),
             count_files(documents.size()), tokenizer->vocabulary(), seconds_since(start));
  if (tokenizer->vocabulary() < arguments.vocabulary)
    print_stderr("lockstep: the text has only {} tokens; more text is needed for a vocabulary of {}\n",
                 tokenizer->vocabulary(), arguments.vocabulary);
  fmt::print("tokenizer in {}\n", arguments.output);
  return 0;
}

void add_inputs(CLI::App& command, TokenizeArguments& arguments) {
  command
      .add_option("INPUT", arguments.inputs, "text files, folders with *.txt and *.md, or named sets such as moby-dick")
      ->required();
}

}  // namespace

void add_tokenizer_commands(CLI::App& data, Action& action) {
  auto arguments = std::make_shared<TokenizeArguments>();
  CLI::App* tokenizer = data.add_subcommand("tokenize", "turn text into a file of token ids");
  add_inputs(*tokenizer, *arguments);
  tokenizer
      ->add_option("--tokenizer", arguments->tokenizer,
                   "bytes, chars, gpt2, a tokenizer.json, or a folder with vocab.json and merges.txt")
      ->type_name("SPEC")
      ->required();
  tokenizer->add_option("-o,--output", arguments->output, "the file of token ids")->type_name("FILE")->required();
  tokenizer
      ->add_option("--format", arguments->format,
                   "nanogpt: 16-bit ids and nothing else; llmc: with a header (default: nanogpt if the ids fit)")
      ->check(one_of({"nanogpt", "llmc"}));
  tokenizer
      ->add_option("--validation", arguments->validation,
                   "the share of the text, from its end, for a second file: val.bin for train.bin, else NAME_val.bin")
      ->type_name("SHARE");
  tokenizer->add_option("--threads", arguments->threads, "threads that tokenize (default: one for each CPU)")
      ->type_name("N")
      ->check(integer_between(1, 1024));
  add_runtime_flags(*tokenizer, arguments->cache, {SettingGroup::cache});
  add_examples(*tokenizer, {"lockstep data tokenize --tokenizer gpt2 book.txt -o book.bin",
                            "lockstep data tokenize --tokenizer bytes sotu -o train.bin --validation 0.1"});
  tokenizer->callback([arguments, &action] { action = [arguments] { return tokenize(*arguments); }; });

  CLI::App* trainer = data.add_subcommand("train-tokenizer", "learn a byte-level BPE tokenizer from text");
  add_inputs(*trainer, *arguments);
  trainer->add_option("--vocabulary", arguments->vocabulary, "number of tokens: 256 bytes, <|endoftext|>, merges")
      ->type_name("N")
      ->required()
      ->check(integer_between(257, static_cast<int>(detail::kMaxVocabulary)));
  trainer->add_option("-o,--output", arguments->output, "the tokenizer.json")->type_name("FILE")->required();
  add_runtime_flags(*trainer, arguments->cache, {SettingGroup::cache});
  add_examples(*trainer, {"lockstep data train-tokenizer sotu --vocabulary 8000 -o tokenizer.json",
                          "lockstep data train-tokenizer *.txt --vocabulary 512 -o tokenizer.json"});
  trainer->callback([arguments, &action] { action = [arguments] { return train_tokenizer_file(*arguments); }; });
}

}  // namespace lockstep::cli
