// SPDX-License-Identifier: MIT
// expect: deleted
// A lease is not copied: its pages would be given back twice. `fork` makes a second one.

#include <utility>

#include "kvstem/radix_cache.hpp"

using Lease = kvstem::RadixCache<>::Lease;

Lease pass_on(Lease& lease) {
#ifdef MUST_NOT_COMPILE
    return lease;
#else
    return std::move(lease);
#endif
}
