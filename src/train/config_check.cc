#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "base/check.h"
#include "base/names.h"
#include "lockstep/alarms.h"
#include "lockstep/data.h"
#include "lockstep/loggers.h"
#include "lockstep/precision.h"
#include "sharding/device_table.h"
#include "train/config.h"
#include "train/remat.h"

namespace lockstep {
namespace {

bool is_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

void check_one_of(std::string_view key, const std::string& value, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), value) == known.end()) throw_unknown_name(key, value, known);
}

void check_limits(const TrainConfig& config) {
  TrainConfig scratch;
  for (const ConfigKey& key : config_keys())
    if (const std::string problem = assign(scratch, key, text_of(config, key)); !problem.empty())
      throw_error("{}: {}", key.name, problem);
}

// What a data set contains, and so which models can train on it.
enum class DataKind { images, text, table };

constexpr std::pair<std::string_view, DataKind> kFileKinds[] = {
    {"text:", DataKind::text},
    {"tokens:", DataKind::text},
    {"images:", DataKind::images},
    {"npy:", DataKind::images},  // or a table: the file tells
    {"csv:", DataKind::table}};
constexpr std::string_view kTextSets[] = {"moby-dick", "sotu"};

// The prefix of a data set that is a kind of files with a path, such as "text:"; empty for others.
std::string_view file_kind(std::string_view dataset) {
  for (const auto& [prefix, kind] : kFileKinds)
    if (dataset.starts_with(prefix)) return prefix;
  return "";
}

DataKind data_kind(std::string_view dataset) {
  for (const auto& [prefix, kind] : kFileKinds)
    if (dataset.starts_with(prefix)) return kind;
  const bool text = std::find(std::begin(kTextSets), std::end(kTextSets), dataset) != std::end(kTextSets);
  return text ? DataKind::text : DataKind::images;
}

std::vector<std::string> named_datasets() {
  std::vector<std::string> out = dataset_names();
  for (const std::string_view name : {"synthetic", "cifar10", "moby-dick", "sotu"})
    if (std::find(out.begin(), out.end(), name) == out.end()) out.emplace_back(name);
  return out;
}

void check_dataset(const std::string& dataset) {
  if (const std::string_view kind = file_kind(dataset); !kind.empty()) {
    if (dataset.size() == kind.size())
      throw_error("dataset: \"{}\" has no path; give one, such as {}PATH", dataset, kind);
    return;
  }
  const auto commas = std::count(dataset.begin(), dataset.end(), ',');
  if (commas == 0) {
    const std::vector<std::string> known = named_datasets();
    if (std::find(known.begin(), known.end(), dataset) == known.end())
      throw_error(
          "dataset: unknown data set \"{}\";{} choose {}, give text:PATH, tokens:FILE, images:DIR, npy:X,Y or "
          "csv:FILE, or "
          "give "
          "two or four IDX files separated by commas",
          dataset, suggestion(dataset, known), fmt::join(known, ", "));
    return;
  }
  const bool empty_path = dataset.front() == ',' || dataset.back() == ',' || dataset.find(",,") != std::string::npos;
  if ((commas != 1 && commas != 3) || empty_path)
    throw_error("dataset: \"{}\" is not IMAGES,LABELS or IMAGES,LABELS,TEST_IMAGES,TEST_LABELS", dataset);
}

// gpt needs text and mlp also accepts tables; the other models need images.
void check_model_fits_data(const TrainConfig& config) {
  const DataKind kind = data_kind(config.dataset);
  if (config.model == "gpt" && kind != DataKind::text)
    throw_error("dataset: {} is not text, which model gpt needs; choose moby-dick, sotu, text:PATH or tokens:FILE",
                config.dataset);
  if (config.model != "gpt" && kind == DataKind::text)
    throw_error("dataset: {} is text, and model {} does not train on text; choose model gpt", config.dataset,
                config.model);
  if (kind == DataKind::table && !config.model.starts_with("mlp"))
    throw_error("dataset: {} is a table, and model {} needs images; choose model mlp", config.dataset, config.model);
}

void check_data_dir(const TrainConfig& config) {
  const bool has_files = config.dataset != "synthetic" && config.dataset.find(',') == std::string::npos &&
                         file_kind(config.dataset).empty();
  if (!has_files && !config.data_dir.empty())
    throw_error("data_dir: \"{}\" has no effect with dataset {}; remove data_dir", config.data_dir, config.dataset);
}

void check_validation(const TrainConfig& config) {
  const std::string& text = config.validation;
  double share = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), share);
  const bool number = !text.empty() && end == text.data() + text.size() && error != std::errc::invalid_argument;
  if (number && !(error == std::errc() && share > 0 && share < 1))
    throw_error("validation: {} is not a share above 0 and below 1; give one such as 0.1, or a path", text);
  if (config.patience > 0 && text.empty() && data_kind(config.dataset) != DataKind::text)
    throw_error("patience: {} has no effect without a validation set; set validation, such as 0.1", config.patience);
}

void check_stream(const TrainConfig& config) {
  check_one_of("stream", config.stream, {"auto", "on", "off"});
  if (config.stream == "on" && config.dataset == "synthetic")
    throw_error("stream: the synthetic data set is generated in memory and has no files; set stream to off");
}

void check_length(const TrainConfig& config) {
  if (config.steps > 0 && config.epochs > 0)
    throw_error("both steps ({}) and epochs ({}) are given; keep only one", config.steps, config.epochs);
  if (config.accumulate > config.batch_size)
    throw_error(
        "accumulate: a batch of {} examples cannot be split into {} micro-batches; lower accumulate or raise "
        "batch_size",
        config.batch_size, config.accumulate);
}

void check_devices(const TrainConfig& config) {
  const std::string& devices = config.devices;
  constexpr size_t kDigits = 9;  // fit into an int
  const bool number = is_digits(devices) && devices.size() <= kDigits && devices.find_first_not_of('0') != devices.npos;
  if (devices != "auto" && devices != "all" && (!number || std::stoi(devices) > detail::kMaxCpuDevices))
    throw_error("devices: \"{}\" is not auto, all or a number from 1 to {}", devices, detail::kMaxCpuDevices);
  if (config.platform == "gpu")
    throw_error("platform: unknown value \"gpu\"; use cuda for NVIDIA GPUs, or auto or cpu");
  if (!config.platform.empty()) check_one_of("platform", config.platform, {"auto", "cpu", "cuda"});
  const auto axes = parse_mesh(config.mesh);
  if (!axes.empty() && std::none_of(axes.begin(), axes.end(), [](const auto& axis) { return axis.first == "data"; }))
    throw_error("mesh: \"{}\" has no axis \"data\", which shards the batch; add it, such as data=-1", config.mesh);
  std::vector<std::string> names;
  for (const auto& [name, size] : axes) names.push_back(name);
  if (names.empty()) names.emplace_back("data");
  for (const ShardingRule& rule : make_sharding_plan(config).rules)
    for (const SpecEntry& entry : rule.spec.entries)
      for (const std::string& axis : entry.axes)
        if (std::find(names.begin(), names.end(), axis) == names.end())
          throw_error("shard: \"{}\" uses axis \"{}\", but the axes of the mesh are {};{} add the axis with --mesh",
                      to_string(rule), axis, fmt::join(names, ", "), suggestion(axis, names));
}

// Checks metric names before training, so that a misspelled expectation does not waste a run.
// The metrics of a user's task are known only once it is traced.
void check_expectations(const TrainConfig& config) {
  if (is_user_program()) {
    for (const std::string& text : config.expect) parse_expectation(text);
    return;
  }
  const DataKind kind = data_kind(config.dataset);
  const std::vector<std::string> metrics =
      kind == DataKind::text    ? std::vector<std::string>{"loss", "perplexity", "bits_per_byte"}
      : kind == DataKind::table ? std::vector<std::string>{"loss", "accuracy", "abs_error"}
                                : std::vector<std::string>{"loss", "accuracy"};
  std::vector<std::string> sets = {""};
  if (kind != DataKind::text) sets.emplace_back("test_");
  if (kind == DataKind::text || !config.validation.empty()) sets.emplace_back("validation_");
  Scalars known;
  for (const std::string& set : sets)
    for (const std::string& metric : metrics) known.emplace_back(set + metric, 0);
  known.insert(known.end(), {{"grad_norm", 0}, {"examples_per_second", 0}});
  if (kind == DataKind::text) known.emplace_back("tokens_per_second", 0);
  for (const std::string& text : config.expect) is_met(parse_expectation(text), known);
}

// Throws Error if the setting `name` is not at its default although the setting `chooser` has none of the values
// `users` that make use of it.
void check_used(const TrainConfig& config, std::string_view name, std::string_view chooser,
                const std::vector<std::string>& users) {
  const ConfigKey *key = find_config_key(name), *choice = find_config_key(chooser);
  LOCKSTEP_CHECK(key && choice, "{} {}", name, chooser);
  const std::string value = text_of(config, *key), chosen = text_of(config, *choice);
  if (value == text_of({}, *key) || std::find(users.begin(), users.end(), chosen) != users.end()) return;
  throw_error("{}: {} has no effect with {} {}; choose {} {}, or remove {}", name, value, chooser, chosen, chooser,
              fmt::join(users, " or "), name);
}

void check_model_sizes(const TrainConfig& config) {
  for (const std::string_view name :
       {"size", "kv_heads", "context", "hidden", "head_width", "vocabulary", "norm", "position", "feed_forward", "bias",
        "tied", "rope_base", "norm_epsilon", "tokenizer"})
    check_used(config, name, "model", {"gpt"});
  for (const std::string_view name : {"layers", "heads", "width"}) check_used(config, name, "model", {"gpt", "vit"});
  if (!config.size.empty()) check_one_of("size", config.size, {"char", "char-small", "124m"});
  if (!config.norm.empty()) check_one_of("norm", config.norm, {"layer", "rms"});
  if (!config.position.empty()) check_one_of("position", config.position, {"learned", "rotary"});
  if (!config.feed_forward.empty()) check_one_of("feed_forward", config.feed_forward, {"gelu", "gelu-tanh", "swiglu"});
  if (!config.bias.empty()) check_one_of("bias", config.bias, {"on", "off"});
  if (!config.tied.empty()) check_one_of("tied", config.tied, {"on", "off"});
  if (config.heads > 0 && config.head_width == 0 && config.width % config.heads != 0)
    throw_error("width: {} is not a multiple of heads ({}); change one of them", config.width, config.heads);
  if (config.kv_heads > 0 && config.heads % config.kv_heads != 0)
    throw_error("kv_heads: {} does not divide heads ({}); choose a divisor", config.kv_heads, config.heads);
}

void check_optimizer(const TrainConfig& config) {
  std::vector<std::string> chosen;  // by groups
  for (const ParameterGroup& group : make_parameter_groups(config))
    if (group.kind) chosen.push_back(to_string(*group.kind));
  const auto check_used_by = [&](std::string_view name, const std::vector<std::string>& users) {
    if (std::find_first_of(chosen.begin(), chosen.end(), users.begin(), users.end()) == chosen.end())
      check_used(config, name, "optimizer", users);
  };
  check_used_by("momentum", {"momentum", "nesterov"});
  check_used_by("beta1", {"adam", "adamw", "lion", "muon"});
  check_used_by("beta2", {"adam", "adamw", "muon"});
  check_used_by("epsilon", {"adam", "adamw", "muon"});
  check_used_by("lion_beta2", {"lion"});
  check_used_by("muon_momentum", {"muon"});
  check_used(config, "adam_rate", "optimizer", {"muon"});
}

void check_precision(const TrainConfig& config) {
  const Precision precision = precision_of(config.precision);
  check_used(config, "float8_history", "precision", {"float8", "f8", "fp8"});
  if (precision.float8 && !is_user_program() && config.model != "gpt" && config.model != "vit")
    throw_error(
        "precision: {} is for products of the blocks of gpt and vit, which model {} does not have; choose bfloat16",
        config.precision, config.model);
}

void check_schedule(const TrainConfig& config) {
  for (const std::string_view name : {"decay", "decay_every"})
    check_used(config, name, "schedule", {"exponential", "step"});
  check_used(config, "decay_steps", "schedule", {"wsd"});
  const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), config.schedule) != names.end();
  };
  if (config.warmup_steps > 0 && !is_one_of({"warmup_cosine", "linear", "inverse_sqrt", "wsd"}))
    throw_error(
        "warmup_steps: {} has no effect with schedule {}; choose schedule warmup_cosine, linear, inverse_sqrt or wsd",
        config.warmup_steps, config.schedule);
  if (config.steps > 0 && config.warmup_steps >= config.steps)
    throw_error("warmup_steps: a warm-up of {} steps does not end within {} steps; lower warmup_steps or raise steps",
                config.warmup_steps, config.steps);
  if (config.steps > 0 && config.decay_steps > config.steps - config.warmup_steps)
    throw_error("decay_steps: {} and a warm-up of {} steps are more than {} steps; lower decay_steps or raise steps",
                config.decay_steps, config.warmup_steps, config.steps);
  if (config.end_learning_rate > 0 && !is_one_of({"cosine", "warmup_cosine", "linear", "wsd"}))
    throw_error(
        "end_learning_rate: {} has no effect with schedule {}; choose schedule cosine, warmup_cosine, linear or wsd",
        config.end_learning_rate, config.schedule);
  if (config.end_learning_rate > config.learning_rate)
    throw_error("end_learning_rate: {} is above the learning_rate of {}; lower end_learning_rate",
                config.end_learning_rate, config.learning_rate);
}

void check_checkpoints(const TrainConfig& config) {
  if (config.resume.empty()) throw_error("resume: the value is empty; give auto, none, a step or a path");
  for (const auto& [name, dir] : {std::pair("checkpoint_dir", &config.checkpoint_dir), {"log_dir", &config.log_dir}}) {
    if (dir->empty()) continue;
    if (!config.run_dir.empty())
      throw_error("run_dir: both run_dir ({}) and {} ({}) are given; keep one: a run folder has checkpoints and logs",
                  config.run_dir, name, *dir);
    if (config.no_save) throw_error("no_save: {} ({}) is given as well; remove one of the two", name, *dir);
  }
  if (config.no_save && !config.run_dir.empty())
    throw_error("no_save: run_dir ({}) is given as well; remove one of the two", config.run_dir);
  if (config.checkpoint_every > 0 && !saves_checkpoints(config))
    throw_error("checkpoint_every: {} has no effect, because {} is given; {}", config.checkpoint_every,
                config.no_save ? "no_save" : "log_dir",
                config.no_save ? "remove one of the two" : "set checkpoint_dir");
  if (is_digits(config.resume) && config.checkpoint_dir.empty() && config.run_dir.empty())
    throw_error("resume: step {} needs a folder; set run_dir or checkpoint_dir, or give the path of the checkpoint",
                config.resume);
}

void check_loggers(const TrainConfig& config) {
  for (const std::string& logger : config.loggers) {
    check_one_of("loggers", logger, {"console", "compact", "batches", "jsonl", "csv", "tensorboard"});
    const bool file = logger != "console" && logger != "compact" && logger != "batches";
    if (file && config.log_dir.empty() && !has_run_folder(config))
      throw_error("loggers: {} writes a file; {}", logger, config.no_save ? "remove no_save" : "set log_dir");
  }
}

// Checks the settings that a user's program does not have.
void check_built_in_model(const TrainConfig& config) {
  check_one_of("model", config.model, {"mlp", "mlp1024", "cnn", "vit", "resnet18", "gpt"});
  check_dataset(config.dataset);
  check_model_fits_data(config);
  check_data_dir(config);
  check_validation(config);
  check_model_sizes(config);
  check_stream(config);
}

// The keys that must be equal when a run is resumed: those of the program's task, then those of the trainer.
std::vector<std::string> keys_of_a_run() {
  std::vector<std::string> out;
  if (!is_user_program())
    out = {"model",        "dataset", "pixel_mean", "pixel_sd",  "validation",   "size",       "layers", "heads",
           "kv_heads",     "width",   "context",    "hidden",    "head_width",   "vocabulary", "norm",   "position",
           "feed_forward", "bias",    "tied",       "rope_base", "norm_epsilon", "tokenizer"};
  for (const ConfigKey& key : config_keys())
    if (const auto* row = std::get_if<const detail::SettingRow*>(&key.member); row && !(*row)->may_change)
      out.emplace_back(key.name);
  out.insert(out.end(), {"seed", "batch_size", "optimizer"});
  return out;
}

}  // namespace

void validate(const TrainConfig& config) {
  check_limits(config);
  if (!is_user_program()) check_built_in_model(config);
  check_length(config);
  check_devices(config);
  check_remat(config);
  check_precision(config);
  optimizer_kind(config.optimizer);
  schedule_kind(config.schedule);
  check_optimizer(config);
  check_schedule(config);
  check_checkpoints(config);
  check_loggers(config);
  check_expectations(config);
}

std::vector<std::pair<std::string, int64_t>> parse_mesh(std::string_view text) {
  std::vector<std::pair<std::string, int64_t>> out;
  std::set<std::string> names;
  bool inferred = false;
  for (size_t at = 0; !text.empty() && at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view axis = text.substr(at, comma - at);
    at = comma + 1;
    const size_t equals = std::min(axis.find('='), axis.size());
    const std::string name(axis.substr(0, equals));
    const std::string_view number = axis.substr(std::min(equals + 1, axis.size()));
    int64_t size = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), size);
    if (name.empty() || name.find_first_of(" \t") != name.npos || number.empty() || error != std::errc() ||
        end != number.data() + number.size())
      throw_error("mesh: \"{}\" in \"{}\" is not AXIS=SIZE; write a mesh such as data=4 or data=2,model=-1", axis,
                  text);
    if (size < 1 && size != -1)
      throw_error("mesh: the size of \"{}\" is {}; give a number of at least 1, or -1 to infer it", name, size);
    if (!names.insert(name).second) throw_error("mesh: \"{}\" is given twice in \"{}\"; keep one", name, text);
    if (size == -1 && std::exchange(inferred, true))
      throw_error("mesh: several sizes in \"{}\" are -1; only one can be inferred", text);
    out.emplace_back(name, size);
  }
  return out;
}

ShardingPlan make_sharding_plan(const TrainConfig& config) {
  ShardingPlan plan{.zero = static_cast<int>(config.zero)};
  for (const std::string& rule : config.shard) plan.rules.push_back(parse_sharding_rule(rule));
  return plan;
}

void check_same_run(const TrainConfig& config, const ConfigMap& saved) {
  for (const std::string& name : keys_of_a_run()) {
    const ConfigKey* key = find_config_key(name);
    LOCKSTEP_CHECK(key, "{}", name);
    const auto before = saved.find(name);
    const std::string now = text_of(config, *key);
    if (before == saved.end() || before->second == now) continue;
    throw_error(
        "resume: {} was {} when the checkpoint was written and is {} now; use {} {}, or start a new run with --resume "
        "none or another --checkpoint-dir",
        name, before->second, now, key->flag(), before->second);
  }
}

Optimizer make_optimizer(const TrainConfig& config, int64_t total_steps) {
  return {.kind = optimizer_kind(config.optimizer),
          .schedule = {.kind = schedule_kind(config.schedule),
                       .peak = config.learning_rate,
                       .end = config.end_learning_rate,
                       .warmup_steps = config.warmup_steps,
                       .total_steps = total_steps,
                       .decay = config.decay,
                       .every = config.decay_every,
                       .decay_steps = config.decay_steps},
          .momentum = config.momentum,
          .beta1 = config.beta1,
          .beta2 = config.beta2,
          .epsilon = config.epsilon,
          .weight_decay = config.weight_decay,
          .clip_norm = config.clip_norm,
          .lion_beta2 = config.lion_beta2,
          .muon_momentum = config.muon_momentum,
          .adam_rate = config.adam_rate,
          .groups = make_parameter_groups(config)};
}

std::string logger_names(const TrainConfig& config) {
  if (!config.loggers.empty()) return fmt::format("{}", fmt::join(config.loggers, ","));
  std::string out = config.quiet ? "" : "console";
  if (!config.log_dir.empty()) out += out.empty() ? "jsonl,csv,tensorboard" : ",jsonl,csv,tensorboard";
  return out;
}

bool has_run_folder(const TrainConfig& config) {
  return !config.no_save && config.checkpoint_dir.empty() && config.log_dir.empty();
}

bool saves_checkpoints(const TrainConfig& config) { return !config.checkpoint_dir.empty() || has_run_folder(config); }

int64_t default_eval_batch(const TrainConfig& config) {
  constexpr int64_t kExamples = 1000;
  return config.model == "gpt" ? config.batch_size : kExamples;  // an example of gpt is a whole window of tokens
}

TrainConfig with_default_length(TrainConfig config) {
  if (config.eval_batch == 0) config.eval_batch = default_eval_batch(config);
  if (config.steps == 0 && config.epochs == 0) config.epochs = config.model == "cnn" ? 4 : 10;
  return config;
}

}  // namespace lockstep
