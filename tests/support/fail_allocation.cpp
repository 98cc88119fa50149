// SPDX-License-Identifier: MIT
// The test program's operator new and delete: the C library's, with a fuse.

#include "fail_allocation.hpp"

#include <cstdlib>
#include <new>

namespace {

struct Fuse {
    bool on = false;
    std::size_t at = 0;
    std::size_t count = 0;
};
thread_local Fuse fuse;

bool fails() noexcept {
    return fuse.on && ++fuse.count == fuse.at;
}

void* allocate(std::size_t bytes) noexcept {
    if (fails()) return nullptr;
    return std::malloc(bytes == 0 ? 1 : bytes);
}

void* allocate(std::size_t bytes, std::align_val_t alignment) noexcept {
    if (fails()) return nullptr;
    const auto a = static_cast<std::size_t>(alignment);
    if (bytes > static_cast<std::size_t>(-1) - a) return nullptr;
    return std::aligned_alloc(a, (bytes + a - 1) / a * a);
}

void* or_throw(void* memory) {
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace

namespace kvstem_test {

FailingAllocation::FailingAllocation(std::size_t n) noexcept {
    fuse = {true, n, 0};
}
FailingAllocation::~FailingAllocation() {
    fuse = {};
}
bool FailingAllocation::fired() const noexcept {
    return fuse.at != 0 && fuse.count >= fuse.at;
}
std::size_t FailingAllocation::count() const noexcept {
    return fuse.count;
}

}  // namespace kvstem_test

void* operator new(std::size_t n) {
    return or_throw(allocate(n));
}
void* operator new[](std::size_t n) {
    return or_throw(allocate(n));
}
void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
    return allocate(n);
}
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
    return allocate(n);
}
void* operator new(std::size_t n, std::align_val_t a) {
    return or_throw(allocate(n, a));
}
void* operator new[](std::size_t n, std::align_val_t a) {
    return or_throw(allocate(n, a));
}
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
    return allocate(n, a);
}
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
    return allocate(n, a);
}
void operator delete(void* p) noexcept {
    std::free(p);
}
void operator delete[](void* p) noexcept {
    std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
    std::free(p);
}
void operator delete[](void* p, std::size_t) noexcept {
    std::free(p);
}
void operator delete(void* p, const std::nothrow_t&) noexcept {
    std::free(p);
}
void operator delete[](void* p, const std::nothrow_t&) noexcept {
    std::free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
    std::free(p);
}
void operator delete[](void* p, std::align_val_t) noexcept {
    std::free(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
    std::free(p);
}
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept {
    std::free(p);
}
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept {
    std::free(p);
}
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept {
    std::free(p);
}
