# Makes dtorch::torch: the CPU part of libtorch, as imported libraries. find_package(Torch) of the CUDA wheel demands a
# whole CUDA toolkit, which a machine without a GPU need not have.
set(DTORCH_TORCH_VERSION 2.11.0)
set(DTORCH_TORCH_ROOT "" CACHE PATH "Folder that holds libtorch's include/ and lib/ (empty: search)")
if(DEFINED ENV{XDG_CACHE_HOME})
  set(cache_home $ENV{XDG_CACHE_HOME})
else()
  set(cache_home $ENV{HOME}/.cache)
endif()
find_path(TORCH_INCLUDE_DIR torch/csrc/api/include/torch/torch.h
    PATHS ${DTORCH_TORCH_ROOT}/include ${cache_home}/dtorch/torch-${DTORCH_TORCH_VERSION}/torch/include REQUIRED)
get_filename_component(TORCH_ROOT ${TORCH_INCLUDE_DIR} DIRECTORY)
foreach(lib torch_cpu c10)
  add_library(dtorch_${lib} SHARED IMPORTED GLOBAL)
  set_target_properties(dtorch_${lib} PROPERTIES IMPORTED_LOCATION ${TORCH_ROOT}/lib/lib${lib}.so)
endforeach()
add_library(dtorch_torch INTERFACE)
target_include_directories(dtorch_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIR} ${TORCH_INCLUDE_DIR}/torch/csrc/api/include)
target_link_libraries(dtorch_torch INTERFACE dtorch_torch_cpu dtorch_c10)
