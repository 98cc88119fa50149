# SPDX-License-Identifier: MIT
# Nothing leaks from the target: it carries `expected_include` and cxx_std_20, and no other property.
foreach(
  property
  AUTOUIC_OPTIONS COMPILE_DEFINITIONS COMPILE_OPTIONS LINK_DEPENDS LINK_DIRECTORIES LINK_LIBRARIES
  LINK_OPTIONS POSITION_INDEPENDENT_CODE PRECOMPILE_HEADERS SOURCES SYSTEM_INCLUDE_DIRECTORIES
)
  get_target_property(value kvstem::kvstem INTERFACE_${property})
  if(value)
    message(FATAL_ERROR "kvstem::kvstem leaks INTERFACE_${property}: ${value}")
  endif()
endforeach()

get_target_property(features kvstem::kvstem INTERFACE_COMPILE_FEATURES)
if(NOT "${features}" STREQUAL "cxx_std_20")
  message(FATAL_ERROR "kvstem::kvstem asks for [${features}] instead of cxx_std_20")
endif()

get_target_property(include kvstem::kvstem INTERFACE_INCLUDE_DIRECTORIES)
string(REGEX REPLACE "\\$<BUILD_INTERFACE:([^>]*)>" "\\1" include "${include}")
string(REGEX REPLACE ";?\\$<INSTALL_INTERFACE:[^>]*>" "" include "${include}")
if(NOT "${include}" STREQUAL "${expected_include}")
  message(FATAL_ERROR "kvstem::kvstem includes [${include}] instead of [${expected_include}]")
endif()
message(STATUS "kvstem::kvstem carries ${features} and ${include}")
