#include "base/names.h"

#include "base/throws.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

const std::vector<std::string> kWords = {"batch_size", "learning_rate", "eval_every", "eval_batch", "adam", "adamw"};

TEST(Names, SimilarWordsAreSuggested) {
  EXPECT_EQ(suggestion("batchsize", kWords), " did you mean \"batch_size\"?");
  EXPECT_EQ(suggestion("lerning-rate", kWords), " did you mean \"learning_rate\"?");
  EXPECT_EQ(suggestion("adammw", kWords), " did you mean \"adamw\"?");
  EXPECT_EQ(suggestion("adam", kWords), " did you mean \"adam\"?");
}

TEST(Names, SwappedLettersCountOnce) {
  EXPECT_EQ(suggestion("adma", kWords), " did you mean \"adam\"?");
  EXPECT_EQ(suggestion("jbo", {"job", "pod"}), " did you mean \"job\"?");
  EXPECT_EQ(suggestion("kubrenetse", {"slurm", "kubernetes"}), " did you mean \"kubernetes\"?");
}

TEST(Names, PrefixesAndInitialsAreSuggested) {
  EXPECT_EQ(suggestion("learning", kWords), " did you mean \"learning_rate\"?");
  EXPECT_EQ(suggestion("lr", kWords), " did you mean \"learning_rate\"?");
  EXPECT_EQ(suggestion("--bs", {"--batch-size", "--seed"}), " did you mean \"--batch-size\"?");
}

TEST(Names, DissimilarWordsAreNotSuggested) {
  for (const char* word : {"", "-", "--", "le", "xyzzy", "learning_rates_of_all"})
    EXPECT_EQ(suggestion(word, kWords), "");
  EXPECT_EQ(suggestion("ab", {"cd"}), "");  // every letter differs
  EXPECT_EQ(suggestion("--fi", {"--on"}), "");
  EXPECT_EQ(suggestion("fish", {"bash", "zsh"}), "");  // two of four letters differ
  EXPECT_EQ(suggestion("xml", {"yaml", "json"}), "");
  EXPECT_EQ(suggestion("x", {}), "");
}

TEST(Names, UnknownNameErrorListsTheChoices) {
  EXPECT_THROWS(throw_unknown_name("optimizer", "adm", {"sgd", "adam", "adamw"}), Error,
                "optimizer: unknown value \"adm\"; choose sgd, adam or adamw; did you mean \"adam\"?");
  EXPECT_THROWS(throw_unknown_name("optimizer", "xyzzy", {"sgd"}), Error, "unknown value \"xyzzy\"; choose sgd");
}

}  // namespace
}  // namespace lockstep
