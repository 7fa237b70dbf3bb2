# `./dev package`: a Debian package of the installation, by CPack. lockstep_package_config.cmake works out what it
# depends on when it is made.
add_custom_target(lockstep_package_contents)
add_dependencies(lockstep_package_contents lockstep_main)
foreach(target lockstep_mpi_plugin spmd_mnist_pmap)
  if(TARGET ${target})
    add_dependencies(lockstep_package_contents ${target})
  endif()
endforeach()

set(LOCKSTEP_PACKAGE_CONTACT "Lockstep developers <lockstep@example.org>" CACHE STRING "Maintainer of the Debian package")
set(LOCKSTEP_PACKAGE_HOMEPAGE "" CACHE STRING "Homepage of the Debian package; empty: none")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_CONTACT "${LOCKSTEP_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "SPMD training library and program")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "Lockstep trains models on CPUs and NVIDIA GPUs, in one process or in many:
on one machine, under Slurm and on Kubernetes. It has JAX's programming model
in C++.
.
This package has the program, the C++ library with its CMake package, manual
pages, completions for bash, zsh and fish, examples and manifest templates.")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
if(LOCKSTEP_PACKAGE_HOMEPAGE)
  set(CPACK_DEBIAN_PACKAGE_HOMEPAGE "${LOCKSTEP_PACKAGE_HOMEPAGE}")
endif()
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)  # lockstep_VERSION_ARCHITECTURE.deb
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)  # a third of the time of xz
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/cmake/lockstep_package_files.cmake")
set(CPACK_PROJECT_CONFIG_FILE "${PROJECT_SOURCE_DIR}/cmake/lockstep_package_config.cmake")
# For these two scripts.
set(CPACK_LOCKSTEP_SOURCE "${PROJECT_SOURCE_DIR}")
set(CPACK_LOCKSTEP_BUILD "${CMAKE_BINARY_DIR}")
set(CPACK_LOCKSTEP_STATIC_GRPC "${LOCKSTEP_GRPC_IS_STATIC}")
include(CPack)
