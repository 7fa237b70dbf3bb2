# Compiler settings of every target, and lockstep_folder(), which defines the static library of a source folder.

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
# What is built here finds its plug-ins by this rpath, which is removed at installation. See src/comm/mpi/mpi_library.h.
set(LOCKSTEP_PLUGIN_DIR "${PROJECT_BINARY_DIR}/lib/lockstep")
list(APPEND CMAKE_BUILD_RPATH "${LOCKSTEP_PLUGIN_DIR}")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without this, ccache does not cache files that use precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros "${CCACHE_PROGRAM}")
endif()

# The gold linker takes a third of the time of ld.
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=gold LOCKSTEP_HAS_GOLD)
if(LOCKSTEP_HAS_GOLD AND NOT LOCKSTEP_SANITIZE AND NOT LOCKSTEP_FUZZ)
  add_link_options(-fuse-ld=gold)
endif()

option(LOCKSTEP_PRECOMPILE "parse what most files include once" ON)
set(CMAKE_PCH_WARN_INVALID OFF)  # targets with additional options parse the headers themselves

# Libraries of which nothing is used are not loaded.
add_link_options(-Wl,--as-needed)

# lockstep_precompile(TARGET GROUP HEADERS...): precompiles headers once for all targets of a group, which have the same
# options: the first target compiles them, the others reuse the result. Files still include what they use.
function(lockstep_precompile target group)
  if(NOT LOCKSTEP_PRECOMPILE)
    return()
  endif()
  get_target_property(plain ${target} LOCKSTEP_PLAIN)
  if(plain AND LOCKSTEP_FUZZ)
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

# lockstep_unity(TARGET COUNT): compiles COUNT files of the target as one. Headers are parsed and templates instantiated once for all of
# them. Files with their own options are compiled separately.
function(lockstep_unity target count)
  set_target_properties(${target} PROPERTIES UNITY_BUILD "${LOCKSTEP_UNITY}" UNITY_BUILD_BATCH_SIZE ${count})
  if(LOCKSTEP_UNITY)
    # g++ treats the included files as headers, where it warns about members of anonymous types.
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
# Parsers of untrusted input are instrumented for libFuzzer. Targets with the property LOCKSTEP_PLAIN parse nothing:
# without instrumentation and optimisation they compile much faster.
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

# lockstep_folder(NAME ...): the static library of one folder of src/, called from that folder's CMakeLists.txt.
#
#   USES folders      earlier folders whose headers it may include, and the folders that those use. A later folder is an error.
#   HEADERS names     the public headers of include/lockstep that belong to it
#   SUBFOLDERS names  subfolders whose sources belong to the library
#   SOURCES files     sources besides the *.cc of the folder and its subfolders
#   LINKS, PRIVATE_LINKS targets   other libraries
#   O2                it has no kernels: -O2 instead of -O3, which builds faster
#   HOST              its speed does not matter: optimised still less
#   PRECOMPILED group headers   uses the precompiled headers of this group instead of the common ones; without
#                     headers: the common ones, compiled anew
#   PARSES_NOTHING    it parses no untrusted input: not instrumented for fuzzing
#   NOT_INSTALLED     users do not link it
#
# The compiler sees headers through build/walls/NAME, a folder of links to the folders and public headers that NAME may use.
# An include of anything else is "No such file or directory".
set(LOCKSTEP_LIBRARIES "" CACHE INTERNAL "")
function(lockstep_folder name)
  cmake_parse_arguments(ARG "O2;HOST;PARSES_NOTHING;NOT_INSTALLED" "" "PRECOMPILED;USES;HEADERS;SUBFOLDERS;SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  set(target lockstep_${name})
  set(sources ${ARG_SOURCES})
  foreach(folder . ${ARG_SUBFOLDERS})
    file(GLOB files CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc")
    list(APPEND sources ${files})
  endforeach()
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")
  add_library(${target} STATIC ${sources})
  add_library(lockstep::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} LOCKSTEP_PLAIN "${ARG_PARSES_NOTHING}")
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${ARG_LINKS} PRIVATE ${ARG_PRIVATE_LINKS} $<BUILD_INTERFACE:lockstep_flags>)
  foreach(used ${ARG_USES})
    if(NOT TARGET lockstep_${used})
      message(FATAL_ERROR "src/${name} uses src/${used}, which does not come before it in src/CMakeLists.txt; move the code, not the folder")
    endif()
    target_link_libraries(${target} PUBLIC lockstep_${used})
  endforeach()
  set_property(GLOBAL PROPERTY lockstep_headers_of_${name} ${ARG_HEADERS})
  lockstep_wall(${name} ${ARG_USES})

  # Headers are parsed, and templates instantiated, once per unit. Units of kernels take long, so they are smaller.
  set(group fast)
  set(batch 5)
  if(ARG_HOST)
    set(group plain)
    set(batch 12)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  elseif(ARG_O2)
    set(group medium)
    set(batch 10)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O2>)
  endif()
  set(precompiled ${LOCKSTEP_COMMON_HEADERS})
  if(ARG_PRECOMPILED)
    list(POP_FRONT ARG_PRECOMPILED group)
    if(ARG_PRECOMPILED)
      set(precompiled ${ARG_PRECOMPILED})
    endif()
  endif()
  lockstep_precompile(${target} ${group} ${precompiled})
  lockstep_unity(${target} ${batch})
  # Errors name the line of the user's program, so lines of the library must be recognizable (base/source_line.cc).
  target_compile_options(${target} PRIVATE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/src=lockstep:src)
  # False positives of g++ 12 and 13 for concatenated strings and copies of short vectors.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-array-bounds;-Wno-stringop-overflow>)
  set_property(GLOBAL APPEND PROPERTY lockstep_folders ${name})
  if(NOT ARG_NOT_INSTALLED)
    set(LOCKSTEP_LIBRARIES ${LOCKSTEP_LIBRARIES} ${target} CACHE INTERNAL "")
  endif()
endfunction()

set(LOCKSTEP_COMMON_HEADERS <algorithm> <chrono> <condition_variable> <fmt/format.h> <functional> <map> <memory> <mutex> <optional> <span>
  <string> <string_view> <thread> <unordered_map> <utility> <vector>)

# lockstep_wall(NAME USED...): makes build/walls/NAME, and makes it the include path of the folder's library.
function(lockstep_wall name)
  set(seen ${name})
  foreach(used ${ARGN})
    get_property(below GLOBAL PROPERTY lockstep_seen_by_${used})
    list(APPEND seen ${below})
  endforeach()
  list(REMOVE_DUPLICATES seen)
  set_property(GLOBAL PROPERTY lockstep_seen_by_${name} ${seen})
  set(wall "${PROJECT_BINARY_DIR}/walls/${name}")
  file(REMOVE_RECURSE "${wall}")
  file(MAKE_DIRECTORY "${wall}/lockstep/detail")
  foreach(folder ${seen})
    file(CREATE_LINK "${PROJECT_SOURCE_DIR}/src/${folder}" "${wall}/${folder}" SYMBOLIC)
    get_property(headers GLOBAL PROPERTY lockstep_headers_of_${folder})
    foreach(header ${headers})
      file(CREATE_LINK "${PROJECT_SOURCE_DIR}/include/lockstep/${header}" "${wall}/lockstep/${header}" SYMBOLIC)
    endforeach()
  endforeach()
  target_include_directories(lockstep_${name} PRIVATE "${wall}")
endfunction()

# Every public header belongs to one folder.
function(lockstep_check_headers)
  file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/include/lockstep" "${PROJECT_SOURCE_DIR}/include/lockstep/*.h")
  get_property(folders GLOBAL PROPERTY lockstep_folders)
  set(owned "")
  foreach(folder ${folders})
    get_property(headers GLOBAL PROPERTY lockstep_headers_of_${folder})
    foreach(header ${headers})
      if(header IN_LIST owned)
        message(FATAL_ERROR "include/lockstep/${header} belongs to two folders; name it in the CMakeLists.txt of one")
      endif()
      if(NOT header IN_LIST found)
        message(FATAL_ERROR "include/lockstep/${header} does not exist; correct HEADERS in src/${folder}/CMakeLists.txt")
      endif()
    endforeach()
    list(APPEND owned ${headers})
  endforeach()
  foreach(header ${found})
    if(NOT header IN_LIST owned)
      message(FATAL_ERROR "include/lockstep/${header} belongs to no folder; name it in HEADERS of the CMakeLists.txt of the folder that implements it")
    endif()
  endforeach()
endfunction()
