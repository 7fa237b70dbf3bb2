// Static numbers that compile many versions, compiled functions as members, and policies of remat.
#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

std::string stderr_of(const std::function<void()>& f) {
  ::testing::internal::CaptureStderr();
  f();
  return ::testing::internal::GetCapturedStderr();
}

struct Step {
  Array x;
  float rate;
};

TEST(JitComfort, AStaticNumberOfManyValuesIsReportedOnce) {
  const auto f = jit([](Step s, int) { return s.x * s.rate; });
  const int line = __LINE__ - 1;
  const std::string text = stderr_of([&] {
    for (int i = 0; i < 20; ++i) f(Step{ones({2}), 0.5f * static_cast<float>(i)}, 3);
  });
  EXPECT_EQ(text, "jit: argument 0, rate of the function compiled at jit_comfort_test.cc:" + std::to_string(line) +
                      " is a static number and has had 8 values (0, 0.5, 1, ..., 3.5), each of which compiled a new "
                      "version; make it an Array (Array rate instead of float rate) to compile once\n");
}

TEST(JitComfort, NewShapesAndNamesAreNotReported) {
  const auto f = jit([](Array x, std::string, bool b) { return b ? x : -x; });
  EXPECT_EQ(stderr_of([&] {
              for (int i = 0; i < 10; ++i) f(ones({i}), "name", true);
              for (int i = 0; i < 10; ++i) f(ones({1}), "name" + std::to_string(i), true);
              for (int i = 0; i < 10; ++i) f(ones({i}), "name", false);
            }),
            "");
}

Array scaled_sum(Array x, Array y) { return sum(x * y); }

class Trainer {
 public:
  explicit Trainer(float bias) : shifted_(jit([bias](Array x) { return x + bias; })) {}
  Array operator()(const Array& x) const { return shifted_(doubled_(x)); }

 private:
  JitFunction<Array(Array)> doubled_ = jit([](Array x) { return 2 * x; });
  JitFunction<Array(Array)> shifted_;
};

TEST(JitComfort, AClassKeepsCompiledFunctions) {
  Trainer trainer(1);
  EXPECT_TEXT(trainer(array({1., 2.})), "f32[2] [3, 5]");
  const Trainer copy = trainer;
  EXPECT_TEXT(copy(3), "f32[] 7");
  JitFunction<Array(Array, Array)> f{scaled_sum, {.donate = {}}};
  EXPECT_EQ(f(array({1., 2.}), 2).item<float>(), 6);
  std::map<std::string, JitFunction<Array(Array)>> by_name{{"neg", jit([](Array x) { return -x; })}};
  EXPECT_TEXT(by_name.at("neg")(1), "i32[] -1");
}

// Two products, of which one has a batch dimension, and a named value.
Array block(const Array& x, const Array& w) {
  const Array h = checkpoint_name(tanh(matmul(x, w)), "hidden");
  const Array scores = einsum("bij,bkj->bik", h, h);
  return sum(sin(scores)) + sum(exp(h));
}

size_t count_of(const std::string& text, const std::string& word) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(word, at)) != text.npos; at += word.size()) ++n;
  return n;
}

// The ops of the compiled gradient under a policy, and the gradient.
std::pair<std::string, Array> gradient_under(const CheckpointPolicy& policy) {
  const Array x = reshape(arange(24, f32), {2, 3, 4}) / 24, w = reshape(arange(20, f32), {4, 5}) / 20;
  const auto g = jit(grad<1>(remat(block, {.policy = policy})));
  return {g.lowered(x, w), g(x, w)};
}

TEST(RematPolicies, GradientsAreEqualAndStoredValuesAreNotComputedAgain) {
  namespace policies = checkpoint_policies;
  const Array plain = [] {
    const Array x = reshape(arange(24, f32), {2, 3, 4}) / 24, w = reshape(arange(20, f32), {4, 5}) / 20;
    return jit(grad<1>(block))(x, w);
  }();
  const auto [nothing, all_again] = gradient_under(policies::nothing_saveable);
  const auto [everything, none_again] = gradient_under(policies::everything_saveable);
  const auto [dots, dots_stored] = gradient_under(policies::dots_saveable);
  const auto [weights, weights_stored] = gradient_under(policies::dots_with_no_batch_dims_saveable);
  const auto [named, named_stored] = gradient_under(policies::save_only_these_names({"hidden"}));
  const auto [but, but_stored] = gradient_under(policies::save_any_names_but_these({"hidden"}));
  const auto [except, except_stored] = gradient_under(policies::save_anything_except_these_names({"hidden"}));
  for (const Array& g : {all_again, none_again, dots_stored, weights_stored, named_stored, but_stored, except_stored})
    EXPECT_ELEMENTS(g, plain.to_vector<double>(), 1e-5);
  // Only the gradient is returned, so what it does not need is dropped: the forward products count where they are stored
  // or computed again.
  EXPECT_EQ(count_of(everything, "tanh"), 1u) << everything;
  EXPECT_LE(count_of(dots, "einsum"), count_of(nothing, "einsum"));
  EXPECT_EQ(count_of(named, "checkpoint_name"), 0u);
}

TEST(RematPolicies, StoreWhatTheyName) {
  const auto residuals = [](const CheckpointPolicy& policy) {
    const Array x = ones({2, 3, 4}), w = ones({4, 5});
    return program_text(grad<1>(remat(block, {.policy = policy})), x, w);
  };
  namespace policies = checkpoint_policies;
  const std::string named = residuals(policies::save_only_these_names({"hidden"}));
  const size_t body = named.find("remat[");
  ASSERT_NE(body, named.npos) << named;
  EXPECT_EQ(count_of(named.substr(body), "= tanh"), 0u) << named;  // stored, so the backward body does not compute it
  const std::string nothing = residuals(policies::nothing_saveable);
  EXPECT_EQ(count_of(nothing.substr(nothing.rfind("remat[")), "= tanh"), 1u) << nothing;
  EXPECT_THROWS(remat(block, {.policy = {"dots"}})(ones({2, 3, 4}), ones({4, 5})), Error, "remat: \"dots\" is not a policy");
  EXPECT_THROWS(checkpoint_name(ones({2}), "a,b"), Error, "checkpoint_name: \"a,b\" is not a name");
}

TEST(RematPolicies, WorkUnderVmapScanAndSecondGradients) {
  const auto f = remat([](Array x) { return sum(sin(checkpoint_name(x * x, "square"))); },
                       {.policy = checkpoint_policies::save_only_these_names({"square"})});
  const auto plain = [](Array x) { return sum(sin(x * x)); };
  const Array x = array({0.3, 0.7, -1.1});
  EXPECT_ELEMENTS(vmap(grad(f))(reshape(x, {3, 1})), vmap(grad(plain))(reshape(x, {3, 1})).to_vector<double>(), 1e-6);
  const auto second = [](auto g) { return grad([g](Array y) { return sum(grad(g)(y)); }); };
  EXPECT_ELEMENTS(second(f)(x), second(plain)(x).to_vector<double>(), 1e-5);
}

}  // namespace
}  // namespace lockstep
