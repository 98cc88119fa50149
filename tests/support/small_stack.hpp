// SPDX-License-Identifier: MIT
// Runs something on a stack so small that recursion as deep as the data overflows it.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <stdexcept>

namespace kvstem_test {

/// Calls `body` on a thread of its own with a stack of 64 KiB and waits for it. It must not throw.
template <class Body>
void on_small_stack(Body body) {
    constexpr std::size_t stack_bytes = 64 * 1024;
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, stack_bytes) != 0) {
        throw std::runtime_error("no stack so small");
    }
    const auto call = [](void* argument) -> void* {
        (*static_cast<Body*>(argument))();
        return nullptr;
    };
    const int error = pthread_create(&thread, &attributes, call, &body);
    pthread_attr_destroy(&attributes);
    if (error != 0) throw std::runtime_error("no thread with a small stack");
    pthread_join(thread, nullptr);
}

}  // namespace kvstem_test
