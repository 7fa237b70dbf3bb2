#include "cluster/tls_files.h"

#include "base/check.h"
#include "base/file.h"

namespace lockstep {

TlsFiles read_tls_files(const TlsFiles& files) {
  if (!files.any()) return {};
  if (files.ca.empty() || files.certificate.empty() || files.key.empty())
    throw_error("tls: tls_ca is {}, tls_certificate {} and tls_key {}; give all three, or none",
                files.ca.empty() ? "missing" : "given", files.certificate.empty() ? "missing" : "given",
                files.key.empty() ? "missing" : "given");
  const auto read = [](const std::string& path) {
    const auto bytes = FileSystem::real().read_file(path);
    return std::string(bytes.begin(), bytes.end());
  };
  return {read(files.ca), read(files.certificate), read(files.key)};
}

}  // namespace lockstep
