// SPDX-License-Identifier: MIT
// The version, stated here and nowhere else; CMakeLists.txt reads these three lines.
#pragma once

#define KVSTEM_VERSION_MAJOR 0
#define KVSTEM_VERSION_MINOR 1
#define KVSTEM_VERSION_PATCH 0
