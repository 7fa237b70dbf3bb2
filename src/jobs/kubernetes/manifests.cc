#include "jobs/kubernetes/manifests.h"

#include "base/file.h"
#include "base/names.h"
#include "cluster/token.h"
#include "jobs/kubernetes/template.h"
#include "jobs/kubernetes/templates.h"
#include "jobs/kubernetes/variables.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr int64_t kMaxTemplateBytes = 1 << 20;

std::string read_included(const std::string& path) {
  const std::vector<uint8_t> bytes = FileSystem::real().read_file(path, kMaxTemplateBytes);
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace

std::string render_manifest(const ManifestRequest& request) {
  if (std::ranges::find(manifest_kinds(), request.kind) == manifest_kinds().end())
    throw_unknown_name("kind", request.kind, manifest_kinds());
  const bool own = !request.template_file.empty();
  const nlohmann::ordered_json variables =
      complete_variables(request.variables, {.kind = request.kind, .allow_unknown = own, .make_token = make_token});
  const std::string name = own ? request.template_file : request.kind + ".yaml.j2";
  const std::string folder = parent_dir(request.template_file);
  const TemplateFinder find = [&](const std::string& included) -> std::optional<std::string> {
    const std::string path = folder + "/" + included;
    if (own && FileSystem::real().exists(path)) return read_included(path);
    return find_builtin_template(included);
  };
  return render_template(name, own ? read_user_file(name, kMaxTemplateBytes) : find_builtin_template(name).value(),
                         variables, find) +
         "\n";
}

}  // namespace lockstep
