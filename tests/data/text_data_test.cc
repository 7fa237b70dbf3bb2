#include "lockstep/text_data.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/text_bytes.h"
#include "base/throws.h"
#include "data/text/token_file.h"

namespace lockstep {
namespace {

// All targets of an evaluation, or of an epoch.
std::vector<int32_t> targets_of(const Source& source, int64_t epoch = 0) {
  const int64_t n = source.count(), context = source.fields()[1].example.shape[0];
  std::vector<int32_t> inputs(static_cast<size_t>(n * context)), targets(inputs.size());
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < n; ++i) rows.push_back(source.row(epoch, i));
  if (source.resident().empty()) {
    std::byte* const buffers[] = {reinterpret_cast<std::byte*>(inputs.data()),
                                  reinterpret_cast<std::byte*>(targets.data())};
    source.read(rows, buffers);
    return targets;
  }
  const Array positions = Array::from(std::vector<int32_t>(rows.begin(), rows.end()), {n});
  return source.gather(source.resident(), positions).at("targets").to_vector<int32_t>();
}

class OpenTextData : public testing::Test {
 protected:
  OpenTextData() {
    for (int i = 0; text_.size() < 5000; ++i) text_ += "Line " + std::to_string(i * i) + " of the text.\n";
    options_.context = 32;
    options_.data.cache_dir = dir_.path() + "/cache";
    options_.data.progress = [this](const DataEvent& event) {
      if (event.kind == DataEvent::Kind::note) notes_ += std::string(event.text) + "\n";
    };
  }

  std::string put(const std::string& name, const std::string& text) const {
    const std::string path = dir_.path() + "/" + name;
    FileSystem::real().make_dirs(parent_dir(path));
    FileSystem::real().write(path, text_bytes(text));
    return path;
  }
  TextData open(const std::string& dataset) {
    options_.dataset = dataset;
    return open_text_data(options_);
  }
  std::vector<std::string> cached() const {
    const std::string folder = dir_.path() + "/cache/tokens";
    return FileSystem::real().exists(folder) ? FileSystem::real().list(folder) : std::vector<std::string>{};
  }

  const TempDir dir_;
  std::string text_;
  TextDataOptions options_;
  std::string notes_;
};

TEST_F(OpenTextData, TheLastTenthIsTheValidationSet) {
  const TextData data = open("text:" + put("a.txt", text_));
  const int64_t n = std::ssize(text_), train = n * 9 / 10;
  EXPECT_EQ(data.tokenizer->name(), "bytes") << "the default";
  EXPECT_EQ(data.vocabulary, 256);
  EXPECT_EQ(data.train_tokens, train);
  EXPECT_EQ(data.validation_tokens, n - train);
  EXPECT_EQ(data.bytes_per_token, 1);
  EXPECT_FALSE(data.streamed);
  EXPECT_EQ(data.train->count(), train / 32 - 1);
  std::vector<int32_t> ids = targets_of(*data.validation);
  ids.resize(static_cast<size_t>(n - train - 1));
  EXPECT_EQ(data.tokenizer->decode(ids), text_.substr(static_cast<size_t>(train + 1)));
  EXPECT_EQ(notes_, "");
  EXPECT_TRUE(cached().empty());
}

TEST_F(OpenTextData, ASetOfItsOwnIsTheValidationSet) {
  const std::string train = put("a.txt", text_), own = put("b.txt", "the validation text, with a Z");
  options_.tokenizer = "chars";
  const TextData data = open("text:" + train + "," + own);
  EXPECT_EQ(data.train_tokens, std::ssize(text_));
  EXPECT_EQ(data.validation_tokens, 29);
  EXPECT_EQ(data.tokenizer->name(), "chars");
  EXPECT_EQ(data.vocabulary, data.tokenizer->vocabulary());
  EXPECT_TRUE(data.tokenizer->id_of("Z")) << "the characters of both files";
  EXPECT_EQ(open("text:" + train + "," + train).validation_tokens, std::ssize(text_));
}

TEST_F(OpenTextData, WithoutAShareThereIsNoValidationSet) {
  options_.validation = 0;
  const TextData data = open("text:" + put("a.txt", text_));
  EXPECT_EQ(data.train_tokens, std::ssize(text_));
  EXPECT_EQ(data.validation, nullptr);
  EXPECT_EQ(data.validation_tokens, 0);
}

TEST_F(OpenTextData, StreamedEqualsResident) {
  put("set/a.txt", text_);
  put("set/b.txt", "\xe2\x82\xac " + text_);
  for (const char* tokenizer : {"bytes", "chars"}) {
    options_.tokenizer = tokenizer;
    options_.stream = "off";
    const TextData resident = open("text:" + dir_.path() + "/set");
    options_.stream = "on";
    const TextData streamed = open("text:" + dir_.path() + "/set");
    EXPECT_TRUE(streamed.streamed);
    EXPECT_EQ(resident.train_tokens, streamed.train_tokens);
    EXPECT_EQ(resident.vocabulary, streamed.vocabulary);
    EXPECT_EQ(resident.bytes_per_token, streamed.bytes_per_token);
    for (int64_t epoch = 0; epoch < 3; ++epoch)
      EXPECT_EQ(targets_of(*resident.train, epoch), targets_of(*streamed.train, epoch));
    EXPECT_EQ(targets_of(*resident.validation), targets_of(*streamed.validation));
  }
}

TEST_F(OpenTextData, StreamedTextIsTokenizedOnce) {
  options_.stream = "on";
  const std::string path = put("a.txt", text_);
  open("text:" + path);
  ASSERT_EQ(cached().size(), 1u);
  const std::string file = dir_.path() + "/cache/tokens/" + cached()[0];
  EXPECT_EQ(notes_, "tokenizing 0.0 MB of text:" + path + " with bytes into " + file + "\n");
  notes_.clear();
  open("text:" + path);
  EXPECT_EQ(notes_, "") << "the file in the cache is used";
  open("text:" + put("copy.txt", text_));
  EXPECT_EQ(notes_, "") << "names do not matter";

  options_.tokenizer = "chars";
  open("text:" + path);
  EXPECT_EQ(cached().size(), 2u) << "another tokenizer";
  put("a.txt", text_ + "more");
  open("text:" + path);
  EXPECT_EQ(cached().size(), 3u) << "another text";
}

TEST_F(OpenTextData, DamagedFileInTheCacheIsReplaced) {
  options_.stream = "on";
  const std::string path = put("a.txt", text_);
  const std::vector<int32_t> expected = targets_of(*open("text:" + path).train);
  const std::string file = dir_.path() + "/cache/tokens/" + cached()[0];
  std::vector<uint8_t> bytes = FileSystem::real().read_file(file);
  bytes.pop_back();
  FileSystem::real().write(file, bytes);
  notes_.clear();
  EXPECT_EQ(targets_of(*open("text:" + path).train), expected);
  EXPECT_NE(notes_.find("tokenizing "), std::string::npos);
}

TEST_F(OpenTextData, DocumentsAreSeparated) {
  put("set/1.txt", "first");
  put("set/2.md", "second");
  options_.context = 4;
  options_.validation = 0;
  const TextData bytes = open("text:" + dir_.path() + "/set");
  EXPECT_EQ(bytes.train_tokens, 12) << "a newline: bytes have no end-of-text token";

  const std::string_view texts[] = {"first second"};
  const TokenizerPtr trained = train_tokenizer(texts, 257);
  ASSERT_TRUE(trained->end_of_text());
  options_.tokenizer = put("tokenizer.json", trained->to_json());
  options_.validation = 0.99;  // all but the first token are in the validation set
  options_.context = 1;
  options_.dataset = "text:" + dir_.path() + "/set," + dir_.path() + "/set";
  const TextData words = open_text_data(options_);
  std::vector<int32_t> expected = trained->encode("first");
  expected.push_back(*trained->end_of_text());
  const std::vector<int32_t> second = trained->encode("second");
  expected.insert(expected.end(), second.begin(), second.end());
  expected.erase(expected.begin());
  EXPECT_EQ(targets_of(*words.validation), expected);
  const double bytes_of_targets = 11.0 - static_cast<double>(trained->token_bytes(trained->encode("first")[0]).size());
  EXPECT_DOUBLE_EQ(words.bytes_per_token * static_cast<double>(expected.size()), bytes_of_targets)
      << "the separator has no bytes";
}

TEST_F(OpenTextData, TokenFilesAreReadWithAndWithoutATokenizer) {
  std::vector<int32_t> ids;
  for (int i = 0; i < 1000; ++i) ids.push_back(i * 31 % 200);
  const std::string path = dir_.path() + "/tokens.bin";
  detail::write_token_file(path, ids, 256);
  for (const char* stream : {"off", "on", "auto"}) {
    options_.stream = stream;
    options_.tokenizer = "";
    options_.vocabulary = 0;
    const TextData plain = open("tokens:" + path);
    EXPECT_EQ(plain.vocabulary, 200) << "the largest token plus 1";
    EXPECT_EQ(plain.tokenizer, nullptr);
    EXPECT_EQ(plain.bytes_per_token, 0);
    EXPECT_EQ(plain.train_tokens, 900);
    EXPECT_EQ(plain.validation_tokens, 100);
    EXPECT_EQ(plain.streamed, options_.stream == "on");
    options_.vocabulary = 300;
    EXPECT_EQ(open("tokens:" + path).vocabulary, 300);
    options_.tokenizer = "bytes";
    const TextData bytes = open("tokens:" + path);
    EXPECT_EQ(bytes.vocabulary, 300);
    EXPECT_EQ(bytes.tokenizer->name(), "bytes");
    EXPECT_EQ(bytes.bytes_per_token, 1);
    EXPECT_EQ(targets_of(*bytes.validation), targets_of(*plain.validation));
    EXPECT_EQ(open("tokens:" + path + "," + path).validation_tokens, 1000);
  }
  EXPECT_TRUE(cached().empty()) << "token files are streamed where they are";
}

TEST_F(OpenTextData, TheTokenizerBesideATokenFileIsUsed) {
  const std::string path = dir_.path() + "/train.bin";
  const TokenizerPtr chars = char_tokenizer(text_);
  detail::write_token_file(path, chars->encode(text_), chars->vocabulary());
  EXPECT_EQ(open("tokens:" + path).tokenizer, nullptr);
  put("train.tokenizer.json", chars->to_json());
  const TextData data = open("tokens:" + path);
  ASSERT_NE(data.tokenizer, nullptr);
  EXPECT_EQ(data.tokenizer->to_json(), chars->to_json());
  EXPECT_EQ(data.vocabulary, chars->vocabulary());
  EXPECT_EQ(data.bytes_per_token, 1);
  options_.tokenizer = "bytes";
  EXPECT_EQ(open("tokens:" + path).tokenizer->name(), "bytes") << "the one that was chosen";
}

TEST_F(OpenTextData, TokensOutsideTheVocabularyAreErrors) {
  std::vector<int32_t> ids(1000, 5);
  ids[950] = 300;
  const std::string path = dir_.path() + "/tokens.bin";
  detail::write_token_file(path, ids, 400);
  options_.tokenizer = "bytes";
  const std::string message = path + " has token 300 at position 950, but the vocabulary has 256 tokens; use the";
  EXPECT_THROWS(open("tokens:" + path), Error, message);
  options_.stream = "on";
  options_.validation = 0;
  const TextData data = open("tokens:" + path);
  EXPECT_THROWS(targets_of(*data.train), Error, message);
}

TEST_F(OpenTextData, WrongOptionsAreErrors) {
  const std::string path = put("a.txt", text_);
  EXPECT_THROWS(open("mobydick"), Error,
                "text: \"mobydick\" is not a data set of text; choose moby-dick, sotu, text:FILE, text:FOLDER or");
  EXPECT_THROWS(open("mnist"), Error, "text: \"mnist\" is not a data set of text");
  EXPECT_THROWS(open("text:"), Error, "text: \"text:\" has an empty path; give one path, or TRAIN,");
  EXPECT_THROWS(open("text:a,b,c"), Error, "text: \"text:a,b,c\" has more than two paths; give one");
  EXPECT_THROWS(open("tokens:" + path + ","), Error, "has an empty path; give one path");
  EXPECT_THROWS(open("text:" + dir_.path() + "/none"), IoError, "No such file or directory");
  EXPECT_THROWS(open("tokens:" + dir_.path() + "/none"), IoError, "No such file or directory");

  options_.tokenizer = "chars";
  EXPECT_THROWS(open("tokens:" + path), Error, "has token ids, not characters; give the file of the tokenizer");
  options_.tokenizer = "bytes";
  options_.vocabulary = 100;
  EXPECT_THROWS(open("text:" + path), Error, "a vocabulary of 100 tokens, but the tokenizer bytes has 256");
  options_.vocabulary = -1;
  EXPECT_THROWS(open("text:" + path), Error, "a vocabulary of -1 tokens");
  options_.vocabulary = 0;
  options_.data.dir = "/d";
  EXPECT_THROWS(open("text:" + path), Error, "is given by its path, so the folder /d has no effect");
  options_.data.dir = "";
  for (const double share : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()}) {
    options_.validation = share;
    EXPECT_THROWS(open("text:" + path), Error, "text: a validation share of ");
  }
  options_.validation = 0.1;
  options_.stream = "maybe";
  EXPECT_THROWS(open("text:" + path), Error, "text: stream is \"maybe\"; use auto, on or off");
}

TEST_F(OpenTextData, TooLittleTextIsAnError) {
  for (const char* stream : {"off", "on"}) {
    options_.stream = stream;
    options_.context = 40;
    const std::string path = put("a.txt", "0123456789012345678901234567890123456789");
    EXPECT_THROWS(open("text:" + path), Error,
                  "the training part of text:" + path +
                      " has 36 tokens, but a window of context 40 needs at least 41; give more text or a smaller"
                      " context");
    options_.context = 8;
    options_.validation = 0.01;
    EXPECT_THROWS(open("text:" + path), Error,
                  "the validation part of text:" + path + " has 1 tokens, but a prediction needs at least 2");
    options_.validation = 0.1;
  }
}

TEST_F(OpenTextData, NamesAreRecognized) {
  for (const char* name : {"moby-dick", "sotu", "sotu,x", "text:x", "tokens:x"})
    EXPECT_TRUE(is_text_dataset(name)) << name;
  for (const char* name : {"mnist", "synthetic", "a,b", "csv:x", "", "text"})
    EXPECT_FALSE(is_text_dataset(name)) << name;
  EXPECT_EQ(text_dataset_paths("text:a,b"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(text_dataset_paths("text:a,text:b"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(text_dataset_paths("tokens:a,tokens:b"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(text_dataset_paths("moby-dick,b"), (std::vector<std::string>{"b"}));
  EXPECT_TRUE(text_dataset_paths("moby-dick").empty());
}

// Opens a named set with the machine's cache, or with npm. Skips the test where neither has it.
#define OPEN_NAMED(data, name)     \
  TextData data;                   \
  options_.data.cache_dir = "";    \
  try {                            \
    data = open(name);             \
  } catch (const IoError& error) { \
    GTEST_SKIP() << error.what();  \
  }

TEST_F(OpenTextData, MobyDickIsFetchedAndVerified) {
  options_.tokenizer = "chars";
  OPEN_NAMED(data, "moby-dick");
  EXPECT_EQ(data.vocabulary, 83);
  EXPECT_EQ(data.train_tokens + data.validation_tokens, 1190317);
  EXPECT_EQ(data.train_tokens, 1071285);
  EXPECT_GT(data.bytes_per_token, 1);
  EXPECT_LT(data.bytes_per_token, 1.1);
  const std::vector<int32_t> ids = targets_of(*part_of(data.train, 0, 1));
  const std::string start = data.tokenizer->decode(ids);
  EXPECT_NE(std::string("CHAPTER 1. Loomings.\n\nCall me Ishmael. Some years ago\xe2\x80\x94never mind how long")
                .find(start.substr(0, 10)),
            std::string::npos)
      << start;
}

TEST_F(OpenTextData, SotuHasOneDocumentPerAddress) {
  OPEN_NAMED(data, "sotu");
  EXPECT_EQ(data.train_tokens + data.validation_tokens, 10761413 + 232);
  EXPECT_EQ(data.vocabulary, 256);
}

TEST_F(OpenTextData, ANamedSetInAFolderIsVerified) {
  options_.data.dir = dir_.path() + "/moby";
  EXPECT_THROWS(
      open("moby-dick"), Error,
      options_.data.dir + " has no data.txt (raw or .gz); put the file there, run `lockstep data fetch moby-dick");
  put("moby/data.txt", "Call me Ishmael.");
  EXPECT_THROWS(open("moby-dick"), Error, "/moby/data.txt: the raw file has 16 bytes, but data.txt has 1204997");
  put("moby/data.txt", std::string(1204997, 'x'));
  EXPECT_THROWS(open("moby-dick"), Error, "/moby/data.txt is not the data.txt of moby-dick: its MD5 checksum is ");
}

}  // namespace
}  // namespace lockstep
