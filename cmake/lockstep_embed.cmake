# cmake -DOUTPUT=FILE -P lockstep_embed.cmake -- NAME=PATH...: writes a C++ file that defines kEmbeddedHeaders, the
# CudaHeaders with these names and the contents of these files.
set(marker LOCKSTEP)  # delimits the raw strings
set(rows "")
set(reached FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(NOT reached)
    if(CMAKE_ARGV${i} STREQUAL "--")
      set(reached TRUE)
    endif()
    continue()
  endif()
  string(REGEX MATCH "^([^=]+)=(.+)$" matched "${CMAKE_ARGV${i}}")
  set(name "${CMAKE_MATCH_1}")
  set(path "${CMAKE_MATCH_2}")
  file(READ "${path}" text)
  string(FIND "${text}" ")${marker}\"" at)
  string(LENGTH "${text}" length)
  if(NOT at EQUAL -1)
    message(FATAL_ERROR "${path} contains )${marker}\", the end of a raw string; change it")
  elseif(length GREATER 65000)
    message(FATAL_ERROR "${path} has ${length} characters, but compilers support string literals of 65,536; divide the file")
  endif()
  string(APPEND rows "    {\"${name}\", R\"${marker}(${text})${marker}\"},\n")
endforeach()
file(WRITE "${OUTPUT}" "// Generated from the files that kernels include.
#include <span>

#include \"ops/cuda/text.h\"

namespace lockstep {
namespace {

constexpr CudaHeader kEmbedded[] = {
${rows}};

}  // namespace

extern const std::span<const CudaHeader> kEmbeddedHeaders;
constinit const std::span<const CudaHeader> kEmbeddedHeaders = kEmbedded;

}  // namespace lockstep
")
