# What a builder may set, and the compiler flags of our own code.
option(DTORCH_TESTS "Build the tests" ON)
option(DTORCH_FUZZ "Build the fuzzers of tests/fuzz (clang only)" OFF)
option(DTORCH_LIGHT_ONLY "Only the parts that never see libtorch (base, bytes, job, launch, report) and their tests" OFF)
option(DTORCH_WERROR "Warnings in our own code are errors" ON)
option(DTORCH_UNITY "Compile a folder's sources together: a third of the time of a clean build" ON)
set(DTORCH_SANITIZE "" CACHE STRING "Sanitizers for our own code: address,undefined or thread")
set(DTORCH_SHARED "${PROJECT_SOURCE_DIR}/../shared" CACHE PATH "MNIST, golden values and peers for tests and measurements")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_UNITY_BUILD ${DTORCH_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 6)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
# One run path for the built and the installed file: CMake would pad the shorter one with empty entries, and an empty
# entry makes the loader look in the current directory.
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN")
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")   # -O3 adds a quarter to the build and gains nothing measurable

find_program(DTORCH_CCACHE ccache)
if(DTORCH_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers are cached only when ccache may ignore their defines and time stamps.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${DTORCH_CCACHE})
endif()

add_library(dtorch_flags INTERFACE)
target_compile_options(dtorch_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>   # GCC 12 sees overlaps in "text" + std::string (its bug 105329)
    $<$<BOOL:${DTORCH_WERROR}>:-Werror> $<$<BOOL:${DTORCH_CCACHE}>:-fpch-preprocess>)
if(DTORCH_SANITIZE)
  # A finding ends the program, so that a test cannot pass over it.
  add_compile_options(-fsanitize=${DTORCH_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${DTORCH_SANITIZE})
  target_compile_options(dtorch_flags INTERFACE -Wno-maybe-uninitialized)   # GCC 12 is wrong about it in instrumented code
endif()
