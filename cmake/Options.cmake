# What a builder may set, and the compiler flags of our own code.
option(DTORCH_TESTS "Build the tests" ON)
option(DTORCH_FUZZ "Build the fuzzers of tests/fuzz (clang only)" OFF)
set(DTORCH_SANITIZE "" CACHE STRING "Sanitizers for our own code: address,undefined or thread")
set(DTORCH_SHARED "${PROJECT_SOURCE_DIR}/../shared" CACHE PATH "MNIST, golden values and peers for tests and measurements")

find_program(DTORCH_CCACHE ccache)
if(DTORCH_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers are cached only when ccache may ignore their defines and time stamps.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${DTORCH_CCACHE})
endif()

add_library(dtorch_flags INTERFACE)
target_compile_options(dtorch_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>   # GCC 12 sees overlaps in "text" + std::string (its bug 105329)
    $<$<BOOL:${DTORCH_CCACHE}>:-fpch-preprocess>)
if(DTORCH_SANITIZE)
  add_compile_options(-fsanitize=${DTORCH_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${DTORCH_SANITIZE})
endif()
