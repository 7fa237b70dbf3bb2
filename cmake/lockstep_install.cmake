# `cmake --install` provides the program, its manual pages and completions, and find_package(lockstep) with the targets
# lockstep::lockstep, and lockstep::main for programs with train_main().
include(CMakePackageConfigHelpers)
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # what is installed need not include tests and benchmarks
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/lockstep" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(TARGETS lockstep lockstep_user_main ${LOCKSTEP_LIBRARIES} EXPORT lockstepTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
set(plugins "${CMAKE_INSTALL_LIBDIR}/lockstep")
if(TARGET lockstep_mpi_plugin)
  install(TARGETS lockstep_mpi_plugin LIBRARY DESTINATION "${plugins}")
endif()
install(TARGETS lockstep_main RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
# Installed programs find plug-ins there, and in a release archive all libraries. Only an RPATH of the old kind holds for
# libraries of libraries.
function(lockstep_install_rpath target folder)
  file(RELATIVE_PATH plugins "/prefix/${folder}" "/prefix/${CMAKE_INSTALL_LIBDIR}/lockstep")
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/${plugins}")
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
endfunction()
lockstep_install_rpath(lockstep_main "${CMAKE_INSTALL_BINDIR}")
if(LOCKSTEP_BUILD_EXAMPLES)
  # `lockstep apply` runs it in place of the image of Kubeflow's SPMD MNIST example.
  install(TARGETS spmd_mnist_pmap RUNTIME DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/lockstep")
  lockstep_install_rpath(spmd_mnist_pmap "${CMAKE_INSTALL_LIBEXECDIR}/lockstep")
endif()
install(EXPORT lockstepTargets NAMESPACE lockstep:: DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/lockstepConfig.cmake.in" "${CMAKE_CURRENT_BINARY_DIR}/lockstepConfig.cmake"
  INSTALL_DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep")
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/lockstepConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/lockstepConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/lockstepConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/lockstep_grpc.cmake"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep")
configure_file("${PROJECT_SOURCE_DIR}/cmake/lockstep_grpc.cmake" "${CMAKE_CURRENT_BINARY_DIR}/lockstep_grpc.cmake" COPYONLY)
# A build folder works like an installation: -Dlockstep_DIR=BUILD_FOLDER.
export(TARGETS lockstep lockstep_user_main ${LOCKSTEP_LIBRARIES} lockstep_flags NAMESPACE lockstep::
  FILE "${CMAKE_CURRENT_BINARY_DIR}/lockstepTargets.cmake")

# The program writes its manual pages and completions. It cannot if it was built for another kind of machine.
set(LOCKSTEP_GENERATED_FILES "${CMAKE_CURRENT_BINARY_DIR}/share")
if(NOT CMAKE_CROSSCOMPILING)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/lockstep_install_pages.cmake.in" "${CMAKE_CURRENT_BINARY_DIR}/lockstep_install_pages.cmake" @ONLY)
  install(SCRIPT "${CMAKE_CURRENT_BINARY_DIR}/lockstep_install_pages.cmake")
endif()
install(FILES "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/CHANGELOG.md" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/examples" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/deploy/kubernetes/templates" DESTINATION "${CMAKE_INSTALL_DATADIR}/lockstep")

if(PROJECT_IS_TOP_LEVEL)
  # Removes the files of the last installation from this folder.
  configure_file("${PROJECT_SOURCE_DIR}/cmake/lockstep_uninstall.cmake.in" "${CMAKE_CURRENT_BINARY_DIR}/lockstep_uninstall.cmake" @ONLY)
  add_custom_target(uninstall COMMAND "${CMAKE_COMMAND}" -P "${CMAKE_CURRENT_BINARY_DIR}/lockstep_uninstall.cmake")
endif()
