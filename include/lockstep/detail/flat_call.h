// Calls of functions on trees as calls on lists of arrays, so that the transforms themselves are not templates. Not part of
// the public API.
#pragma once

#include <memory>
#include <utility>

#include "lockstep/detail/trace_call.h"

namespace lockstep::detail {

template <class... Args>
FlatTrees flat_arguments(const Args&... args) {
  return FlatTrees({TreeRef(args)...});
}

// The options of a transformed function, which its copies share. Its functions are in the library.
template <class Options>
class SharedOptions {
 public:
  explicit SharedOptions(Options&& options);
  SharedOptions(const SharedOptions&);
  SharedOptions& operator=(const SharedOptions&) = delete;
  ~SharedOptions();
  const Options& operator*() const { return *options_; }

 private:
  std::shared_ptr<const Options> options_;
};
template <class Options>
SharedOptions<Options>::SharedOptions(Options&& options)
    : options_(std::make_shared<const Options>(std::move(options))) {}
template <class Options>
SharedOptions<Options>::SharedOptions(const SharedOptions&) = default;
template <class Options>
SharedOptions<Options>::~SharedOptions() = default;

// The elements of a tuple or pair; any other tree is one element.
template <class R>
FlatTrees flat_result(const R& result) {
  FlatTrees out;
  add_result(out, result);
  return out;
}

// The arrays of all arguments, in order.
template <class... Args>
Arrays leaves_of(const Args&... args) {
  return leaves_of_trees({TreeRef(args)...});
}

// Returns `tree` with its arrays replaced by those from `next` on, which it advances.
template <class T>
T replace_arrays(T tree, const Array*& next) {
  assign_arrays(tree, next);
  return tree;
}

}  // namespace lockstep::detail
