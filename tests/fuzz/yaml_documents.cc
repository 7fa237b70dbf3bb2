// YAML and JSON documents as values, and the writer of YAML.
#include "jobs/model/yaml_document.h"

#include "fuzz/fuzz.h"
#include "jobs/model/object.h"

using namespace lockstep;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<YamlDocument> documents;
  if (!fuzz::accepts([&] { documents = parse_yaml_documents(fuzz::text_of(data, size), "input.yaml"); })) return 0;
  for (const YamlDocument& document : documents) {
    const std::string written = to_yaml(document.value);
    const std::vector<YamlDocument> again = parse_yaml_documents(written, "written.yaml");
    // The writer sorts keys, so texts are compared.
    const std::string rewritten = again.size() == 1 ? to_yaml(again[0].value) : "";
    fuzz::require(rewritten == written, "a value that is written reads back the same", written + "\n" + rewritten);
  }
  return 0;
}
