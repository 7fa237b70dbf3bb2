// A certificate authority for tests of TLS.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "base/file.h"
#include "cluster/tls_files.h"

namespace lockstep {

class Authority {
 public:
  // Creates its own certificate; files are written to the folder.
  Authority(std::string folder, const std::string& name)
      : folder_(std::move(folder)), name_(name), key_(EVP_EC_gen("P-256"), EVP_PKEY_free) {
    certificate_ = make(name, key_.get(), "CA:TRUE", "");
    write(name_ + ".pem", pem(certificate_.get()));
  }

  // Issues a certificate for a host ("DNS:n1,IP:127.0.0.1"). Returns the paths of the files.
  TlsFiles issue(const std::string& owner, const std::string& hosts) {
    const Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
    const Certificate certificate = make(owner, key.get(), "CA:FALSE", hosts);
    BIO* bio = BIO_new(BIO_s_mem());
    PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    return {folder_ + "/" + name_ + ".pem", write(owner + ".pem", pem(certificate.get())),
            write(owner + ".key", drain(bio))};
  }

 private:
  using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
  using Certificate = std::unique_ptr<X509, void (*)(X509*)>;

  Certificate make(const std::string& subject, EVP_PKEY* key, const char* constraint, const std::string& hosts) {
    Certificate out(X509_new(), X509_free);
    X509_set_version(out.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(out.get()), ++serial_);
    X509_gmtime_adj(X509_getm_notBefore(out.get()), -3600);
    X509_gmtime_adj(X509_getm_notAfter(out.get()), 3600);
    X509_set_pubkey(out.get(), key);
    X509_NAME* name = X509_get_subject_name(out.get());
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(subject.c_str()), -1,
                               -1, 0);
    X509_set_issuer_name(out.get(), certificate_ ? X509_get_subject_name(certificate_.get()) : name);
    extend(out.get(), NID_basic_constraints, constraint);
    if (!hosts.empty()) extend(out.get(), NID_subject_alt_name, hosts);
    X509_sign(out.get(), key_.get(), EVP_sha256());
    return out;
  }
  static void extend(X509* certificate, int what, const std::string& value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, what, value.c_str());
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  }
  static std::string pem(X509* certificate) {
    BIO* bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bio, certificate);
    return drain(bio);
  }
  static std::string drain(BIO* bio) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio, &data);
    std::string out(data, static_cast<size_t>(size));
    BIO_free(bio);
    return out;
  }
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    FileSystem::real().write(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    return path;
  }

  const std::string folder_, name_;
  const Key key_;
  Certificate certificate_{nullptr, X509_free};
  long serial_ = 0;
};

}  // namespace lockstep
