// manifest.json of checkpoints. The input is the text without its checksum, which is added here.
#include "train/manifest.h"

#include "base/digest.h"
#include "fuzz/fuzz.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string body(fuzz::text_of(data, size));
  fuzz::accepts([&] { detail::decode_manifest(body, "run/manifest.json"); });
  const std::string text = body + ",\n  \"sha256\": \"" + sha256_hex({data, size}) + "\"\n}\n";
  CheckpointInfo info;
  if (!fuzz::accepts([&] { info = detail::decode_manifest(text, "run/manifest.json"); })) return 0;
  std::string written;
  if (!fuzz::accepts([&] { written = detail::encode_manifest(info); })) return 0;
  const CheckpointInfo again = detail::decode_manifest(written, "written/manifest.json");
  fuzz::require(detail::encode_manifest(again) == written, "a manifest that is written reads back the same");
  for (const CheckpointEntry& entry : info.entries)
    for (const CheckpointPiece& piece : entry.pieces) detail::tensor_name(entry, piece);
  return 0;
}
