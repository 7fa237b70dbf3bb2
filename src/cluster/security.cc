#include "cluster/security.h"

#include <openssl/bn.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/check.h"

namespace lockstep {

namespace {

// Keeps OpenSSL usable until the process has ended. By default exit() frees OpenSSL's state while threads of gRPC may still
// close a TLS connection, and the process crashes instead of returning its exit code. Only the first use of OpenSSL can
// decide this, so it runs before main(), and before that if make_security() does.
int keep_openssl_until_end() { return OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr); }
[[maybe_unused]] const int kept_until_end = keep_openssl_until_end();

// scrypt's cost: 4 MiB of memory and about 10 ms. It slows down guessing of tokens chosen by people; random tokens need
// no more.
constexpr uint64_t kScryptN = 4096, kScryptR = 8, kScryptP = 1, kScryptMemory = 32 << 20;
constexpr std::string_view kSalt = "lockstep control plane, version 1";
constexpr const char* kServerName = "coordinator.lockstep";

// A private key is a number below the order of P-256; 16 more bytes make its distribution uniform.
constexpr size_t kScalarBytes = 32, kWideBytes = kScalarBytes + 16, kSecretBytes = 32;

struct Derived {
  std::array<unsigned char, kWideBytes> authority = {};
  std::array<unsigned char, kSecretBytes> pass = {}, call = {};
};

template <typename T, void (*Free)(T*)>
struct OpenSslDeleter {
  void operator()(T* pointer) const { Free(pointer); }
};
using Key = std::unique_ptr<EVP_PKEY, OpenSslDeleter<EVP_PKEY, EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, OpenSslDeleter<X509, X509_free>>;
using Number = std::unique_ptr<BIGNUM, OpenSslDeleter<BIGNUM, BN_clear_free>>;
using Group = std::unique_ptr<EC_GROUP, OpenSslDeleter<EC_GROUP, EC_GROUP_free>>;
using NumberContext = std::unique_ptr<BN_CTX, OpenSslDeleter<BN_CTX, BN_CTX_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, OpenSslDeleter<X509_EXTENSION, X509_EXTENSION_free>>;
using Bio = std::unique_ptr<BIO, OpenSslDeleter<BIO, BIO_free_all>>;

// OpenSSL fails here only when memory runs out or its policy forbids an algorithm.
void require(bool done, const char* what) {
  if (done) return;
  const unsigned long error = ERR_get_error();
  const char* reason = error ? ERR_reason_error_string(error) : nullptr;
  throw IoError(fmt::format("tls: OpenSSL cannot {}: {}; check its configuration, or set LOCKSTEP_TLS=off", what,
                            reason ? reason : "unknown reason"));
}

Derived derive(const std::string& token) {
  Derived out;
  std::array<unsigned char, kWideBytes + 2 * kSecretBytes> bytes = {};
  require(EVP_PBE_scrypt(token.data(), token.size(), reinterpret_cast<const unsigned char*>(kSalt.data()), kSalt.size(),
                         kScryptN, kScryptR, kScryptP, kScryptMemory, bytes.data(), bytes.size()) == 1,
          "derive keys from the token (scrypt)");
  auto at = bytes.begin();
  for (const std::span<unsigned char> part : {std::span<unsigned char>(out.authority), {out.pass}, {out.call}}) {
    std::copy_n(at, part.size(), part.begin());
    at += static_cast<std::ptrdiff_t>(part.size());
  }
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return out;
}

std::string hex(std::span<const unsigned char> bytes) {
  std::string out;
  for (const unsigned char byte : bytes) out += fmt::format("{:02x}", byte);
  return out;
}

// The P-256 key whose private scalar is `wide` mod (order - 1) + 1.
Key key_of(std::span<const unsigned char> wide) {
  const Group group(EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1));
  const NumberContext context(BN_CTX_new());
  const Number number(BN_bin2bn(wide.data(), static_cast<int>(wide.size()), nullptr)), most(BN_new()), scalar(BN_new());
  require(group && context && number && most && scalar, "allocate memory");
  require(BN_sub(most.get(), EC_GROUP_get0_order(group.get()), BN_value_one()) == 1 &&
              BN_mod(scalar.get(), number.get(), most.get(), context.get()) == 1 && BN_add_word(scalar.get(), 1) == 1,
          "compute a key");
  // ECPrivateKey of RFC 5915: version 1, the private scalar, the curve's name. OpenSSL computes the public key.
  std::array<unsigned char, 51> der = {0x30, 0x31, 0x02, 0x01, 0x01, 0x04, 0x20};
  constexpr std::array<unsigned char, 12> kCurve = {0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86,
                                                    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07};
  constexpr size_t kHeader = 7;
  require(BN_bn2binpad(scalar.get(), der.data() + kHeader, kScalarBytes) == kScalarBytes, "compute a key");
  std::copy(kCurve.begin(), kCurve.end(), der.begin() + kHeader + kScalarBytes);
  const unsigned char* in = der.data();
  Key out(d2i_PrivateKey(EVP_PKEY_EC, nullptr, &in, der.size()));
  OPENSSL_cleanse(der.data(), der.size());
  require(out != nullptr, "make a key of P-256");
  return out;
}

struct Subject {
  const char* name;
  EVP_PKEY* key;
  const char* constraint;
  const char* alternative_name;  // null: none
};

void extend(X509* certificate, int what, const char* value) {
  const Extension extension(X509V3_EXT_conf_nid(nullptr, nullptr, what, value));
  require(extension && X509_add_ext(certificate, extension.get(), -1) == 1, "make a certificate");
}

void set_name(X509_NAME* out, const char* text) {
  require(
      X509_NAME_add_entry_by_txt(out, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(text), -1, -1, 0) == 1,
      "make a certificate");
}

Certificate certify(const Subject& subject, const char* issuer, EVP_PKEY* issuer_key) {
  Certificate out(X509_new());
  uint64_t serial = 0;
  require(out && RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial)) == 1, "make random numbers");
  // Valid for all dates: clocks of machines differ, and a job may run for long.
  const bool dated = ASN1_TIME_set_string_X509(X509_getm_notBefore(out.get()), "20000101000000Z") == 1 &&
                     ASN1_TIME_set_string_X509(X509_getm_notAfter(out.get()), "99991231235959Z") == 1;
  constexpr long kVersion3 = 2;
  require(dated && X509_set_version(out.get(), kVersion3) == 1 &&
              ASN1_INTEGER_set_uint64(X509_get_serialNumber(out.get()), serial >> 1) == 1 &&
              X509_set_pubkey(out.get(), subject.key) == 1,
          "make a certificate");
  set_name(X509_get_subject_name(out.get()), subject.name);
  set_name(X509_get_issuer_name(out.get()), issuer);
  extend(out.get(), NID_basic_constraints, subject.constraint);
  if (subject.alternative_name) extend(out.get(), NID_subject_alt_name, subject.alternative_name);
  require(X509_sign(out.get(), issuer_key, EVP_sha256()) > 0, "sign a certificate");
  return out;
}

std::string text_of(const Bio& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<size_t>(size)};
}

std::string pem(X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  require(bio && PEM_write_bio_X509(bio.get(), certificate) == 1, "write a certificate");
  return text_of(bio);
}

std::string pem(EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_secmem()));
  require(bio && PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1, "write a key");
  return text_of(bio);
}

// All processes have the same certificate authority; each has its own key and certificate.
TlsFiles issue(std::span<const unsigned char> authority_number) {
  constexpr const char* kAuthority = "lockstep job";
  std::array<unsigned char, kWideBytes> own_number = {};
  require(RAND_bytes(own_number.data(), own_number.size()) == 1, "make random numbers");
  const Key authority = key_of(authority_number), own = key_of(own_number);
  OPENSSL_cleanse(own_number.data(), own_number.size());
  const std::string alternative = fmt::format("DNS:{}", kServerName);
  const Certificate root =
      certify({kAuthority, authority.get(), "critical,CA:TRUE", nullptr}, kAuthority, authority.get());
  const Certificate leaf =
      certify({"lockstep process", own.get(), "critical,CA:FALSE", alternative.c_str()}, kAuthority, authority.get());
  return {pem(root.get()), pem(leaf.get()), pem(own.get())};
}

const char* kind_word(Security::Kind kind) {
  return kind == Security::Kind::plain ? "plain" : kind == Security::Kind::derived ? "tls" : "certificates";
}

}  // namespace

Security make_security(const SecurityOptions& options) {
  keep_openssl_until_end();
  if (!options.tls && options.files.any())
    throw_error(
        "tls: certificate files are given, but TLS is off; remove LOCKSTEP_TLS=off (--no-tls), or the certificate "
        "files");
  Security out;
  out.tls = read_tls_files(options.files);
  if (out.tls.any()) out.kind = Security::Kind::files;
  if (!options.token.empty()) {
    const Derived derived = derive(options.token);
    out.pass_key = hex(derived.pass);
    out.call_secret = hex(derived.call);
    if (options.tls && out.kind == Security::Kind::plain) {
      out.kind = Security::Kind::derived;
      out.tls = issue(derived.authority);
      out.server_name = kServerName;
    }
  }
  out.word = kind_word(out.kind);
  return out;
}

}  // namespace lockstep
