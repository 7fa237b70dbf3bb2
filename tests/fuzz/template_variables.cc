// Variables of manifests: a file, or assignments `key=value` as in `--set`, one per line. The first byte
// selects the kind of the manifest and the form. Accepted variables must give a YAML manifest.
#include "jobs/kubernetes/variables.h"

#include "fuzz/fuzz.h"
#include "jobs/kubernetes/manifests.h"
#include "jobs/model/yaml_document.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(fuzz::text_of(data + 1, size - 1));
  ManifestRequest request{.kind = manifest_kinds()[data[0] % manifest_kinds().size()]};
  const bool rendered = fuzz::accepts([&] {
    if (data[0] & 0x40)
      for (const std::string& line : fuzz::parts_of(text, '\n', 32)) set_variable(request.variables, line);
    else
      request.variables = parse_variables(text, "input.json");
    // A random token would make runs differ.
    if (!request.variables.contains("token_secret")) request.variables["token_secret"] = "secret";
    const std::string manifest = render_manifest(request);
    try {
      fuzz::require(!parse_yaml_documents(manifest, "manifest").empty(), "a manifest has documents");
    } catch (const Error& error) {
      fuzz::require(false, error.what());
    }
  });
  static_cast<void>(rendered);
  return 0;
}
