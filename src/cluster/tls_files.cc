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
    constexpr int64_t kMostBytes = 1 << 20;
    return read_user_file(path, kMostBytes);
  };
  return {read(files.ca), read(files.certificate), read(files.key)};
}

}  // namespace lockstep
