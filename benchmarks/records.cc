// How fast one core seals and opens the records of a TCP connection (comm/tcp/record_cipher.h): GB/s by cipher, protection
// and record size. A rank that exchanges data does both for every byte that it sends.
//
//   build/benchmarks/records
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "comm/tcp/record_cipher.h"

namespace lockstep {
namespace {

using detail::Cipher;
using detail::RecordCipher;

void seal_and_open(benchmark::State& state, LinkSecurity security, Cipher cipher) {
  const auto bytes = static_cast<size_t>(state.range(0));
  RecordCipher sealer(RecordCipher::Use::seal, security, cipher, {}),
      opener(RecordCipher::Use::open, security, cipher, {});
  std::vector<std::byte> in(bytes), sealed(bytes + RecordCipher::kTagBytes), out(bytes);
  for (auto _ : state) {
    sealer.seal(in.data(), bytes, sealed.data());
    if (!opener.open(sealed.data(), bytes, out.data())) state.SkipWithError("the record does not open");
  }
  state.counters["GB/s"] = benchmark::Counter(
      static_cast<double>(bytes) * 1e-9 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

const int registered = [] {
  for (const Cipher cipher : {Cipher::aes_128_gcm, Cipher::chacha20_poly1305})
    for (const LinkSecurity security : {LinkSecurity::signature, LinkSecurity::encrypted})
      benchmark::RegisterBenchmark(fmt::format("{} {}", detail::name(cipher), name(security)).c_str(),
                                   [=](benchmark::State& state) { seal_and_open(state, security, cipher); })
          ->Arg(16)
          ->Arg(4096)
          ->Arg(RecordCipher::kMaxRecordBytes);
  return 0;
}();

}  // namespace
}  // namespace lockstep
