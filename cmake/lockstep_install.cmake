# `cmake --install` provides find_package(lockstep) and the target lockstep::lockstep.
include(CMakePackageConfigHelpers)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/lockstep" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(TARGETS lockstep ${LOCKSTEP_LIBRARIES} EXPORT lockstepTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(TARGETS lockstep_main RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
if(LOCKSTEP_BUILD_EXAMPLES)
  # `lockstep apply` runs it in place of the image of Kubeflow's SPMD MNIST example.
  install(TARGETS spmd_mnist_pmap RUNTIME DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/lockstep")
endif()
install(EXPORT lockstepTargets NAMESPACE lockstep:: DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/lockstepConfig.cmake.in" "${CMAKE_CURRENT_BINARY_DIR}/lockstepConfig.cmake"
  INSTALL_DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep")
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/lockstepConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/lockstepConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/lockstepConfigVersion.cmake"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep")
