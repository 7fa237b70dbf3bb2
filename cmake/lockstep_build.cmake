# Compiler settings shared by every target, and lockstep_library(), which makes one static library per source folder.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "build type" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without this ccache leaves what uses precompiled headers alone.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros "${CCACHE_PROGRAM}")
endif()

option(LOCKSTEP_PRECOMPILE "parse what most files include once" ON)
set(CMAKE_PCH_WARN_INVALID OFF)  # where a system's packages add options to some targets, those parse for themselves

# lockstep_precompile(TARGET GROUP HEADERS...): headers parsed once for all targets of a group, which are compiled with the same
# options: the first one parses, the others take what it has. Files include what they use all the same.
function(lockstep_precompile target group)
  if(NOT LOCKSTEP_PRECOMPILE)
    return()
  endif()
  get_target_property(plain ${target} LOCKSTEP_PLAIN)
  if(plain)
    string(APPEND group _plain)
  endif()
  get_property(first GLOBAL PROPERTY lockstep_precompiled_${group})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
    set_property(GLOBAL PROPERTY lockstep_precompiled_${group} ${target})
  endif()
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endfunction()

option(LOCKSTEP_UNITY "compile several files of a folder as one" ON)

# lockstep_unity(TARGET COUNT): compiles COUNT files of the target at a time. Headers are parsed, and templates made, once for all of
# them. Files with options of their own stay alone.
function(lockstep_unity target count)
  set_target_properties(${target} PROPERTIES UNITY_BUILD "${LOCKSTEP_UNITY}" UNITY_BUILD_BATCH_SIZE ${count})
  if(LOCKSTEP_UNITY)
    # g++ takes the files for headers, where a type with a member of an anonymous namespace would be a mistake.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

add_library(lockstep_flags INTERFACE)
target_compile_options(lockstep_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -fno-math-errno -fno-trapping-math
  -ffp-contract=off)
if(LOCKSTEP_WERROR)
  target_compile_options(lockstep_flags INTERFACE -Werror)
endif()
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
  target_link_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()
# Parsers of outside input are compiled for libFuzzer. Targets with the property LOCKSTEP_PLAIN compute and parse nothing:
# without instrumentation and optimisation they compile in a fraction of the time.
if(LOCKSTEP_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "LOCKSTEP_FUZZ needs clang, not ${CMAKE_CXX_COMPILER_ID}; configure with `cmake --preset fuzz`")
  endif()
  set(plain "$<BOOL:$<TARGET_PROPERTY:LOCKSTEP_PLAIN>>")
  set(instrumented -O1 -g1 -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize=vptr
    -fno-sanitize-recover=all)
  target_compile_options(lockstep_flags INTERFACE "$<${plain}:-O0>" "$<$<NOT:${plain}>:${instrumented}>")
  target_link_options(lockstep_flags INTERFACE -fsanitize=address,undefined)
endif()

# lockstep_library(NAME SOURCES... LINKS targets...): the library of one folder. It sees the public headers and src/.
set(LOCKSTEP_LIBRARIES "" CACHE INTERNAL "")
function(lockstep_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  add_library(lockstep_${name} STATIC ${ARG_SOURCES})
  add_library(lockstep::${name} ALIAS lockstep_${name})
  set_target_properties(lockstep_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(lockstep_${name} PUBLIC
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>"
    PRIVATE "${PROJECT_SOURCE_DIR}/src")
  target_compile_features(lockstep_${name} PUBLIC cxx_std_20)
  target_link_libraries(lockstep_${name} PUBLIC ${ARG_LINKS} PRIVATE ${ARG_PRIVATE_LINKS} $<BUILD_INTERFACE:lockstep_flags>)
  set(LOCKSTEP_LIBRARIES ${LOCKSTEP_LIBRARIES} lockstep_${name} CACHE INTERNAL "")
endfunction()
