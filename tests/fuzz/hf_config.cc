// config.json of Hugging Face folders, which any program may have written.
#include "train/hf_config.h"

#include "fuzz/fuzz.h"
#include "train/gpt_settings.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  detail::HfConfig config;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (!fuzz::accepts([&] { config = detail::parse_hf_config(text, "config.json", 0); })) return 0;
  const std::string written = detail::encode_hf_config(config.model, config.family, f32, nullptr);
  const detail::HfConfig again = detail::parse_hf_config(written, "written.json", 0);
  fuzz::require(again.family == config.family && gpt_settings_of(again.model) == gpt_settings_of(config.model),
                "a configuration that is written reads back the same");
  return 0;
}
