# How each kind of target is made. A folder is one library, named after its last component; its sources are its *.cpp.

# A library that never sees libtorch, named after its folder; below backends after both, dtorch_NAME_engine.
function(dtorch_light_library folder)
  string(REGEX REPLACE "^(core|backends)/" "" name ${folder})
  string(REPLACE "/" "_" name ${name})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  add_library(dtorch_${name} STATIC ${sources})
  target_include_directories(dtorch_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_definitions(dtorch_${name} PRIVATE DTORCH_VERSION="${PROJECT_VERSION}")
  target_link_libraries(dtorch_${name} PRIVATE dtorch_flags)
endfunction()

# PREFIX_baseline.cpp, PREFIX_avx2.cpp and PREFIX_avx512.cpp: the same loops for three levels of vector instructions, of
# which the program picks one when it runs. Without contraction they give the same bits.
function(dtorch_vector_levels prefix)
  set(baseline "")
  set(avx2 -mavx2)
  set(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  foreach(level baseline avx2 avx512)
    if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      set(${level} "")
    endif()
    set_source_files_properties(${PROJECT_SOURCE_DIR}/${prefix}_${level}.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON
        COMPILE_OPTIONS "-O3;-ffp-contract=off;${${level}}")
  endforeach()
endfunction()

function(dtorch_torch_settings target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${target} PRIVATE dtorch_flags dtorch_torch fmt::fmt-header-only nlohmann_json::nlohmann_json
      Threads::Threads)
endfunction()
# The one precompiled header: libtorch costs 23 s a file without it.
if(NOT DTORCH_LIGHT_ONLY)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/pch.cpp CONTENT "")
  add_library(dtorch_pch OBJECT ${PROJECT_BINARY_DIR}/pch.cpp)
  target_precompile_headers(dtorch_pch PRIVATE <torch/types.h> <torch/csrc/distributed/c10d/PrefixStore.hpp>
      <torch/csrc/distributed/c10d/Store.hpp> <torch/csrc/distributed/c10d/TCPStore.hpp> <fmt/format.h>
      <nlohmann/json.hpp>)
  dtorch_torch_settings(dtorch_pch)
endif()

# Objects that see libtorch; all of them together are libdtorch.so.
function(dtorch_torch_library folder)
  get_filename_component(name ${folder} NAME)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  add_library(dtorch_${name} OBJECT ${sources})
  dtorch_torch_settings(dtorch_${name})
  target_precompile_headers(dtorch_${name} REUSE_FROM dtorch_pch)
  set_property(GLOBAL APPEND PROPERTY dtorch_objects dtorch_${name})
endfunction()

function(dtorch_shared_library)
  get_property(objects GLOBAL PROPERTY dtorch_objects)
  add_library(dtorch SHARED)
  foreach(object ${objects})
    target_sources(dtorch PRIVATE $<TARGET_OBJECTS:${object}>)
  endforeach()
  # libtorch_cpu exports a newer Gloo of its own; the first one loaded wins, so libgloo precedes it here and for users.
  target_link_options(dtorch PUBLIC LINKER:--no-as-needed ${GLOO_LIBRARY})
  target_link_libraries(dtorch PRIVATE ${GLOO_LIBRARY} PUBLIC dtorch_torch PRIVATE dtorch_job dtorch_tcp_engine dtorch_shm_engine dtorch_bytes dtorch_base CURL::libcurl
      ZLIB::ZLIB OpenSSL::Crypto)
  target_include_directories(dtorch PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR};${PROJECT_SOURCE_DIR}/include>"
      "$<INSTALL_INTERFACE:include;include/dtorch/internal>")
  target_compile_features(dtorch PUBLIC cxx_std_20)
  set_target_properties(dtorch PROPERTIES LINKER_LANGUAGE CXX INSTALL_RPATH "$ORIGIN;${DTORCH_TORCH_FOUND}/lib")
endfunction()

function(dtorch_executable)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cli/*.cpp)
  add_executable(dtorch_cli ${sources})
  # The command line opens libdtorch.so by name, when it needs it.
  set_target_properties(dtorch_cli PROPERTIES OUTPUT_NAME dtorch INSTALL_RPATH "$ORIGIN;$ORIGIN/../lib")
  target_compile_definitions(dtorch_cli PRIVATE DTORCH_VERSION="${PROJECT_VERSION}")
  target_link_libraries(dtorch_cli PRIVATE dtorch_flags dtorch_job dtorch_launch dtorch_report dtorch_base CLI11::CLI11
      ${CMAKE_DL_LIBS})
  add_dependencies(dtorch_cli dtorch)
endfunction()
