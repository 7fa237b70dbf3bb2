// The small languages of flags: --mesh, --shard, --expect, --selector, addresses, times of Slurm, network interfaces.
// The first byte selects the language.
#include <algorithm>

#include "cluster/address.h"
#include "fuzz/fuzz.h"
#include "jobs/selector.h"
#include "jobs/slurm/script.h"
#include "lockstep/alarms.h"
#include "train/config.h"

using namespace lockstep;

namespace {

void try_shard(const std::string& text) {
  TrainConfig config;
  for (const char* key : {"mesh", "shard"}) {
    const ConfigKey* const found = find_config_key(key);
    fuzz::require(found != nullptr, "the setting exists");
    if (!assign(config, *found, text).empty()) continue;
    TrainConfig again;
    fuzz::require(assign(again, *found, text_of(config, *found)).empty() && again == config,
                  "a setting as text assigns the same value");
    fuzz::accepts([&] { make_sharding_plan(config); });
    config = {};
  }
}

void try_address(const std::string& text) {
  detail::Address address;
  if (fuzz::accepts([&] { address = detail::parse_address(text, "input"); }))
    fuzz::require(detail::parse_address(detail::to_string(address), "printed") == address,
                  "an address that is printed reads back the same");
  fuzz::accepts([&] { detail::parse_address(text, "input", 61441); });
}

void try_expectation(const std::string& text) {
  Expectation expectation;
  if (!fuzz::accepts([&] { expectation = parse_expectation(text); })) return;
  const Expectation again = parse_expectation(to_string(expectation));
  fuzz::require(again.metric == expectation.metric && again.comparison == expectation.comparison &&
                    again.value == expectation.value,
                "an expectation that is printed reads back the same");
  fuzz::accepts([&] { is_met(expectation, {{"loss", 0.5}, {"test_accuracy", 0.97}}); });
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(fuzz::text_of(data + 1, size - 1));
  switch (data[0] % 7) {
    case 0:
      fuzz::accepts([&] { parse_mesh(text); });
      break;
    case 1:
      try_shard(text);
      break;
    case 2:
      try_expectation(text);
      break;
    case 3:
      fuzz::accepts([&] { Selector::parse(text).matches({{"app", "x"}, {"tier", "y"}}); });
      break;
    case 4:
      try_address(text);
      break;
    case 5:
      fuzz::accepts([&] { parse_slurm_time(text, "--time"); });
      break;
    default:
      fuzz::accepts([&] {
        detail::choose_interfaces(text,
                                  {{"lo", "127.0.0.1", false, true}, {"eth0", "10.0.0.7"}, {"ib0", "fd00::1", true}});
      });
  }
  return 0;
}
