# `cmake --install` provides find_package(lockstep) with the targets lockstep::lockstep, and lockstep::main for programs
# with train_main().
include(CMakePackageConfigHelpers)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/lockstep" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(TARGETS lockstep lockstep_user_main ${LOCKSTEP_LIBRARIES} EXPORT lockstepTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
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
# A build folder works like an installation: -Dlockstep_DIR=BUILD_FOLDER.
export(TARGETS lockstep lockstep_user_main ${LOCKSTEP_LIBRARIES} lockstep_flags NAMESPACE lockstep::
  FILE "${CMAKE_CURRENT_BINARY_DIR}/lockstepTargets.cmake")
