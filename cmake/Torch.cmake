# Makes dtorch_torch: the CPU part of libtorch, as imported libraries. find_package(Torch) of the CUDA wheel demands a
# whole CUDA toolkit, which a machine without a GPU need not have.
include(${CMAKE_CURRENT_LIST_DIR}/TorchSearch.cmake)
set(DTORCH_TORCH_ROOT "" CACHE PATH "Folder that holds libtorch's include/ and lib/ (empty: search)")
if(NOT EXISTS "${DTORCH_TORCH_FOUND}/lib/libtorch_cpu.so" OR DTORCH_TORCH_ROOT)
  dtorch_find_torch(found)
  if(NOT found)
    message(FATAL_ERROR "libtorch ${DTORCH_TORCH_SERIES} was not found. Run ./dev deps, or set DTORCH_TORCH_ROOT")
  endif()
  set(DTORCH_TORCH_FOUND ${found} CACHE INTERNAL "The libtorch in use")
endif()
message(STATUS "libtorch: ${DTORCH_TORCH_FOUND}")

foreach(lib torch_cpu c10)
  add_library(dtorch_${lib} SHARED IMPORTED GLOBAL)
  set_target_properties(dtorch_${lib} PROPERTIES IMPORTED_LOCATION ${DTORCH_TORCH_FOUND}/lib/lib${lib}.so)
endforeach()
add_library(dtorch_torch INTERFACE IMPORTED GLOBAL)
target_include_directories(dtorch_torch SYSTEM INTERFACE ${DTORCH_TORCH_FOUND}/include
    ${DTORCH_TORCH_FOUND}/include/torch/csrc/api/include)
target_link_libraries(dtorch_torch INTERFACE dtorch_torch_cpu dtorch_c10)
