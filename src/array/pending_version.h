// PendingVersion: a version of a jit function that a thread traces and compiles. Versions that several threads need are
// compiled once, by the first one. Safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "lane/function_ref.h"
#include "lockstep/source_line.h"

namespace lockstep::detail {

struct JitVersions;

// What identifies a version.
struct VersionKey {
  const JitVersions* function = nullptr;
  const void* tag = nullptr;  // the C++ types of the arguments
  uint64_t runtime = 0;       // the number of the runtime
  std::string_view bytes;     // JitCall::key()

  bool operator==(const VersionKey&) const = default;
  size_t hash() const;
};

class PendingVersion {
 public:
  // Returns an object while which exists this thread compiles the version; null if exists() became true. Waits while another
  // thread compiles it, except one that waits for this thread: then both compile it. `at` is the line of the jit() for
  // messages. Throws Error if this thread compiles the version already.
  static std::unique_ptr<PendingVersion> begin(const VersionKey& key, const SourceLine& at, FunctionRef<bool()> exists);
  ~PendingVersion();
  PendingVersion(const PendingVersion&) = delete;
  PendingVersion& operator=(const PendingVersion&) = delete;

 private:
  struct Compilation;
  class Compilations;
  explicit PendingVersion(std::unique_ptr<Compilation> compilation);
  const std::unique_ptr<Compilation> compilation_;
};

// begin_nested_call() counts how deeply calls with this key are nested in this thread, until end_nested_call(). Throws Error
// if they are nested so deeply that they will not end.
void begin_nested_call(const VersionKey& key, const SourceLine& at);
void end_nested_call();

}  // namespace lockstep::detail
