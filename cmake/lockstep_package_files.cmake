# Run by CPack after the files are in the folder of the package: adds what Debian's policy asks for.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
set(usr "${CPACK_TEMPORARY_DIRECTORY}/usr")
set(doc "${usr}/share/doc/lockstep")
find_program(gzip gzip REQUIRED)

# The licence of Apache-2.0 is on every Debian system. The static libraries and headers in the program have theirs.
file(READ "${CPACK_LOCKSTEP_SOURCE}/deploy/packages/copyright" copyright)
set(packages libcli11-dev nlohmann-json3-dev)
if(CPACK_LOCKSTEP_STATIC_GRPC)
  list(APPEND packages libgrpc-dev libabsl-dev libre2-dev libc-ares-dev)
endif()
foreach(package ${packages})
  if(EXISTS "/usr/share/doc/${package}/copyright")
    file(READ "/usr/share/doc/${package}/copyright" text)
    string(APPEND copyright "\n\n==== Part of the program: ${package} ====\n\n${text}")
  endif()
endforeach()
file(WRITE "${doc}/copyright" "${copyright}")
file(REMOVE "${doc}/LICENSE")

string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)  # or $SOURCE_DATE_EPOCH
file(WRITE "${doc}/changelog" "lockstep (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * The changes are in CHANGELOG.md.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
execute_process(COMMAND "${gzip}" -9n "${doc}/changelog" "${doc}/CHANGELOG.md" COMMAND_ERROR_IS_FATAL ANY)
file(CHMOD "${doc}/copyright" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)

set(overrides "${usr}/share/lintian/overrides")
file(MAKE_DIRECTORY "${overrides}")
file(COPY_FILE "${CPACK_LOCKSTEP_SOURCE}/deploy/packages/lintian-overrides" "${overrides}/lockstep")
