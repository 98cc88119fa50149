// SPDX-License-Identifier: MIT
// A program of two engines that know nothing of each other; see engine.cpp.

#include <cstddef>
#include <cstdio>

std::size_t first_engine();
std::size_t second_engine();

int main() {
    std::printf("first engine: %zu, second engine: %zu tokens reused\n", first_engine(),
                second_engine());
}
