#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/print_stderr.h"
#include "base/text_bytes.h"
#include "cli/render.h"
#include "command/choice_check.h"
#include "command/help.h"
#include "jobs/kubernetes/manifests.h"
#include "jobs/kubernetes/templates.h"
#include "jobs/kubernetes/variables.h"

namespace lockstep::cli {
namespace {

struct RenderKubernetesArguments {
  std::string kind = "indexed-job", variables, template_file, output, write_templates;
  std::vector<std::string> set;
};

std::string footer() {
  std::string text = "Variables:\n";
  for (const ManifestVariable& each : manifest_variables())
    text += fmt::format("  {:<19}  {}: {}\n", each.name, each.type, each.help);
  return text + "\nUnless token_secret is set, the manifest contains the token of the job: protect it like a password.";
}

int write_templates(const std::string& folder) {
  FileSystem& files = FileSystem::real();
  files.make_dirs(folder);
  for (const auto& [name, text] : builtin_templates()) {
    const std::string path = folder + "/" + name;
    if (files.exists(path))
      throw UsageError(fmt::format("render kubernetes: {} already exists; choose another folder", path));
  }
  for (const auto& [name, text] : builtin_templates()) files.write_atomic(folder + "/" + name, text_bytes(text));
  print_stderr("lockstep: wrote {} templates to {}; use one with --template {}/{}\n", builtin_templates().size(),
               folder, folder, "indexed-job.yaml.j2");
  return kDone;
}

// Makes the files that this process creates in this scope private to the user.
class PrivateFiles {
 public:
  PrivateFiles() : before_(::umask(S_IRWXG | S_IRWXO)) {}
  ~PrivateFiles() { ::umask(before_); }
  PrivateFiles(const PrivateFiles&) = delete;
  PrivateFiles& operator=(const PrivateFiles&) = delete;

 private:
  const mode_t before_;
};

int render(const RenderKubernetesArguments& arguments) {
  if (!arguments.write_templates.empty()) return write_templates(arguments.write_templates);
  std::string text;
  try {
    ManifestRequest request{.kind = arguments.kind, .template_file = arguments.template_file};
    if (!arguments.variables.empty()) {
      constexpr int64_t kMaxBytes = 1 << 20;
      request.variables = parse_variables(read_user_file(arguments.variables, kMaxBytes), arguments.variables);
    }
    for (const std::string& each : arguments.set) set_variable(request.variables, each);
    text = render_manifest(request);
  } catch (const Error& error) {
    throw UsageError(fmt::format("render kubernetes: {}", error.what()));
  } catch (const IoError& error) {
    throw UsageError(fmt::format("render kubernetes: {}", error.what()));
  }
  if (arguments.output.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return kDone;
  }
  const PrivateFiles guard;  // the file contains the token of the job
  write_user_file(arguments.output, text);
  return kDone;
}

}  // namespace

void add_render_kubernetes_command(CLI::App& parent, Action& action) {
  CLI::App* command = parent.add_subcommand("kubernetes", "generate the manifest of a job for kubectl");
  auto arguments = std::make_shared<RenderKubernetesArguments>();
  command->add_option("--kind", arguments->kind, "the kind of the job (default: indexed-job)")
      ->check(one_of(manifest_kinds()));
  command->add_option("--variables", arguments->variables, "a JSON file with the variables listed below")
      ->type_name("FILE");
  command
      ->add_option("--set", arguments->set,
                   "set a variable, such as hosts_count=2 or args='[\"train\"]'; may be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME=VALUE");
  command
      ->add_option("--template", arguments->template_file, "a template to use instead of the built-in one of the kind")
      ->type_name("FILE");
  command->add_option("-o,--output", arguments->output, "file to write (default: standard output)")->type_name("FILE");
  command
      ->add_option("--write-templates", arguments->write_templates,
                   "write the built-in templates to this folder, to start from")
      ->type_name("DIR");
  add_footer(*command, footer());
  add_examples(*command, {"lockstep render kubernetes --variables variables.json -o job.yaml",
                          "lockstep render kubernetes --kind jobset --set name=mnist --set gpus=true"});
  command->callback([arguments, &action] { action = [arguments] { return render(*arguments); }; });
}

}  // namespace lockstep::cli
