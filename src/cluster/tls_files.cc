#include "cluster/tls_files.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

#include "base/check.h"
#include "base/file.h"

namespace lockstep {

namespace {

struct FreeTls {
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using TlsCertificate = std::unique_ptr<X509, FreeTls>;
using TlsKey = std::unique_ptr<EVP_PKEY, FreeTls>;
using TlsText = std::unique_ptr<BIO, FreeTls>;

TlsText text_bio(const std::string& text) {
  return TlsText(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

TlsCertificate certificate_of(const std::string& text) {
  return TlsCertificate(PEM_read_bio_X509(text_bio(text).get(), nullptr, nullptr, nullptr));
}

TlsKey key_of_pem(const std::string& text) {
  const auto no_password = [](char*, int, int, void*) { return 0; };  // otherwise OpenSSL prompts on the terminal
  return TlsKey(PEM_read_bio_PrivateKey(text_bio(text).get(), nullptr, no_password, nullptr));
}

}  // namespace

TlsFiles read_tls_files(const TlsFiles& files) {
  if (!files.any()) return {};
  if (files.ca.empty() || files.certificate.empty() || files.key.empty())
    throw_error("tls: tls_ca is {}, tls_certificate {} and tls_key {}; give all three, or none",
                files.ca.empty() ? "missing" : "given", files.certificate.empty() ? "missing" : "given",
                files.key.empty() ? "missing" : "given");
  const auto read = [](const std::string& path) {
    constexpr int64_t kMaxBytes = 1 << 20;
    return read_user_file(path, kMaxBytes);
  };
  const TlsFiles contents{read(files.ca), read(files.certificate), read(files.key)};
  const TlsCertificate authority = certificate_of(contents.ca), certificate = certificate_of(contents.certificate);
  const TlsKey key = key_of_pem(contents.key);
  ERR_clear_error();
  if (!authority)
    throw_error("tls: {} contains no PEM certificate; set tls_ca to the certificate of the authority", files.ca);
  if (!certificate)
    throw_error("tls: {} contains no PEM certificate; set tls_certificate to the certificate of this process",
                files.certificate);
  if (!key)
    throw_error("tls: {} contains no PEM private key without a password; set tls_key to the key of the certificate",
                files.key);
  if (X509_check_private_key(certificate.get(), key.get()) != 1)
    throw_error("tls: the key {} does not match the certificate {}; give files that belong together", files.key,
                files.certificate);
  return contents;
}

}  // namespace lockstep
