// Milliseconds per training step of a GPT, with AdamW and without dropout, for comparison with
// benchmarks/neighbours/gpt_torch.py and gpt_jax.py.
//
//   build/benchmarks/gpt [--platform cpu|cuda] [--cases char:f32,gpt2:bf16,gpt2:f8] [--steps 30]
//                        [--attention nn|recognized|plain] [--peak TFLOPS] [--plan on]
//
// Configurations: char, gpt2, gpt2-large, char-small; gpt2@16x2048 has another batch and length. --attention
// recognized: products, softmax and mask written out instead of nn::attention; plain: computed as written, too.
//
// Prints one line of JSON per case, with the seconds of the first call, which compiles. "share" is the rate of the
// model's operations, 6 N + 6 L C T per token, relative to --peak (default on GPUs: 989 TFLOP/s for bf16 and f8, 494 for
// f32, an H200's; N parameters without the position embedding, L layers, width C, T tokens). "memory_gb": memory in use
// on the GPU after the steps; on the CPU the largest resident set. Both count what earlier cases of the process have
// cached. --plan on prints the instructions of a step instead.
#include <fmt/format.h>
#include <lockstep/float8_products.h>
#include <lockstep/lockstep.h>
#include <lockstep/losses.h>
#include <lockstep/nn.h>
#include <lockstep/optimizers.h>
#include <lockstep/transformer.h>
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <tuple>

#include "flags.h"
#include "lane/gpu_report.h"
#include "timing.h"

namespace lockstep {
namespace {

struct Config {
  int64_t layers, heads, width, tokens, batch, vocabulary;
};

Config config_of(const std::string& name) {
  if (name == "char-small") return {4, 4, 128, 64, 12, 65};
  if (name == "char") return {6, 6, 384, 256, 64, 65};
  if (name == "gpt2") return {12, 12, 768, 1024, 8, 50304};
  if (name == "gpt2-large") return {36, 20, 1280, 1024, 8, 50304};
  throw Error("unknown configuration " + name + "; choose char, gpt2, gpt2-large or char-small");
}

struct Case {
  std::string name;  // "gpt2@16x2048"
  std::string precision;
  Config config;
  std::string attention = "nn";
};

// "gpt2@16x2048:bf16".
Case case_of(const std::string& text, const std::string& attention) {
  const std::vector<std::string> parts = split_text(text, ':');
  if (parts.size() != 2 || (parts[1] != "f32" && parts[1] != "bf16" && parts[1] != "f8"))
    throw Error("the case " + text + " is not CONFIGURATION:f32, CONFIGURATION:bf16 or CONFIGURATION:f8");
  const std::vector<std::string> name = split_text(parts[0], '@');
  Case out{parts[0], parts[1], config_of(name.at(0)), attention};
  if (name.size() == 1) return out;
  const std::vector<std::string> sizes = split_text(name[1], 'x');
  if (sizes.size() != 2) throw Error("the case " + text + " has no BATCHxTOKENS after the @");
  out.config.batch = std::stoll(sizes[0]);
  out.config.tokens = std::stoll(sizes[1]);
  return out;
}

struct Block {
  nn::LayerNorm norm1;
  nn::Linear qkv, projection;
  nn::LayerNorm norm2;
  nn::Linear up, down;
};
struct Model {
  nn::Embedding tokens;
  Array positions;  // [tokens, width]
  std::vector<Block> blocks;
  nn::LayerNorm norm;
};

nn::Linear small_linear(const Array& key, int64_t in, int64_t out) {
  return {0.02 * random::normal(key, {in, out}), zeros({out})};
}

Model create(const Config& c, const Array& key) {
  Model model{nn::embedding(random::fold_in(key, 0), c.vocabulary, c.width),
              0.02 * random::normal(random::fold_in(key, 1), {c.tokens, c.width}),
              {},
              nn::layer_norm(c.width)};
  for (int64_t i = 0; i < c.layers; ++i) {
    const Array own = random::fold_in(key, 2 + i);
    const auto linear = [&](int64_t site, int64_t in, int64_t out) {
      return small_linear(random::fold_in(own, site), in, out);
    };
    model.blocks.push_back({nn::layer_norm(c.width), linear(0, c.width, 3 * c.width), linear(1, c.width, c.width),
                            nn::layer_norm(c.width), linear(2, c.width, 4 * c.width), linear(3, 4 * c.width, c.width)});
  }
  return model;
}

// q, k, v are [b, t, heads, e].
Array written_attention(const Array& q, const Array& k, const Array& v) {
  const int64_t t = q.shape(1);
  const Array scores = astype(einsum("bthe,bshe->bhts", q, k), f32) / std::sqrt(static_cast<double>(q.shape(3)));
  const Array visible = reshape(arange(t), {t, 1}) >= arange(t);
  const Array weights = astype(softmax(where(visible, scores, -1e30)), q.dtype());
  return einsum("bhts,bshe->bthe", weights, v);
}

Array attend(const Case& c, const Block& block, const Array& x, const nn::Mode& mode) {
  const int64_t b = x.shape(0), t = x.shape(1), heads = c.config.heads, e = c.config.width / heads;
  const std::vector<Array> qkv = split(reshape(nn::apply(block.qkv, x, mode), {b, t, 3 * heads, e}), 3, 2);
  const Array y = c.attention == "nn" ? nn::attention(qkv[0], qkv[1], qkv[2], {.causal = true})
                                      : written_attention(qkv[0], qkv[1], qkv[2]);
  return nn::apply(block.projection, reshape(y, {b, t, c.config.width}), mode);
}

// Tokens [b, t + 1] -> the mean loss of predicting each token but the first. `scales`: of f8.
Array loss_of(const Case& c, const Model& model, const std::vector<Array>& scales, const Array& tokens) {
  const int64_t b = c.config.batch, t = c.config.tokens;
  const DType compute = c.precision == "f32" ? f32 : bf16;
  nn::Float8Products float8(scales);
  const nn::Mode mode{.training = true, .compute = compute, .float8 = c.precision == "f8" ? &float8 : nullptr};
  const Array inputs = slice(tokens, {0, 0}, {b, t}), targets = slice(tokens, {0, 1}, {b, t + 1});
  Array x = astype(nn::apply(model.tokens, inputs) + model.positions, compute);
  for (const Block& block : model.blocks) {
    x = x + attend(c, block, nn::apply(block.norm1, x), mode);
    x = x + nn::apply(block.down, gelu(nn::apply(block.up, nn::apply(block.norm2, x), mode)), mode);
  }
  const Array logits = einsum("btd,vd->btv", nn::apply(model.norm, x), astype(model.tokens.table, compute));
  return mean(softmax_cross_entropy(logits, targets));
}

auto compiled_step(const Case& c, const Optimizer& optimizer) {
  return jit(
      [&c, &optimizer](const Model& model, const OptimizerState& state, const Float8History& history,
                       const Array& tokens) {
        const auto loss_at = [&](const Model& m, const std::vector<Array>& scales) {
          return loss_of(c, m, scales, tokens);
        };
        const auto [loss, grads] = value_and_grad<0, 1>(loss_at)(model, float8_scales(history));
        auto [next, next_state] = update(optimizer, model, std::get<0>(grads), state);
        return std::tuple{std::move(next), std::move(next_state), advanced(history, std::get<1>(grads)), loss};
      },
      {.donate = {0, 1, 2}, .recognize = c.attention != "plain"});
}

double operations_per_token(const Config& c, const Model& model) {
  int64_t parameters = -model.positions.size();
  for (const Array& each : tree_leaves(model)) parameters += each.size();
  return 6 * static_cast<double>(parameters) + 6 * static_cast<double>(c.layers * c.width * c.tokens);
}

double memory_in_use() {
  if (platform() == Platform::cuda) {
    const GpuReport report = report_first_gpu();
    return static_cast<double>(report.gpus.at(0).memory - report.gpus.at(0).free);
  }
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

// Operations per second; 0: unknown.
double peak_of(const std::string& precision, const std::string& given) {
  if (!given.empty()) return std::stod(given) * 1e12;
  return platform() != Platform::cuda ? 0 : precision == "f32" ? 494e12 : 989e12;
}

void measure(const Case& c, int64_t steps, const std::string& peak, bool plan) {
  const Optimizer optimizer{.schedule = {.peak = 1e-3}, .beta2 = 0.99, .weight_decay = 0.1, .no_decay = {}};
  Model model = create(c.config, random::key(0));
  OptimizerState state = create_state(optimizer, model);
  Precision precision;
  precision.float8 = c.precision == "f8";
  Float8History history = create_float8_history(precision, 4 * c.config.layers);
  const double operations = operations_per_token(c.config, model);
  const Array tokens = random::randint(random::key(5), {c.config.batch, c.config.tokens + 1}, 0,
                                       static_cast<int32_t>(c.config.vocabulary));
  const auto step = compiled_step(c, optimizer);
  if (plan) {
    fmt::print("{}\n", step.plan(model, state, history, tokens));
    return;
  }
  Array loss;
  const auto run = [&] { std::tie(model, state, history, loss) = step(model, state, history, tokens); };
  const Clock::time_point start = Clock::now();
  run();
  const float first_loss = loss.item<float>();
  const double first = seconds_since(start);
  run();
  loss.item<float>();
  const Clock::time_point begin = Clock::now();
  for (int64_t i = 0; i < steps; ++i) run();
  const float last_loss = loss.item<float>();
  const double seconds = seconds_since(begin) / static_cast<double>(steps);
  const double rate = static_cast<double>(c.config.batch * c.config.tokens) / seconds;
  const double most = peak_of(c.precision, peak);
  fmt::print(
      R"({{"peer": "lockstep{}", "device": "{}", "case": "{}", "precision": "{}", "first_s": {:.3f}, "step_ms": {:.3f}, )"
      R"("tokens_per_s": {:.0f}, "share": {}, "memory_gb": {:.2f}, "first_loss": {:.4f}, "loss": {:.4f}}})"
      "\n",
      c.attention == "nn" ? "" : " " + c.attention + " attention", to_string(platform()), c.name, c.precision, first,
      seconds * 1e3, rate, most > 0 ? fmt::format("{:.3f}", rate * operations / most) : "null", memory_in_use() / 1e9,
      first_loss, last_loss);
  std::fflush(stdout);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  return run_benchmark(
      argc, argv,
      {{"--cases", "char-small:f32"}, {"--steps", "30"}, {"--attention", "nn"}, {"--peak", ""}, {"--plan", "off"}},
      [](Flags& given) {
        for (const std::string& each : split_text(given["--cases"], ','))
          measure(case_of(each, given["--attention"]), std::stoll(given["--steps"]), given["--peak"],
                  given["--plan"] == "on");
      });
}
